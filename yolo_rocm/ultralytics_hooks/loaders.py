"""The loaders Ultralytics builds, made to follow a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..utils import scoped_patch

if TYPE_CHECKING:  # the doctor asks this package about versions without importing torch
    from ..data.policy import LoaderPolicy


@contextmanager
def loaders_follow(policy: LoaderPolicy) -> Iterator[None]:
    """Let every loader that Ultralytics builds in this process follow `policy`; their workers end with it.

    Of several policies the newest decides.
    """
    from ..data.loader import close_following

    try:
        with loaders_built_by(policy):
            yield
    finally:
        close_following(policy)


@contextmanager
def loaders_built_by(policy: LoaderPolicy | None) -> Iterator[None]:
    """Let loaders that are built in this context follow a policy and outlive it; None leaves Ultralytics' own.

    All paths (start, out-of-memory retry, final evaluation, standalone validation) construct the class that
    `ultralytics.data.build` holds by name, so that name is what is replaced. Reassigning `trainer.train_loader` would
    miss the retry, and a plain DataLoader lacks the `reset()` that close_mosaic calls.
    """
    if policy is None:
        yield
        return
    loader_class = scoped_patch.attribute("ultralytics.data.build", "InfiniteDataLoader")
    with loader_class.on(lambda stock: _policy_loader(stock, policy), "loader policy"):
        yield


def _policy_loader(stock: type, policy: LoaderPolicy) -> type:
    from ..data.loader import PolicyLoader, has_epochs, passes

    class PolicyDataLoader(PolicyLoader, stock):  # type: ignore[misc]
        """Ultralytics' loader with the arguments and the workers a preset asks for."""

        endless = True
        _eager = False

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, policy=policy, **kwargs)

        def _indices(self) -> Iterator[Any]:
            endless: Any = self.batch_sampler  # Ultralytics' own repeats the one of an epoch, its `sampler`
            return passes(endless.sampler, self.sampler) if has_epochs(self.sampler) else iter(endless)

        def _stacks_images(self) -> bool:
            ours = getattr(self.collate_fn, "__module__", None) or ""
            return ours.startswith("ultralytics.") or super()._stacks_images()

        def _get_iterator(self) -> Any:
            if self._complete:
                return super()._get_iterator()
            # Ultralytics before 8.4.158 starts workers in the constructor, and after every reset. Ours start when they
            # are needed, but seeds are drawn when Ultralytics draws them: the samplers go on from the same state.
            self._eager = True
            self._next_seed = self._draw_seed()
            return None

        def reset(self) -> None:
            """End the workers; new ones see what has changed in the data set."""
            super().reset()
            if self._eager:
                self._next_seed = self._draw_seed()

    return PolicyDataLoader
