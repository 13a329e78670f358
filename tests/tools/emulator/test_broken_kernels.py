"""A kernel that is wrong in Python, at one edge of the image, is caught on a target of every family."""

from __future__ import annotations

import pytest

from tools.emulator import EmulationError
from yolo_rocm.engines.triton.available import missing_reason

from ...pages import PROJECT
from .compiled import Compiled, Wanted, compile_all

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]
KERNELS = PROJECT / "yolo_rocm" / "conv" / "triton" / "kernels" / "implicit_gemm.py"
# The pixel right of the last column is not left out; the first tap is where the second should be.
BROKEN = {"broken_edge": ("(ix < src_w)", "(ix <= src_w)"), "broken_padding": ("KW, SW, PW, DW", "KW, SW, PW - 1, DW")}
FAMILIES = ("gfx1010", "gfx1100", "gfx942")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[tuple[str, str], Compiled]:
    folder = tmp_path_factory.mktemp("broken")
    # Outside of the package, where names relative to it mean nothing.
    source = KERNELS.read_text(encoding="utf-8").replace("from ....", "from yolo_rocm.")
    for name, (right, wrong) in BROKEN.items():
        assert right in source
        (folder / f"{name}.py").write_text(source.replace(right, wrong), encoding="utf-8")
    keys = [(target, module) for target in FAMILIES for module in ("", *BROKEN)]
    wanted = [Wanted(target, "fp32", (16, 16, 16, 1, 1), module=module) for target, module in keys]
    return dict(zip(keys, compile_all(folder, wanted), strict=True))


@pytest.mark.parametrize("target", FAMILIES)
def test_the_real_kernel_is_right(compiled, target):
    kernel = compiled[target, ""]
    assert kernel.error() <= kernel.allowed


@pytest.mark.parametrize("target", FAMILIES)
def test_a_pixel_too_many_at_the_right_edge_is_caught(compiled, target):
    """It is the first one of the next row, and in the last row it is outside of the image."""
    with pytest.raises(EmulationError, match=r"out of bounds: reads \d+ bytes at tensor 0\+"):
        compiled[target, "broken_edge"].error()


@pytest.mark.parametrize("target", FAMILIES)
def test_padding_off_by_one_is_caught(compiled, target):
    """Every address is inside of the image: only the values are wrong."""
    assert compiled[target, "broken_padding"].error() > 0.1
