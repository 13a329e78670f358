"""Whether ncnn computes in fp16: Ultralytics leaves it to ncnn, which takes it wherever a driver offers it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from ..utils.scoped_patch import attribute

_SWITCHES: Final = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic")


def set_precision(net: Any, fp16: bool) -> Any:
    """Let a network of ncnn compute in fp16, or not; before its model is loaded."""
    for name in _SWITCHES:
        setattr(net.opt, name, fp16)
    return net


def ncnn_computes_in(fp16: bool) -> AbstractContextManager[None]:
    """Let networks of ncnn that are made while the context is open compute in fp16, or not."""

    def wrapper(original: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: set_precision(original(), fp16)

    return attribute("ncnn", "Net").on(wrapper)
