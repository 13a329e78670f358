"""The loaders Ultralytics builds, made to follow a policy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the doctor asks this package about versions without importing torch
    from ..data.policy import LoaderPolicy


class _Policies:
    """Loader policies in force; the newest one decides. Counted, so that nested runs do not undo each other."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stack: list[LoaderPolicy] = []
        self.original: Any = None


_policies = _Policies()


@contextmanager
def loaders_follow(policy: LoaderPolicy) -> Iterator[None]:
    """Let every loader that Ultralytics builds follow `policy`; their workers end with it.

    All paths (start, out-of-memory retry, final evaluation, standalone validation) construct the class that
    `ultralytics.data.build` holds by name, so that name is what is replaced. Reassigning `trainer.train_loader` would
    miss the retry, and a plain DataLoader lacks the `reset()` that close_mosaic calls.
    """
    from ultralytics.data import build

    from ..data.loader import close_all

    with _policies.lock:
        if not _policies.stack:
            _policies.original = build.InfiniteDataLoader
            build.InfiniteDataLoader = _policy_loader(_policies.original)
        _policies.stack.append(policy)
    try:
        yield
    finally:
        with _policies.lock:
            _policies.stack.remove(policy)
            if not _policies.stack:
                build.InfiniteDataLoader = _policies.original
                close_all()


def _policy_loader(stock: type, policy: LoaderPolicy | None = None) -> type:
    from ..data.loader import PolicyLoaderMixin

    class PolicyDataLoader(PolicyLoaderMixin, stock):  # type: ignore[misc]
        """Ultralytics' loader with the arguments and the workers a preset asks for."""

        endless = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, policy=policy or _policies.stack[-1], **kwargs)

    return PolicyDataLoader


@contextmanager
def loaders_built_by(policy: LoaderPolicy | None) -> Iterator[None]:
    """Let loaders that are built in this context follow a policy and outlive it; None leaves Ultralytics' own."""
    from ultralytics.data import build

    original = build.InfiniteDataLoader
    if policy is not None:
        build.InfiniteDataLoader = _policy_loader(original, policy)
    try:
        yield
    finally:
        build.InfiniteDataLoader = original
