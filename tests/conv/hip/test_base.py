"""What engine hip does to tensors before its kernels read them."""

import pytest
import torch

from yolo_rocm.conv.hip.base import readable


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
def test_a_part_of_the_channels_is_copied_in_the_layout_of_the_whole(layout):
    """Else kernels for channels_last would read NCHW, channel by channel."""
    whole = torch.randn(2, 16, 6, 8).contiguous(memory_format=layout)
    part = whole[:, 4:12]
    found = readable(part)
    assert torch.equal(found, part)
    assert found.stride() == part.contiguous(memory_format=layout).stride()
    assert readable(whole) is whole
