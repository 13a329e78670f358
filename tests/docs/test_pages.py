"""The pages say what is so: generated parts are fresh, links and walks lead somewhere, examples work."""

from __future__ import annotations

import ast
import re
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
from yolo_rocm.preset import moments

from ..conv.problems import Only
from ..pages import PROJECT, Page, page, pages
from ..tables import each_row

pytestmark = pytest.mark.once

PAGES = pages()
every_page = each_row("each", PAGES, ids=lambda each: each.name)


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
    from making.benchmarks import picture_rows, tables
    from making.picture_convolutions import convolutions

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
    assert convolutions(tmp_path).count("No AMD card was measured") == 1
    amd = (tmp_path / name).read_text(encoding="utf-8").replace("NVIDIA H200", "AMD Radeon RX 7900 XTX")
    (tmp_path / name).write_text(amd, encoding="utf-8")
    assert "No AMD card" not in convolutions(tmp_path)
    assert dict(picture_rows(tmp_path)[0])["yolov8n fp32"]["gemm"] == 90.7
    assert drawn["yolov8n fp16"] == {"vendor": 18.7, "gemm": 30.7, "unfold + matmul": 166.0}


def test_the_picture_of_steps_shows_what_the_preset_runs_in_its_faster_layout(generate, tmp_path):
    from making.picture_steps import FILE, step_rows, steps

    ways = {
        "stock channels_last": (1.0, 1.0),
        "ours NCHW": (0.9, 0.5),
        "ours channels_last": (0.65, 0.75),
        "ours lean channels_last": (0.7, 0.45),
        "ours + graph channels_last": (0.5, 0.95),
        "stock + compile NCHW": (1.25, 0.8),
    }
    lines = [
        f"{model},{precision},{batch},{way},{time},{peak},NVIDIA H200,2.11,2026-11-{day}"
        for model, precision, batch, day in (("b", "AMP", 8, 18), ("a", "AMP", 64, 17), ("b", "fp32", 64, 18))
        for way, (time, peak) in ways.items()
        if "compile" not in way or batch == 8
    ]
    head = "model,precision,batch,way,to_stock,peak_to_stock,device,torch,date"
    (tmp_path / FILE).write_text("\n".join([head, *lines]), encoding="utf-8")
    found = step_rows(tmp_path)
    assert [name for name, _ in found] == ["b fp32, 64 images", "b AMP, 8 images", "a AMP, 64 images"]
    ours = {"to_stock": 0.65, "peak_to_stock": 0.75}
    assert [ratios["ours"] for _, ratios in found] == [ours] * 3
    assert [list(ratios) for _, ratios in found] == [
        ["ours", "ours lean"],
        ["ours", "ours lean", "stock + compile"],
        ["ours", "ours lean"],
    ]
    drawn = steps(tmp_path)
    assert drawn.count("<circle") == 3 + 2 * 7
    assert [drawn.count(f">{figure}<") for figure in ("0.65", "0.75", "0.45", "1.25", "0.90", "0.95")] == [
        3,
        3,
        3,
        1,
        0,
        0,
    ]
    assert "NVIDIA H200, torch 2.11, 2026-11-17 to 2026-11-18. No AMD card was measured." in drawn


def test_labels_of_points_do_not_touch(generate):
    from making.picture import Spot, dots

    drawn = dots(100, [Spot(x, str(x), "ours") for x in (30, 10, 20, 50)])
    labels = [re.search(r'x="([\d.]+)" y="([\d.]+)".*>(\d+)<', part).groups() for part in drawn if "<text" in part]
    assert labels == [("10.0", "89.0", "10"), ("20.0", "120.0", "20"), ("50.0", "120.0", "30"), ("50.0", "89.0", "50")]


def test_the_readme_fits_a_screen():
    lines = PAGES[0].text.splitlines()
    assert next(number for number, line in enumerate(lines) if line.startswith("|")) <= 60
    assert len(lines) <= 110


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
