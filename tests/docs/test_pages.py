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

from ..conv.problems import Only
from ..pages import PROJECT, Page, page, pages
from ..tables import each_row

pytestmark = pytest.mark.once

PAGES = pages()
every_page = each_row("each", PAGES, ids=lambda each: each.name)


def test_generated_pages_are_fresh(generate, capsys):
    code = generate.main(["--check"])
    assert (code, capsys.readouterr().out) == (0, "")


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


def test_every_variable_of_ours_is_documented(generate):
    from making.environment import INTERNAL, OWN

    told = {*OWN, *INTERNAL}
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
