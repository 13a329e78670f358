"""Whether ncnn computes in fp16: Ultralytics leaves it to ncnn, which takes it wherever a driver offers it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from ..utils.scoped_patch import attribute

_SWITCHES: Final = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic")


def computing_in(engine: str, dtype: str) -> AbstractContextManager[None]:
    """Let networks of ncnn that are made while the context is open compute in a data type; other engines are told."""

    def wrapper(original: Callable[[], Any]) -> Callable[[], Any]:
        def net() -> Any:
            made = original()
            for name in _SWITCHES:
                setattr(made.opt, name, dtype == "fp16")
            return made

        return net

    return attribute("ncnn", "Net").on(wrapper) if engine == "ncnn" else nullcontext()
