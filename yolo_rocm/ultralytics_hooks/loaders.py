"""The loaders Ultralytics builds, made to follow a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..utils.in_force import InForce

if TYPE_CHECKING:  # the doctor asks this package about versions without importing torch
    from ..data.policy import LoaderPolicy


class _Policies(InForce["LoaderPolicy"]):
    """Loader policies in force, and the class that Ultralytics had."""

    original: Any = None


_policies = _Policies()


@contextmanager
def loaders_follow(policy: LoaderPolicy) -> Iterator[None]:
    """Let every loader that Ultralytics builds in this thread follow `policy`; their workers end with it.

    Other threads are left alone: what they train may be registered nowhere, or under another preset.

    All paths (start, out-of-memory retry, final evaluation, standalone validation) construct the class that
    `ultralytics.data.build` holds by name, so that name is what is replaced. Reassigning `trainer.train_loader` would
    miss the retry, and a plain DataLoader lacks the `reset()` that close_mosaic calls.
    """
    from ultralytics.data import build

    from ..data.loader import close_following

    with _policies.lock:
        if not _policies:
            _policies.original = build.InfiniteDataLoader
            build.InfiniteDataLoader = _policy_loader(_policies.original)
        _policies.add(policy)
    try:
        yield
    finally:
        with _policies.lock:
            _policies.remove(policy)
            if not _policies:
                build.InfiniteDataLoader = _policies.original
        close_following(policy)


def _policy_loader(stock: type, policy: LoaderPolicy | None = None) -> type:
    from ..data.loader import PolicyLoaderMixin, has_epochs, passes

    class PolicyDataLoader(PolicyLoaderMixin, stock):  # type: ignore[misc]
        """Ultralytics' loader with the arguments and the workers a preset asks for."""

        endless = True

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if policy is None and not _policies.own():
                return stock(*args, **kwargs)  # a run of another thread, which has nothing to do with us
            return super().__new__(cls)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, policy=policy or _policies.own()[-1], **kwargs)

        def _indices(self) -> Iterator[Any]:
            endless: Any = self.batch_sampler  # Ultralytics' own repeats the one of an epoch, its `sampler`
            return passes(endless.sampler, self.sampler) if has_epochs(self.sampler) else iter(endless)

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
