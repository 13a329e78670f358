"""Tables of cheap cases in one test: all rows are tried, and the failure lists those that fail.

A case of its own costs more than such a row, and nobody wants to choose one of a hundred. For rows that leave nothing
behind: fixtures are made once for all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each_row(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Callable[[Any], Any] | Iterable[Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, as a single case."""
    listed = list(rows)
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [dict(zip(keys, row, strict=True)) if len(keys) > 1 else {keys[0]: row} for row in listed]
    if ids is None or callable(ids):
        labels = [str(ids(row) if ids else row) for row in listed]
    else:
        labels = [str(each) for each in ids]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def every(**fixtures: Any) -> None:
            failed = []
            for label, row in zip(labels, values, strict=True):
                try:
                    test(**row, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append((label[:100], error))
            assert listed, "a table without rows tests nothing"
            if failed:
                lines = [f"{label}: {type(error).__name__}: {error}" for label, error in failed]
                raise AssertionError("\n".join([f"{len(failed)} of {len(values)} rows fail", *lines])) from failed[0][1]

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        every.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        every.__name__, every.__qualname__ = test.__name__, test.__qualname__
        every.__doc__, every.__module__ = test.__doc__, test.__module__
        every.__dict__.update(test.__dict__)
        return every

    return decorate
