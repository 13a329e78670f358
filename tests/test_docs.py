"""The pages say what is so: generated parts are fresh, links lead somewhere, commands and code exist."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml

import yolo_rocm
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.seam import installed
from yolo_rocm.diagnosis import known_failures
from yolo_rocm.engines.triton import available
from yolo_rocm.errors import EvidenceError
from yolo_rocm.preset import moments
from yolo_rocm.preset.evidence import seal
from yolo_rocm.preset.schema import SECTIONS, Preset

from .certificates import certificate, write
from .conv.problems import Only
from .pages import PROJECT, Page, page, pages

pytestmark = pytest.mark.once

PAGES = pages()
IDS = [each.name for each in PAGES]
every_page = pytest.mark.parametrize("each", PAGES, ids=IDS)


@pytest.fixture(scope="module")
def generate():
    """The generator, imported as a script imports its neighbours."""
    spec = importlib.util.spec_from_file_location("generate", PROJECT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    before, dont = list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    yield module
    sys.path[:], sys.dont_write_bytecode = before, dont
    for name in [name for name in sys.modules if name == "making" or name.startswith("making.")]:
        del sys.modules[name]


def test_generated_pages_are_fresh(generate, capsys):
    code = generate.main(["--check"])
    assert (code, capsys.readouterr().out) == (0, "")


def test_a_stale_page_is_named_and_written(generate, capsys, monkeypatch, tmp_path):
    good = generate.filled((PROJECT / "docs" / "environment.md").read_text(encoding="utf-8"), generate.BLOCKS)
    stale = tmp_path / "environment.md"
    stale.write_text(good.replace("`YOLO_ROCM_CACHE`", "`YOLO_ROCM_HOARD`"), encoding="utf-8")
    monkeypatch.setattr(generate, "PROJECT", tmp_path)
    monkeypatch.setattr(generate, "pages", lambda: [stale])
    monkeypatch.setattr(generate, "FILES", {})
    assert generate.main(["--check"]) == 1
    assert "stale: environment.md" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert stale.read_text(encoding="utf-8") == good


def test_every_block_is_on_a_page_and_none_is_broken(generate):
    from making.blocks import BlockError, filled

    text = "".join(each.text for each in PAGES)
    assert set(re.findall(r"<!-- begin ([\w-]+)", text)) == set(generate.BLOCKS)
    for broken in (
        "<!-- begin no-such, made by docs/generate.py -->\n<!-- end no-such -->",
        "<!-- begin cards, made -->",
    ):
        with pytest.raises(BlockError, match=r"no-such|cards"):
            filled(broken, generate.BLOCKS)


def test_benchmarks_of_every_shape_are_shown(generate, tmp_path):
    """Layer by layer as `bench conv` writes them, summed as it sums; any other file as it is."""
    from making import picture
    from making.benchmarks import picture_rows, tables

    from yolo_rocm.bench.conv import Row, write_csv

    ways = {"vendor": 2.0, "vendor off": 8.0, "auto": 3.0, "unfold + matmul": 9.0, "planes": 1.0}
    rows = [Row("model.0", 2, "conv 3x3", "forward", way, ms, 1.0) for way, ms in ways.items()]
    name = "conv-yolov8n-fp32-nchw-b64-640.csv"
    write_csv(tmp_path / name, rows, "cpu", "yolo-rocm bench conv yolov8n.yaml engine=auto")
    measured = (tmp_path / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(re.sub(r"cpu-\d+-threads", "NVIDIA H200", measured), encoding="utf-8")
    (tmp_path / "train-h200.csv").write_text(
        "way,layout,step_ms,peak_mb,loss,device,torch,date,command\n"
        "stock,nchw,137.123456,9000,1.5,NVIDIA H200,2.11,2026-11-15,yolo-rocm bench train\n"
        "ours|all,nchw,150.5,9100,1.5,NVIDIA H200,2.11,2026-11-15,yolo-rocm bench train\n"
    )
    sums = (PROJECT / "docs/benchmarks/h200-conv-sums.csv").read_text(encoding="utf-8")
    (tmp_path / "h200-conv-sums.csv").write_text(sums, encoding="utf-8")
    text = tables(tmp_path)
    assert "| yolov8n | fp32 | nchw | 64 | 640 | 4.0 | 16.0 | 18.0 | `auto` | 6.0 | 1.50x |" in text
    assert f"[{name}](benchmarks/{name}): `yolo-rocm bench conv yolov8n.yaml engine=auto`" in text
    assert "device: NVIDIA H200; torch: 2.11; layout: nchw; date: 2026-11-15; command: `yolo-rocm bench train`" in text
    assert "| way | step ms | peak mb | loss |" in text
    assert "| stock | 137.1 | 9000 | 1.5 |" in text
    assert "| ours\\|all | 150.5 | 9100 | 1.5 |" in text
    drawn = dict(picture_rows(tmp_path)[0])
    assert drawn["yolov8n fp32"] == {"vendor": 4.0, "gemm": 90.7, "unfold + matmul": 18.0, "auto": 6.0}
    assert picture.convolutions(tmp_path).count("No AMD card was measured") == 1
    amd = (tmp_path / name).read_text(encoding="utf-8").replace("NVIDIA H200", "AMD Radeon RX 7900 XTX")
    (tmp_path / name).write_text(amd, encoding="utf-8")
    assert "No AMD card" not in picture.convolutions(tmp_path)
    assert dict(picture_rows(tmp_path)[0])["yolov8n fp32"]["gemm"] == 90.7
    assert drawn["yolov8n fp16"] == {"vendor": 18.7, "gemm": 30.7, "unfold + matmul": 166.0}


def test_rivals_of_a_benchmark_are_shown_below_it(generate, tmp_path):
    from making.benchmarks import conv_sums, tables

    from yolo_rocm.bench.conv import Row, write_csv

    rows = [Row("model.0", 2, shape, "forward", "auto", 3.0, 1.0) for shape in ("a", "b")]
    rows += [
        Row("model.0", 2, "a", "forward", "inductor", 6.0, None),
        Row("model.1", 2, "b", "forward", "inductor", None, None, "wrong", "forward is off by 1 of its size"),
        *(Row("model.0", 2, s, "backward", "flag_gems", None, None, "not runnable here", "No module") for s in "ab"),
    ]
    write_csv(tmp_path / "conv-yolov8n-fp32-nchw-b64-640.csv", rows, "cpu", "yolo-rocm bench conv", inductor="2.11")
    text = tables(tmp_path)
    assert "| yolov8n | fp32 | nchw | 64 | 640 | inductor | forward | 4 | 2 | 2 | 0 | 12.0 | 6.0 | 0.50x |" in text
    assert "| flag_gems | backward | 4 | 0 | 0 | 4 | not runnable here | - | - |" in text
    assert "- yolov8n fp32 nchw: inductor is wrong, forward of 2 layers: forward is off by 1 of its size" in text
    (sums,) = conv_sums(tmp_path)
    assert sums.ways == {"auto": 12.0}


def test_the_readme_fits_a_screen():
    assert len(PAGES[0].text.splitlines()) <= 100


@every_page
def test_relative_links_and_anchors_lead_somewhere(each: Page, generate):
    from making.markdown import slug

    known = {one.path: [slug(heading) for heading in one.headings] for one in PAGES}
    for link in each.links:
        if re.match(r"\w+:", link):
            assert link.startswith("https://"), link
            continue
        place, _, anchor = link.partition("#")
        target = (each.path.parent / place).resolve() if place else each.path
        assert target.exists(), f"{each.name}: {link}"
        if anchor:
            assert anchor in known[target], f"{each.name}: {link}"


@every_page
def test_files_that_are_named_exist(each: Page):
    for words in each.inline:
        ours = re.fullmatch(r"(yolo_rocm|configs|tests|examples|tools)/[\w./-]+", words)
        if ours and not re.search("NAME|ROOM", words):
            assert (PROJECT / words).exists(), f"{each.name}: {words}"


# A step of a walk: a module, and a name in it.
STEP = re.compile(r"^(?P<module>[\w/]+\.py) +(?P<name>[\w.]+)(?:\(\))?  ", re.MULTILINE)


def defines(module: Path, name: str) -> bool:
    """Return whether a module has a class, function or method of this name."""
    body = ast.parse(module.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            return False
        body = found[0].body
    return True


def test_the_walks_lead_through_modules_and_names_that_exist():
    steps = STEP.findall("\n".join(text for _, text in page(PROJECT / "docs" / "design.md").blocks))
    assert len(steps) > 40
    package = PROJECT / "yolo_rocm"
    assert [step for step in steps if not (package / step[0]).exists()] == []
    assert [step for step in steps if not defines(package / step[0], step[1])] == []
    assert not defines(package / "api" / "registration.py", "Registration.reregister")


def test_every_page_is_reached_from_the_readme():
    linked = {(PROJECT / link.partition("#")[0]).resolve() for link in PAGES[0].links if ":" not in link}
    folders = (PROJECT / "docs", PROJECT / "docs" / "start")
    assert {path.resolve() for folder in folders for path in folder.glob("*.md")} <= linked


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


def test_wrong_names_are_found():
    for text in ("yolo_rocm.trian()", "yolo_rocm.patched(engines='gemm')", "from yolo_rocm.conv.plan import Planer"):
        assert names_wrong(ast.parse(text))
    assert not names_wrong(ast.parse("yolo_rocm.train(anything=1); yolo_rocm.patched(engine='gemm')"))


def test_every_variable_of_ours_is_documented():
    told = {*moments.OWN, *moments.INTERNAL}
    used = set()
    for path in (PROJECT / "yolo_rocm").rglob("*.py"):
        if path.name != "variables.py":
            used |= set(re.findall(r"\bYOLO_ROCM(?:_[A-Z]+)*\b", path.read_text(encoding="utf-8")))
    assert used == told


EXTEND = next(each for each in PAGES if each.path.name == "extend.md")


def example(language: str, word: str) -> str:
    return next(text for kind, text in EXTEND.blocks if kind == language and word in text)


def test_the_preset_of_the_page_works(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CONFIG", str(tmp_path))
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "rx5300.yaml").write_text(example("yaml", "base: family/"), encoding="utf-8")
    preset = yolo_rocm.load_preset("rx5300")
    assert (preset.conv.engine, preset.train["batch"], preset.match.vram_gb) == ("gemm+hip", 4, 3)


@pytest.fixture(scope="module")
def einsum():
    """The algorithm of the page on extending."""
    space: dict[str, type] = {"__name__": "einsum"}
    exec(compile(example("python", "(Algorithm)"), "extend.md", "exec"), space)
    return space["Einsum"]


def test_the_algorithm_of_the_page_works(einsum):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, 5, 7), torch.randn(4, 3, 1, 1), torch.randn(4)]
    results = []
    for ours in (False, True):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        patch = Patch(("cpu",), Only(einsum()))
        if ours:
            with installed(patch):
                value = F.conv2d(*leaves)
                value.square().sum().backward()
            assert "einsum" in patch.report.table()
        else:
            value = F.conv2d(*leaves)
            value.square().sum().backward()
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for native, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, native)


def test_an_algorithm_more_is_on_the_page_of_engines(einsum, generate, monkeypatch):
    """Also one of an engine that is new, on a machine where it cannot run: that is no limit of the algorithm."""
    from making import engines

    class Elsewhere(einsum):
        engine = "triton"

        def not_supported_reasons(self, problem):
            return ["Triton is not installed", *super().not_supported_reasons(problem)]

    Elsewhere.__module__ = "yolo_rocm.conv.seam"
    monkeypatch.setattr(engines, "ALGORITHMS", (Elsewhere(), *engines.ALGORITHMS))
    assert "| `triton` | this package, in kernels that Triton compiles" in engines.engines()
    told = engines.algorithms()
    assert "### Engine `triton`\n\nThe seam: every convolution" in told
    assert "| `einsum` | A plain 1x1" in told
    limits = engines.limits()
    (row,) = [line for line in limits.splitlines() if line.startswith("| 1x1 |")]
    assert "`einsum`" in row
    assert "| `einsum` | not a plain 1x1; " in limits
    assert "not installed" not in limits


@pytest.mark.parametrize("reason", [None, "no Triton on a Sunday"])
def test_the_page_of_engines_is_the_same_on_every_machine(reason, generate, monkeypatch):
    from making import engines

    before = engines.algorithms() + engines.limits()
    assert "`triton_{s,m,l,xl}_turned`" in before
    monkeypatch.setattr(available, "missing_reason", lambda: reason)
    available.device_reason.cache_clear()
    try:
        if reason is not None:
            assert BY_NAME["triton_s"].not_supported_reasons(engines.PROBLEMS["3x3"]) == [reason]
        assert engines.algorithms() + engines.limits() == before
    finally:
        available.device_reason.cache_clear()


def test_the_signature_of_the_page_works():
    (entry,) = yaml.safe_load(example("yaml", "pattern:"))
    signature = known_failures.Signature.model_validate(entry)
    assert signature.id not in {known.id for known in known_failures.signatures()}
    assert signature.search(b"x\nMIOpen Error: conv.cpp:7: no such solver\n")


EXECUTED = (
    "target,kernel,dtype,error,instructions,relative_error\n"
    "gfx1010,forward,fp32,,5,1e-7\ngfx1030,forward,fp32,,5,1e-7\ngfx1151,forward,fp32,,5,1e-7\n"
)


@pytest.fixture
def sent(generate, tmp_path, monkeypatch):
    """Return a function that makes certificates the only evidence there is; generators see them too."""
    from yolo_rocm.preset import evidence

    monkeypatch.setattr(evidence, "config_root", lambda: tmp_path)
    (tmp_path / "compiled.csv").write_text(EXECUTED, encoding="utf-8")

    def send(**certificates):
        for name, data in certificates.items():
            write(tmp_path / "evidence", f"{name}.json", data)

    return send


def last_cells(table: str) -> dict[str, str]:
    """Return the last cell of each row by its first."""
    rows = (line.strip("| ").split(" | ") for line in table.splitlines()[2:])
    return {row[0]: row[-1] for row in rows}


def test_evidence_gets_into_the_table_of_cards_and_the_page_of_what_was_run(sent, tmp_path):
    from making.evidence import certificates
    from making.presets import cards

    h200 = certificate("nvidia", "NVIDIA H200", None, 140.0, preset="generic")
    strix = certificate(name="Radeon 8060S", gfx="gfx1151", failed=("kernels",), preset="strixhalo", date="2026-12-01")
    sent(h200=h200, strix=strix, quick=certificate(quick=True))
    told = {row: cell for row, cell in last_cells(cards(tmp_path)).items() if cell != "no"}
    assert told == {  # not RDNA3, not Any AMD GPU
        "RDNA3.5: inside Ryzen AI processors": "[Radeon 8060S failed (1 file)](docs/tested.md#certified-cards)",
        "Any NVIDIA GPU": "[NVIDIA H200, with our engines, passed (1 file)](docs/tested.md#certified-cards)",
    }
    lines = certificates().splitlines()[2:]
    assert [line.split(" | ")[2] for line in lines] == ["2026-12-01", "2026-11-16", "2026-11-16"]
    assert "[Radeon 8060S](../configs/evidence/strix.json) | `gfx1151` | 2026-12-01" in lines[0]
    assert "a quick run, which proves nothing" in lines[2]


def test_many_files_of_a_card_are_few_words_in_the_table_of_cards(sent, tmp_path):
    from making.presets import cards

    other = certificate(preset="cpu", date="2026-12-03")  # not with a preset of this family
    failed = certificate(failed=("kernels",), presents_as="gfx1030")
    sent(a=certificate(), b=certificate(date="2026-12-01"), c=failed, d=other)
    link = "(docs/tested.md#certified-cards)"
    told = f"[Radeon RX 5600 XT passed (2 files)]{link}, [Radeon RX 5600 XT as gfx1030 failed (1 file)]{link}"
    assert last_cells(cards(tmp_path))["RDNA1: RX 5000"] == told
    assert "## Certified cards" in (PROJECT / "docs" / "tested.md").read_text(encoding="utf-8")


def test_only_right_kernels_of_triton_have_run_on_a_card(sent, tmp_path):
    from making.compiled import rungs

    sent(
        a=certificate(presents_as="gfx1030"),
        b=certificate(triton=False),
        c=certificate(name="Radeon 8060S", gfx="gfx1151", failed=("kernels",), preset="strixhalo"),
    )
    assert last_cells(rungs(tmp_path)) == {
        "`gfx1010`": "no",
        "`gfx1030`": "Radeon RX 5600 XT as gfx1030",
        "`gfx1151`": "no",
    }


def test_text_of_strangers_is_no_markup(sent, tmp_path):
    from making.compiled import rungs
    from making.evidence import certificates
    from making.presets import cards, families

    said = "x](https://evil.example) <img src=x> ![y](z) `` \\|"
    shown = "x\\](https://evil.example) \\<img src=x\\> !\\[y\\](z) \\`\\` \\\\\\|"
    nvidia = certificate("nvidia", said, None, 8.0)
    parts = {name: {**part, "summary": said} for name, part in nvidia["parts"].items()}
    stack = {key: said if isinstance(value, str) else value for key, value in nvidia["stack"].items()}
    texts = {"parts": parts, "stack": stack, "verdict": {"passed": True, "text": said}}
    sent(amd=certificate(name=said), nvidia=seal({**nvidia, **texts}))
    for made in (cards(tmp_path), certificates(), rungs(tmp_path), families()):
        assert shown in made
        assert said.replace("|", "\\|") not in made
        assert "<img" not in made.replace("\\<img", "")
        assert "](https" not in made.replace("\\](https", "")


@pytest.mark.parametrize(
    ("text", "shown"), [("a", "`a`"), ("a `b`", "`` a `b` ``"), ("``` <b>", "```` ``` <b> ````")], ids=str
)
def test_code_cannot_be_left(text, shown, generate):
    from making.markdown import code

    assert code(text) == shown


def test_no_page_is_made_from_an_edited_file(sent, tmp_path):
    from making.evidence import certificates
    from making.presets import cards

    sent(mine={**certificate(), "date": "2027-01-01"})
    for maker in (certificates, lambda: cards(tmp_path)):
        with pytest.raises(EvidenceError, match=r"mine\.json was edited"):
            maker()
