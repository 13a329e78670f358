"""Which tensors torch takes for channels_last."""

from __future__ import annotations

import itertools

import torch

from yolo_rocm.engines.layout import suggests_channels_last

from ..tables import each_row


def of_torch(x: torch.Tensor) -> bool:
    """`to` copies whatever is not taken for the layout that is asked for."""
    layout = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return x.to(memory_format=layout) is x


@each_row("shape", itertools.product((1, 3), (1, 4), (1, 5), (1, 6)), ids=str)
def test_strides_decide_as_in_torch(shape):
    """Both layouts, parts of them along every dimension, every second value, and dimensions in another order."""
    for x in (torch.empty(shape), torch.empty(shape).to(memory_format=torch.channels_last)):
        views = [x, x.transpose(2, 3), x.transpose(1, 3), x[:1].expand_as(x), x[:, :1].expand_as(x)]
        for dimension, size in enumerate(shape):
            views += [x.narrow(dimension, 0, -(-size // 2)), x.narrow(dimension, size - 1, 1)]
            views.append(x[(slice(None),) * dimension + (slice(None, None, 2),)])
        for view in views:
            assert suggests_channels_last(view) == of_torch(view), (view.shape, view.stride())


def test_volumes_and_others():
    x = torch.empty(2, 3, 4, 5, 6)
    last = x.to(memory_format=torch.channels_last_3d)
    for view in (x, last, last[:, 1:], last[..., ::2], x.transpose(1, 4), torch.empty(8, 3, 1, 1, 1)):
        assert suggests_channels_last(view) == of_torch(view)
    assert suggests_channels_last(last[:, 1:])
    assert not any(suggests_channels_last(torch.empty(shape)) for shape in ((3,), (2, 3, 4), (0, 3, 4, 5)))
