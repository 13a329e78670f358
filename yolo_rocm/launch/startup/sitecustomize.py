"""Python runs this first in every process below `yolo-rocm run`; see `yolo_rocm.launch.run_script`.

It leaves no trace but the finder of `yolo_rocm.launch.import_hook`: this folder goes from the path, and a
`sitecustomize` of the user's own, which this one hides, is imported in its place.
"""

import importlib
import os
import sys


def _follow() -> None:
    # Another environment's Python may be started by the script, with other packages or none of them.
    if os.environ.get("YOLO_ROCM_RUN") != sys.prefix:
        return
    import importlib.util

    # Loaded from where `yolo-rocm` itself was, whether or not a script's own path leads there.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    spec = importlib.util.spec_from_file_location("yolo_rocm", os.path.join(package, "__init__.py"))
    if spec is None or spec.loader is None:
        raise ImportError(package)
    module = importlib.util.module_from_spec(spec)
    sys.modules["yolo_rocm"] = module
    spec.loader.exec_module(module)
    from yolo_rocm.launch.import_hook import follow

    follow()


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _here]
try:
    _follow()
except Exception as error:
    sys.stderr.write("yolo-rocm: the preset is not in force in this process: %r\n" % (error,))  # noqa: UP031
del sys.modules["sitecustomize"]
importlib.import_module("sitecustomize")  # where there is none, Python is told so, as without us
