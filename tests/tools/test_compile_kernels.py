"""Every Triton kernel with every curated tile, compiled for AMD cards that are not there, by a process of its own."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from tools.kernel import DTYPES, TARGETS
from yolo_rocm.engines.triton.available import FMA, MFMA, WMMA, amd_family, missing_reason

from ..pages import PROJECT
from ..thinning import deep_but
from .child import python
from .samples import ROTATION, listed, sample

pytestmark = pytest.mark.once
with_triton = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))
GEMMS = {"forward", "grad_input", "grad_weight", "grad_weight_rows", "forward_flat"}


# Of all curated kernels those that are asked for: target, kernel, tile, dtype and layout of each.
CHOSEN = """
import json, sys
from tools import compile_kernels
every, chosen = compile_kernels.curated, {tuple(row) for row in json.loads(sys.argv.pop(1))}
compile_kernels.curated = lambda target, dtype, last: (
    kernel
    for kernel in every(target, dtype, last)
    if (target, kernel.name, kernel.tile, dtype, kernel.layout) in chosen
)
sys.exit(compile_kernels.main())
"""


def compile_them(tmp_path: Path, wanted: list[tuple[str, ...]]) -> list[dict[str, str]]:
    words = [*dict.fromkeys(target for target, *_ in wanted), "--workers", "1"]  # tests side by side have the cores
    done = python(tmp_path, CHOSEN, json.dumps(wanted), *words)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert done.returncode == 0, (done.stderr[-2000:], [row for row in rows if row["error"] or row["spills"] != "0"])
    return rows


def check(rows: list[dict[str, str]]) -> None:
    for row in rows:
        assert (row["error"], row["spills"]) == ("", "0"), row
        assert int(row["scalar_spills"]) <= 16, row  # a few lanes of vector registers
        assert int(row["occupancy"]) >= 2, row
        assert 4 <= int(row["registers"]) <= 256, row
        assert set(row["multiplies_by"].split()) <= multipliers(row["target"], row["dtype"], row["kernel"]), row
        if row["kernel"] in GEMMS or row["kernel"].startswith("depthwise"):
            assert row["multiplies_by"], row
        if row["target"] == "gfx1030" and row["dtype"] == "fp32":
            assert row["also_legal_on"] == "gfx1010", row


def multipliers(target: str, dtype: str, kernel: str) -> set[str]:
    """Return the instructions a kernel may multiply by: matrix units where a card has them for this data type."""
    family = amd_family(target)
    if kernel in GEMMS and family == MFMA:
        return {"v_mfma"}
    if kernel in GEMMS and family == WMMA and dtype != "fp32":
        return {"v_wmma"}
    # Half precision too: it is widened before the dot product, and v_dot2 is not on every card of the family.
    return {"v_fmac", "v_fma"} | {FMA: set(), WMMA: {"v_dual_fmac"}, MFMA: {"v_pk_fma"}}[family]


def names(rows) -> list[tuple[str, ...]]:
    return [tuple(row[key] for key in ("target", "kernel", "tile", "dtype", "layout")) for row in rows]


@with_triton
@pytest.mark.parametrize("later", deep_but(range(8), 0))
def test_every_kernel_compiles(tmp_path, later):
    """Each for one target and each target for some: a sample that changes from day to day; the page has them all."""
    wanted = sample(ROTATION + later)
    rows = compile_them(tmp_path, wanted)
    assert sorted(names(rows)) == sorted(wanted), f"YOLO_ROCM_ROTATION={ROTATION + later}"
    check(rows)


NOT_WIDENED = """
import json, torch
from tools import compile_kernels, kernel_assembly
from tools.kernel import Kernel
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton.tiles import tiles
from yolo_rocm.engines.triton.available import FMA
layer = next(compile_kernels.curated("gfx1030", "fp16", True)).problem
x, y, weight = (calls.strides(s, True) for s in (layer.input_shape, layer.output_shape, layer.weight_shape))
found = {}
for upcast in (True, False):
    tile = tiles(FMA, True).gather["m"]
    call = calls.gather_gemm(layer, x, weight, y, False, tile, calls.Dot(upcast=upcast), back=False)
    kernel = Kernel("forward", "m", "fp16", "nhwc", call, (torch.float16,) * 4, layer)
    text, _ = kernel_assembly.assembly(kernel, "gfx1030")
    found[str(upcast)] = kernel_assembly.multiplier(text), kernel_assembly.assembles_for(text, "gfx1030", "gfx1010")
    found[str(upcast)] += (compile_kernels.build([(kernel, "gfx1030")])[0]["also_legal_on"],)
print(json.dumps(found))
"""


@with_triton
def test_half_precision_that_is_not_widened_would_be_illegal_on_gfx1010(tmp_path):
    """The check of legality can fail: gfx1030 multiplies half precision by an instruction that gfx1010 lacks."""
    done = python(tmp_path, NOT_WIDENED)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    multiplies, why, also = found["False"]
    assert "v_dot2" in multiplies
    assert why is not None
    assert also == ""
    multiplies, why, also = found["True"]
    assert "v_dot2" not in multiplies
    assert (why, also) == (None, "gfx1010")


ABORTING = """
import os, sys
from tools import compile_kernels
real = compile_kernels.assembly
def assembly(kernel, target):
    if kernel.name == "forward":
        os.abort()
    if kernel.name == "grad_input":
        raise NotImplementedError("cannot select")
    if kernel.name == "transpose":
        lines = (".vgpr_count: 24", ".vgpr_spill_count: 3", ".sgpr_spill_count: 2", "; Occupancy: 9", "  v_wmma_f32 v0")
        return "\\n".join(lines), 512
    lines = (".vgpr_count: 24", ".vgpr_spill_count: 0", "; Occupancy: 16", *["  v_fmac_f32 v0"] * 2, "  v_fma_f32 v1")
    return "\\n".join(lines), 0
compile_kernels.assembly = assembly
compile_kernels._load_compiler = lambda: None
compile_kernels.version = lambda name: "made up"
sys.argv = ["compile_kernels", "gfx1100", "--dtypes", "fp32", "--layouts", "nhwc", "--workers", "2"]
sys.exit(compile_kernels.main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="compiles in forked processes")
def test_a_compiler_that_dies_is_an_error_in_the_table(tmp_path):
    done = python(tmp_path, "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))" + ABORTING)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert names(rows) == listed(["gfx1100"], ["fp32"], ["nhwc"])
    by_name = {row["kernel"]: row for row in rows}
    assert done.returncode == 1
    assert by_name["forward"]["error"] == "the process died with exit code -6"
    assert by_name["grad_input"]["error"] == "NotImplementedError: cannot select"
    transpose = by_name["transpose"]
    numbers = ("registers", "spills", "scalar_spills", "occupancy", "lds_bytes", "multiplies_by")
    assert [transpose[key] for key in numbers] == ["24", "3", "2", "9", "512", "v_wmma"]
    assert [by_name["sum_partials"][key] for key in numbers] == ["24", "0", "0", "16", "0", "v_fmac v_fma"]


def test_the_page_shows_the_tiles_of_today():
    """A tile that changes is to be compiled again: `python tools/compile_kernels.py > FILE`."""
    with (PROJECT / "docs" / "compiled.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert names(rows) == listed(TARGETS, DTYPES, ("nhwc", "nchw"))
    check(rows)
