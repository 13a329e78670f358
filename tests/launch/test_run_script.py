"""`yolo-rocm run`: a script sees of its process what Python alone shows it, and its YOLO is under the preset."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import yolo_rocm
from yolo_rocm.api import everywhere
from yolo_rocm.cli import main
from yolo_rocm.conv import seam
from yolo_rocm.launch import run_script
from yolo_rocm.launch.import_hook import AfterImport
from yolo_rocm.preset import restart
from yolo_rocm.session import process_wide
from yolo_rocm.session.current_run import current
from yolo_rocm.session.session import Session

from ..fake_trees import write
from ..small_model import small_model

pytestmark = pytest.mark.once

PROJECT = Path(__file__).parents[2]
PLAIN = [sys.executable]
OURS = [sys.executable, "-m", "yolo_rocm", "run", "--preset", "cpu"]
SERVED_BY_US = ["--rocm", "conv.engine=gemm", "--rocm", "conv.devices=[cpu]"]

FACTS = """
import json, os, sys, __main__
heavy = [name for name in ("torch", "ultralytics", "pydantic", "yaml", "typer", "sitecustomize") if name in sys.modules]
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"), "package": __package__,
    "main": __main__.__dict__ is globals() and sys.modules["__main__"] is __main__,
    "spec": __spec__ and __spec__.name, "loader": type(__loader__).__name__, "names": sorted(globals()),
    "orig": sys.orig_argv[1:], "flags": str(sys.flags), "heavy": heavy, "input": sys.stdin.read(),
    "hook": sys.excepthook is sys.__excepthook__, "sigint": str(__import__("signal").getsignal(2)),
}))
"""
WORDS = ("--help", "-h", "a=b", "--preset", "nothing", "--rocm", "--", "", "-m", "x y")


def begin(command: list[str], *words: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
    )


def run(
    command: list[str], *words: str, cwd: Path | None = None, given: str = "", **environment: str
) -> tuple[int, str, str]:
    process = begin(command, *words, cwd=cwd, **environment)
    printed, complained = process.communicate(given, timeout=300)
    return process.returncode, printed, complained


def both(folder: Path, *words: str, given: str = "", **environment: str) -> tuple[int, str, str]:
    """Run the same words with Python and with us, and return what both of them did."""
    processes = [begin(command, *words, cwd=folder, **environment) for command in (PLAIN, OURS)]
    plain, ours = [(*process.communicate(given, timeout=60), process.returncode) for process in processes]
    assert ours == plain
    return plain[2], plain[0], plain[1]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "facts.py", FACTS)
    write(tmp_path / "package/__init__.py", "")
    write(tmp_path / "package/inner.py", FACTS)
    write(tmp_path / "package/__main__.py", FACTS)
    return tmp_path


@pytest.mark.parametrize(
    "target",
    [("package/inner.py",), ("-m", "package.inner"), ("-mpackage",), ("package",), ("-",)],
    ids="_".join,
)
def test_a_target_sees_what_python_alone_shows_it(folder, target):
    """Arguments, path, `__main__`, flags, standard input, signals; and nothing is imported ahead of it."""
    given = FACTS if target == ("-",) else "passed through"
    code, printed, complained = both(folder, *target, *WORDS, given=given)
    facts = json.loads(printed)
    assert (code, complained) == (0, "")
    # Some systems come with a sitecustomize; that it is there for both has been compared.
    assert (facts["argv"][1:], [name for name in facts["heavy"] if name != "sitecustomize"]) == (list(WORDS), [])
    assert facts["name"] == "__main__"


ENDS = {
    "int": "sys.exit(7)",
    "text": "sys.exit('a reason')",
    "error": "def fail():\n    raise ValueError('wrong')\nfail()",
    "syntax": "def broken(:",
}


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_as_with_python_alone(tmp_path, end):
    """Exit code, output and traceback are the same to the letter; what is to happen at exit happens."""
    code = "import atexit, sys\natexit.register(print, 'at exit')\nprint('before')\n" + ENDS[end]
    write(tmp_path / "script.py", code)
    code, printed, complained = both(tmp_path, "script.py")
    assert code == {"int": 7}.get(end, 1)
    assert ("at exit" in printed) == (end != "syntax")
    assert "yolo_rocm" not in complained
    assert "runpy" not in complained


@pytest.mark.skipif(os.name != "posix", reason="signals of another kind")
@pytest.mark.parametrize("which", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_as_it_ends_python(tmp_path, which):
    write(tmp_path / "script.py", "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    ends = []
    for command in (PLAIN, OURS):
        process = begin(command, "script.py", cwd=tmp_path)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)  # it sleeps then, and its traceback has the same line
        process.send_signal(getattr(signal, which))
        ends.append((*process.communicate(timeout=60), process.returncode))
    assert ends[0] == ends[1]
    assert ends[1][2] == -getattr(signal, which)
    assert ("KeyboardInterrupt" in ends[1][1]) == (which == "SIGINT")


SPAWNING = """
import multiprocessing, sys

def work(number):
    follows = any(type(finder).__name__ == "AfterImport" for finder in sys.meta_path)
    return number * 2, __name__, sys.argv[1:], follows

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(work, [21]))
"""


@pytest.mark.parametrize("target", [("spawning.py",), ("-m", "package.spawning")], ids=["script", "module"])
def test_spawned_children_find_their_main_module_and_the_preset(tmp_path, target):
    write(tmp_path / "spawning.py", SPAWNING)
    write(tmp_path / "package/spawning.py", SPAWNING)
    code, printed, complained = run(OURS, *target, "spawn", cwd=tmp_path)
    assert code == 0, complained
    assert eval(printed) == [(42, "__mp_main__", ["spawn"], True)]


def test_the_users_own_sitecustomize_runs(tmp_path):
    write(tmp_path / "site/sitecustomize.py", "import sys\nsys.mine = __file__\n")
    write(tmp_path / "script.py", "import sys\nprint(sys.mine, sys.modules['sitecustomize'].__file__, sys.path)\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(PROJECT)])
    assert both(tmp_path, "script.py", PYTHONPATH=path)[0] == 0


PRESET = "base: cpu\nenv:\n  MALLOC_YOLO_ROCM_TEST: {value: '1'}\n  HSA_YOLO_ROCM_TEST: {value: '2'}\n"
TELL = """
import os, subprocess, sys
os.chdir("elsewhere")
follows = any(type(finder).__name__ == "AfterImport" for finder in sys.meta_path)
print(os.environ.get("MALLOC_YOLO_ROCM_TEST"), os.environ.get("HSA_YOLO_ROCM_TEST"), follows, flush=True)
if follows:
    from yolo_rocm.launch.import_hook import session_of_run
    print(session_of_run().settings.preset.conv.engine, flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "again"], cwd="..")
"""


def test_variables_are_there_from_the_start_and_children_inherit_the_preset(tmp_path):
    """Those of the process start too. The preset's file is named from where the command was given."""
    write(tmp_path / "mine.yaml", PRESET)
    write(tmp_path / "tell.py", TELL)
    (tmp_path / "elsewhere").mkdir()
    words = ("--preset", "mine.yaml", "--rocm", "conv.engine=aten", str(tmp_path / "tell.py"))
    code, printed, complained = run(OURS[:4], *words, cwd=tmp_path)
    assert code == 0, complained
    assert printed.splitlines() == ["1 2 True", "aten"] * 2
    assert run(OURS[:4], *words, cwd=tmp_path, YOLO_ROCM="0")[1].splitlines() == ["None None False"] * 2


def test_a_python_of_another_environment_is_left_alone(tmp_path):
    write(tmp_path / "script.py", "import sys\nprint('yolo_rocm' in sys.modules)\n")
    variables = run_script.environment("cpu", None)
    assert run(PLAIN, "script.py", cwd=tmp_path, **variables)[1] == "True\n"
    variables[run_script.RUN_VARIABLE] = "/somewhere/else"
    assert run(PLAIN, "script.py", cwd=tmp_path, **variables)[1] == "False\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("facs.py",), 1, "there is no script 'facs.py'; did you mean 'facts.py'?"),
        (("python", "facts.py"), 1, "leave out a `python`"),
        (("empty",), 1, "'empty' is a folder without a __main__.py"),
        (("--preset", "rx560xt", "facts.py"), 1, "rx560xt"),
        (("--rocm", "conv.engin=gemm", "facts.py"), 1, "did you mean 'engine'"),
        (("--nothing", "facts.py"), 2, "--nothing"),
        (("-m",), 2, "give a module after -m"),
        ((), 2, "Missing argument"),
    ],
)
def test_mistakes(folder, words, code, text, monkeypatch, capsys):
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["yolo-rocm", "run", *words])
    monkeypatch.setattr(restart, "_replace_process", lambda *_: pytest.fail("it has started something"))
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == code
    assert text in capsys.readouterr().err


def test_options_of_python_go_along_and_those_that_keep_the_preset_out_are_refused(folder):
    write(folder / "script.py", "import sys\nprint(sys.flags.optimize, sys.warnoptions)\n")
    command = [sys.executable, "-O", "-Wdefault", "-um", *OURS[2:]]
    assert run(command, "script.py", cwd=folder)[1] == "1 ['default']\n"
    done = run([sys.executable, "-S", "-m", *OURS[2:]], "script.py", cwd=folder, PYTHONPATH=_site_packages())
    assert done[0] == 1
    assert "-I, -E and -S keep the preset out" in done[2]


def _site_packages() -> str:
    return os.pathsep.join([str(PROJECT), *(place for place in sys.path if place.endswith("-packages"))])


def test_without_its_script_yolo_is_started_by_name(tmp_path, monkeypatch):
    """Ultralytics knows its own command line by the program's name."""
    monkeypatch.setattr(run_script.sysconfig, "get_path", lambda name: str(tmp_path))
    option, code = run_script.python_arguments(["yolo"])
    assert option == "-c"
    write(tmp_path / "ultralytics/__init__.py", "")
    write(tmp_path / "ultralytics/cfg.py", "import sys\ndef entrypoint():\n    print(sys.argv)\n    return 5\n")
    path = os.pathsep.join([str(tmp_path), str(PROJECT)])
    done = run([sys.executable, option, code], "detect", "a=b", PYTHONPATH=path)
    assert done[:2] == (5, "['yolo', 'detect', 'a=b']\n")


def test_a_module_is_watched_once_it_is_whole_and_stays_as_it_is(tmp_path, monkeypatch):
    write(tmp_path / "watched_module.py", "import sys\nif not hasattr(sys, 'ready'): raise ImportError\nvalue = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    finder = AfterImport({"watched_module": lambda: seen.append(sys.modules["watched_module"].value)})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(ImportError):
        importlib.import_module("watched_module")
    assert seen == []
    monkeypatch.setattr(sys, "ready", True, raising=False)
    module = importlib.import_module("watched_module")
    assert seen == [1]
    assert finder not in sys.meta_path
    assert "exec_module" not in vars(module.__loader__)
    assert type(module.__loader__).__name__ == "SourceFileLoader"


TRAINING = """
import os, sys
from ultralytics import YOLO
from ultralytics.models.yolo.detect import DetectionPredictor, DetectionTrainer, DetectionValidator
import yolo_rocm
from yolo_rocm.conv import seam
from yolo_rocm.launch.import_hook import session_of_run
from tests.sick_vendor import sick_vendor

data, image = sys.argv[1:]
quick = dict(data=data, epochs=1, imgsz=32, batch=8, device="cpu", plots=False, val=False, workers=0)
quick["project"] = os.getcwd()
engines = lambda: sorted(session_of_run().report.engines())
yolo, other = YOLO("yolov8n.yaml"), YOLO("yolov8n.yaml")
with sick_vendor():
    yolo.train(**quick, name="first")
    print("SERVED train", engines(), "rocm.json", (yolo.trainer.save_dir / "rocm.json").exists())
    best = str(yolo.trainer.best)
    trainer = DetectionTrainer(overrides=dict(quick, model="yolov8n.yaml", name="trainer", save=False))
    trainer.train()
    print("SERVED trainer", engines(), trainer.batch_size, (trainer.save_dir / "rocm.json").exists())
    quick = dict(imgsz=32, device="cpu", workers=0, project=os.getcwd())
    DetectionValidator(args=dict(quick, model=best, data=data, batch=4, plots=False))()
    print("SERVED validator", engines())
    predictor = DetectionPredictor(overrides=dict(quick, model=best, save=False))
    print("SERVED predictor", engines(), len(list(predictor(source=image, stream=True))))
handle = yolo_rocm.register(other, "cpu", {"conv": {"engine": "aten", "devices": ["cpu"]}})
other.predict(image, imgsz=32, device="cpu", verbose=False)
print("SERVED registered", sorted(handle.report.engines()), session_of_run().is_active, seam.active_devices())
"""


@pytest.fixture(scope="module")
def trained(made_data, tmp_path_factory):
    """Run a script that trains in every way under the sick vendor, and return its folder and what it printed."""
    from ..session.test_training import an_image

    folder = tmp_path_factory.mktemp("trained")
    write(folder / "training.py", TRAINING.replace("yolov8n.yaml", small_model()))
    words = (*SERVED_BY_US, "training.py", str(made_data()), an_image(made_data()))
    code, printed, complained = run(OURS, *words, cwd=folder, **as_a_user())
    assert code == 0, complained
    return folder, [line for line in printed.splitlines() if line.startswith("SERVED")], printed


def as_a_user() -> dict[str, str]:
    return {"PYTEST_CURRENT_TEST": ""}


def test_whatever_a_script_trains_is_under_the_preset(trained):
    """A YOLO object, a trainer, a validator and a predictor of its own; and its own registration wins."""
    _, said, printed = trained
    assert said == [
        "SERVED train ['gemm'] rocm.json True",
        "SERVED trainer ['gemm'] 8 True",
        "SERVED validator ['gemm']",
        "SERVED predictor ['gemm'] 1",
        "SERVED registered ['aten'] False ()",
    ]
    assert printed.count(", engine gemm)") == 1


def test_the_yolo_command_predicts_as_without_us(trained, made_data):
    """Under the sick vendor, which a `sitecustomize` of the user's brings along; stock predicts with a healthy one."""
    from ultralytics import YOLO

    from ..session.test_training import an_image

    folder = trained[0]
    best, image = folder / "first/weights/best.pt", an_image(made_data())
    site = "from tests.sick_vendor import sick_vendor\nsick = sick_vendor()\nsick.__enter__()\n"
    write(folder / "site/sitecustomize.py", site)
    arguments = [f"model={best}", f"source={image}", "imgsz=32", "device=cpu", "conf=0.00001", "save_txt", "save_conf"]
    words = ("yolo", "detect", "predict", *arguments, f"project={folder}")
    path = os.pathsep.join([str(folder / "site"), str(PROJECT)])
    code, printed, complained = run(OURS, *SERVED_BY_US, *words, cwd=folder, PYTHONPATH=path, **as_a_user())
    assert code == 0, complained
    assert "Results saved to" in printed
    (labels,) = folder.rglob("predict*/labels/*.txt")
    found = sorted([float(word) for word in line.split()] for line in labels.read_text().splitlines())
    (stock,) = YOLO(best).predict(image, imgsz=32, device="cpu", conf=0.00001, verbose=False)
    rows = zip(stock.boxes.cls, stock.boxes.xywhn, stock.boxes.conf, strict=True)
    wanted = sorted([float(kind), *place.tolist(), float(sure)] for kind, place, sure in rows)
    assert len(wanted) > 0
    assert [pytest.approx(row, abs=1e-4) for row in wanted] == found


def test_everywhere_leaves_ultralytics_as_it_was():
    from ultralytics.engine.model import Model
    from ultralytics.engine.predictor import BasePredictor
    from ultralytics.engine.trainer import BaseTrainer
    from ultralytics.engine.validator import BaseValidator

    watched = [(Model, "train"), (BaseTrainer, "__init__"), (BaseValidator, "__call__"), (BasePredictor, "__call__")]
    before = [getattr(owner, name) for owner, name in watched]
    with pytest.raises(RuntimeError, match="stop"), everywhere("cpu"):
        assert all(getattr(owner, name) is not was for (owner, name), was in zip(watched, before, strict=True))
        raise RuntimeError("stop")
    assert [getattr(owner, name) for owner, name in watched] == before


def test_a_second_model_within_a_registered_run_is_under_the_same_preset(made_data):
    """As the one of the AMP check is; `everywhere` is for what runs on its own."""
    from ultralytics import YOLO

    from ..session.test_training import an_image

    image, seen = an_image(made_data()), []
    predict = {"imgsz": 32, "device": "cpu", "verbose": False}
    first, second = YOLO(small_model()), YOLO(small_model())
    handle = yolo_rocm.register(first, "cpu", {"conv": {"engine": "gemm", "devices": ["cpu"]}})
    first.add_callback("on_predict_end", lambda _: seen.append(second.predict(image, **predict)))
    with everywhere("cpu", {"conv": {"engine": "aten", "devices": ["cpu"]}}) as session:
        first.predict(image, **predict)
        assert len(seen) == 1
        assert session.report is None
        assert set(handle.report.engines()) == {"gemm"}
        second.predict(image, **predict)
        assert set(session.report.engines()) == {"aten"}


def test_a_trainer_that_does_not_announce_itself_trains_under_the_preset():
    """Other ranks than the first do not, nor does older Ultralytics before it trains."""

    class Trainer:
        def train(self):
            return seam.active_devices(), current() is not None

    session, trainer, made = Session("cpu", {"conv": {"devices": ["cpu"]}, "train": {"batch": 4}}), Trainer(), []
    around = process_wide._around_trainer(lambda: session)
    around(
        trainer,
        lambda overrides, callbacks: made.append((overrides, callbacks)),
        {"epochs": 1, "batch": None},
        set(),
        None,
    )
    ((overrides, callbacks),) = made
    assert (overrides["epochs"], overrides["batch"]) == (1, 4)
    assert callbacks["teardown"][-1].run.session is session
    assert trainer.train() == (("cpu",), True)
    assert current() is None
