"""Commands and code on pages: every command, argument and name in them exists."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import yaml

import yolo_rocm
from yolo_rocm.preset.schema import SECTIONS, Preset

from ..pages import PROJECT, Page, page, pages
from ..tables import each_row

pytestmark = pytest.mark.once
PAGES = pages()
every_page = each_row("each", PAGES, ids=lambda each: each.name)


@pytest.fixture(scope="module")
def command_line(generate):
    from making.commands import all_commands

    return dict(all_commands())


@pytest.fixture(scope="module")
def ultralytics_keys():
    """Arguments of Ultralytics from its file: importing it takes seconds."""
    (place,) = importlib.util.find_spec("ultralytics").submodule_search_locations
    return set(yaml.safe_load((Path(place) / "cfg" / "default.yaml").read_text(encoding="utf-8")))


def mistake(words: list[str], command_line, ultralytics_keys) -> str | None:
    """Return what is wrong with a command line of this package, or None."""
    words = [word for word in words if word not in ("...", "[...]")]
    if not words or words[0] in ("--help", "--version", "COMMAND"):
        return None
    size = 2 if " ".join(words[:2]) in command_line else 1
    name = " ".join(words[:size])
    if name not in command_line:
        groups = {command.split()[0] for command in command_line}
        return None if size == len(words) and name in groups else f"no command {name!r}"
    parameters = command_line[name].params
    options = {option: p for p in parameters for option in (*p.opts, *p.secondary_opts) if option.startswith("--")}
    metavar = " ".join(p.metavar or "" for p in parameters if p.param_type_name == "argument")
    own = set(re.findall(r"\[(\w+)=", metavar))
    allowed = ultralytics_keys | {"preset", "engine"} if own == {"key"} else own
    rest = words[size:]
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            option = options.get(word.partition("=")[0])
            if option is None and word != "--help":
                return f"{name} has no option {word}"
            if word == "--rocm" and (wrong := unknown_key(f"rocm.{rest[0].partition('=')[0]}")):
                return wrong
            if option is not None and "=" not in word and not option.is_flag:
                rest.pop(0)
        elif name == "run":
            return None  # everything from the target on is its own
        elif "=" in word:
            key = word.partition("=")[0]
            if key.startswith("rocm."):
                if wrong := unknown_key(key):
                    return wrong
            elif key not in allowed:
                return f"{name} has no key {key}"
    return None


def unknown_key(key: str) -> str | None:
    _, section, *names = key.split(".")
    if section == "SECTION":
        return None
    if section not in SECTIONS:
        return f"no section {section}"
    model = Preset.model_fields[section].annotation
    fields = getattr(model, "model_fields", None)
    return None if fields is None or (names and names[0] in fields) else f"no key {key}"


@every_page
def test_commands_exist(each: Page, command_line, ultralytics_keys):
    wrong = [(words, said) for words in each.commands if (said := mistake(words, command_line, ultralytics_keys))]
    assert not wrong, each.name


@pytest.mark.parametrize(
    ("name", "required"), [("failure", {"bundle", "command", "output"}), ("card", {"card", "certificate"})]
)
def test_an_issue_asks_for_what_our_commands_write(name, required, command_line, ultralytics_keys):
    form = page(PROJECT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert [mistake(words, command_line, ultralytics_keys) for words in form.commands] == [None] * len(form.commands)
    assert ["doctor", "--bundle", "report.md"] in form.commands
    asked = [part for part in yaml.safe_load(form.text)["body"] if part.get("validations", {}).get("required")]
    assert {part["id"] for part in asked} == required


def test_commands_are_found_and_mistakes_too(command_line, ultralytics_keys, tmp_path):
    """The check itself: what it reads out of a page, and that it knows a wrong word of each kind."""
    assert sum(len(each.commands) for each in PAGES) > 60
    text = (
        "```bash\n.venv/bin/yolo-rocm demo\nx && yolo-rocm train data=a.yaml  # comment\n# yolo-rocm nothing\n"
        "torchrun -m yolo_rocm val model=m.pt | tee log\n```\n`yolo-rocm\nbench conv`\n"
    )
    (tmp_path / "page.md").write_text(text)
    read = page(tmp_path / "page.md").commands
    assert read == [["demo"], ["train", "data=a.yaml"], ["val", "model=m.pt"], ["bench", "conv"]]
    for line, said in (
        ("trian data=a.yaml", "no command 'trian'"),
        ("bench nothing x", "no command 'bench'"),
        ("doctor --jsonn", "doctor has no option --jsonn"),
        ("train epoch=3", "train has no key epoch"),
        ("train rocm.convs.engine=gemm", "no section convs"),
        ("train rocm.conv.engin=gemm", "no key rocm.conv.engin"),
        ("run --rocm conv.engin=gemm train.py", "no key rocm.conv.engin"),
        ("tune yolov8n.yaml epochs=3", "tune has no key epochs"),
        ("run train.py --any thing=1", None),
        ("bench", None),
        ("doctor --no-probes --bundle report.md", None),
    ):
        assert mistake(line.split(), command_line, ultralytics_keys) == said


def names_wrong(tree: ast.AST) -> list[str]:
    """Return what code takes from this package and does not find there."""
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "yolo_rocm":
            module = importlib.import_module(node.module)
            wrong += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
        if is_ours(node) and not hasattr(yolo_rocm, node.attr):
            wrong.append(f"yolo_rocm.{node.attr}")
        if isinstance(node, ast.Call) and is_ours(node.func) and hasattr(yolo_rocm, node.func.attr):
            wrong += keywords_wrong(node)
    return wrong


def is_ours(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yolo_rocm"


def keywords_wrong(call: ast.Call) -> list[str]:
    parameters = inspect.signature(getattr(yolo_rocm, call.func.attr)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    return [f"{call.func.attr}({keyword.arg}=)" for keyword in call.keywords if keyword.arg not in parameters]


@every_page
def test_code_compiles_and_names_what_exists(each: Page):
    for language, text in each.blocks:
        if language == "python":
            tree = compile(text, each.name, "exec", ast.PyCF_ONLY_AST)
            assert not names_wrong(tree)
        elif language == "yaml":
            assert yaml.safe_load(text) is not None
        else:
            assert language in ("bash", "powershell", "text")
    for words in each.inline:
        for name in re.findall(r"(?<![\w/.])yolo_rocm\.(\w+)(?=\()", words):
            assert hasattr(yolo_rocm, name), words
