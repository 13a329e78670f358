"""`yolo-rocm run`: a script sees of its process what Python alone shows it, and its YOLO is under the preset."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import yolo_rocm
from yolo_rocm.api import everywhere
from yolo_rocm.cli import main
from yolo_rocm.launch import run_script
from yolo_rocm.launch.import_hook import AfterImport
from yolo_rocm.preset import restart

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
__import__("atexit").register(print, "at exit")
raise ValueError("wrong")
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


@pytest.mark.parametrize("target", [("package/inner.py",), ("-mpackage",), ("-",)], ids="_".join)
def test_a_target_sees_what_python_alone_shows_it_and_ends_as_there(folder, target):
    """Arguments, path, `__main__`, flags, standard input, signals; and nothing is imported ahead of it."""
    given = FACTS if target == ("-",) else "passed through"
    code, printed, complained = both(folder, *target, *WORDS, given=given)
    facts = json.loads(printed.splitlines()[0])
    # Exit code, output and traceback are the same to the letter; what is to happen at exit happens.
    assert (code, printed.splitlines()[1], "ValueError: wrong" in complained) == (1, "at exit", True)
    assert "yolo_rocm" not in complained
    # Some systems come with a sitecustomize; that it is there for both has been compared.
    assert (facts["argv"][1:], [name for name in facts["heavy"] if name != "sitecustomize"]) == (list(WORDS), [])
    assert facts["name"] == "__main__"


SPAWNING = """
import multiprocessing, sys

def work(number):
    follows = any(type(finder).__name__ == "AfterImport" for finder in sys.meta_path)
    return number * 2, __name__, sys.argv[1:], follows, sys.mine

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(work, [21]))
"""


def test_spawned_children_find_their_main_module_and_the_preset_beside_the_users_sitecustomize(tmp_path):
    write(tmp_path / "spawning.py", SPAWNING)
    write(tmp_path / "site/sitecustomize.py", "import sys\nsys.mine = 1\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(PROJECT)])
    code, printed, complained = run(OURS, "spawning.py", "spawn", cwd=tmp_path, PYTHONPATH=path)
    assert code == 0, complained
    assert eval(printed) == [(42, "__mp_main__", ["spawn"], True, 1)]


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
    # A Python of another environment is left alone.
    variables = {**run_script.environment("cpu", None), run_script.RUN_VARIABLE: "/somewhere/else"}
    assert run(PLAIN, "tell.py", "again", cwd=tmp_path, **variables)[1].splitlines() == ["None None False"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("facs.py",), 1, "there is no script 'facs.py'"),
        (("--rocm", "conv.engin=gemm", "facts.py"), 1, "did you mean 'engine'"),
        (("-m",), 2, "give a module after -m"),
        ((), 2, "Missing argument"),
    ],
)
def test_mistakes(folder, words, code, text, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["yolo-rocm", "run", *words])
    monkeypatch.setattr(restart, "become", lambda *_: pytest.fail("it has started something"))
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == code
    assert text in capsys.readouterr().err


def test_options_of_python_go_along_and_those_that_keep_the_preset_out_are_refused(folder):
    write(folder / "script.py", "import sys\nprint(sys.flags.optimize, sys.warnoptions)\n")
    command = [sys.executable, "-O", "-Wdefault", "-um", *OURS[2:]]
    assert run(command, "script.py", cwd=folder)[1] == "1 ['default']\n"
    places = [str(PROJECT), *(place for place in sys.path if place.endswith("-packages"))]
    done = run([sys.executable, "-S", "-m", *OURS[2:]], "script.py", cwd=folder, PYTHONPATH=os.pathsep.join(places))
    assert (done[0], "-I, -E and -S keep the preset out" in done[2]) == (1, True)


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
    arguments = [f"model={best}", f"source={image}", "imgsz=32", "device=cpu", "conf=0.00001", "save_txt"]
    words = ("yolo", "detect", "predict", *arguments, f"project={folder}")
    path = os.pathsep.join([str(folder / "site"), str(PROJECT)])
    code, printed, complained = run(OURS, *SERVED_BY_US, *words, cwd=folder, PYTHONPATH=path, **as_a_user())
    assert code == 0, complained
    assert "Results saved to" in printed
    (labels,) = folder.rglob("predict*/labels/*.txt")
    (stock,) = YOLO(best).predict(image, imgsz=32, device="cpu", conf=0.00001, verbose=False)
    assert len(labels.read_text().splitlines()) == len(stock.boxes) > 0


def test_a_second_model_within_a_registered_run_is_under_the_same_preset(made_data):
    """As the one of the AMP check is; `everywhere` is for what runs on its own."""
    from ultralytics import YOLO
    from ultralytics.engine.model import Model
    from ultralytics.engine.predictor import BasePredictor
    from ultralytics.engine.trainer import BaseTrainer
    from ultralytics.engine.validator import BaseValidator

    from ..session.test_training import an_image

    image, seen = an_image(made_data()), []
    predict = {"imgsz": 32, "device": "cpu", "verbose": False}
    first, second = YOLO(small_model()), YOLO(small_model())
    handle = yolo_rocm.register(first, "cpu", {"conv": {"engine": "gemm", "devices": ["cpu"]}})
    first.add_callback("on_predict_end", lambda _: seen.append(second.predict(image, **predict)))
    watched = [(Model, "train"), (BaseTrainer, "__init__"), (BaseValidator, "__call__"), (BasePredictor, "__call__")]
    before = [getattr(owner, name) for owner, name in watched]
    with everywhere("cpu", {"conv": {"engine": "aten", "devices": ["cpu"]}}) as session:
        assert all(getattr(owner, name) is not was for (owner, name), was in zip(watched, before, strict=True))
        first.predict(image, **predict)
        assert len(seen) == 1
        assert session.report is None
        assert set(handle.report.engines()) == {"gemm"}
        second.predict(image, **predict)
        assert set(session.report.engines()) == {"aten"}
    assert [getattr(owner, name) for owner, name in watched] == before
