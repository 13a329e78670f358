"""The pages for newcomers: steps in order, and the script that follows them in CI."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader

import pytest

from .pages import PROJECT
from .tables import each_row

pytestmark = pytest.mark.once
START = sorted((PROJECT / "docs" / "start").glob("*.md"))
every_page = pytest.mark.parametrize("path", START, ids=[path.stem for path in START])


@pytest.fixture(scope="module")
def script():
    """The script `.ci/follow`, imported."""
    loader = SourceFileLoader("follow", str(PROJECT / ".ci" / "follow"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("follow", loader))
    dont, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = dont
    return module


@each_row("path", [PROJECT / "README.md", *START], ids=lambda path: path.stem)
def test_what_no_amd_card_has_run_is_said_before_anything_is_typed(path):
    top = path.read_text(encoding="utf-8").partition("```")[0]
    assert re.search(r"^No AMD card has run (it|this) yet\. ", top, re.MULTILINE)


@every_page
def test_ci_follows_the_page_with_its_card(path, script):
    from yolo_rocm.preset.files import find

    text = path.read_text(encoding="utf-8")
    (card,) = script.CARD.findall(text)
    assert find(card)
    names = [name for kind, name, _ in script.blocks(text, None) if kind == "commands"]
    assert {"install", "doctor", "demo"} <= set(names)
    assert f"docs/start/{path.name}" in (PROJECT / ".ci" / "run").read_text(encoding="utf-8")


@every_page
def test_numbers_of_a_page_are_those_of_its_preset_and_of_ci(path, script):
    import yolo_rocm

    text = " ".join(path.read_text(encoding="utf-8").split())
    (card,) = script.CARD.findall(path.read_text(encoding="utf-8"))
    told = re.findall(r"preset's batch(?: for 640 px is|,) (\d+)", text)
    assert told == ([str(yolo_rocm.load_preset(card).train["batch"])] if "preset's batch" in text else [])
    old = path.stem == "rx5600xt"
    constraints = (PROJECT / ".ci" / f"constraints{'-torch1' * old}.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^torch==([\d.]+)", constraints, re.MULTILINE)
    assert f"CPU wheels of torch {version if old else version.rpartition('.')[0]} in place of AMD's" in text


def test_what_stands_in_for_index_and_powershell(script, monkeypatch):
    monkeypatch.setattr(script, "SETUP", "yolo-rocm")  # as on x86-64
    typed = script.as_typed(r".venv-setup\Scripts\yolo-rocm setup --run", "RX 7900 XTX")
    assert typed[0] == '.venv-setup/bin/yolo-rocm setup --card "RX 7900 XTX" > setup.sh'
    on_arm = f'python -c "{script.ON_X86}"'
    monkeypatch.setattr(script, "SETUP", on_arm)
    assert script.as_typed(".venv-setup/bin/yolo-rocm setup", "x") == [f'.venv-setup/bin/{on_arm} setup --card "x"']
    assert script.as_typed("py -3.12 -m venv .venv", "x") == ["python3.12 -m venv .venv"]
    wheels = (
        'pip install --index-url https://repo.amd.com/x/ "torch[device-gfx1,device-gfx2]" "torchvision[device-gfx1]"'
    )
    assert script.with_stand_ins(wheels) == "pip install torch torchvision"
    old = 'pip install --extra-index-url https://x/y "numpy<2" torch==1.13.1+rocm5.2 torchvision==0.14.1+rocm5.2'
    assert script.with_stand_ins(old) == 'pip install "numpy<2" torch==1.13.1 torchvision==0.14.1'
    other = '.venv/bin/pip install ".[ultralytics,torch1]"'
    assert script.with_stand_ins(other) == other


PAGE = """
<!-- card: RX 5600 XT -->
1. **A**

   <!-- commands: one -->
   ```bash
   echo one >> log
   # yolo-rocm demo
   ```

   <!-- file: a.py -->
   ```python
   if True:
       print(1)
   ```

<!-- commands: two -->
```bash
echo one >> log
echo two >> log
false
echo three >> log
```

```bash
echo never >> log
```
"""


def test_lines_run_once_and_a_failure_ends_it(script, tmp_path, capfd):
    clone, page = tmp_path / "clone", tmp_path / "page.md"
    clone.mkdir()
    page.write_text(PAGE)
    done: list[str] = []
    script.follow(clone, f"{page}:one", False, done)
    with pytest.raises(SystemExit, match="exit code 1: false"):
        script.follow(clone, str(page), False, done)
    assert (clone / "log").read_text() == "one\ntwo\n"
    assert (clone / "a.py").read_text() == "if True:\n    print(1)\n"
    with pytest.raises(SystemExit, match="no block has a mark"):
        script.follow(clone, f"{page}:three", False, done)
    assert "$ echo one >> log" in capfd.readouterr().out
