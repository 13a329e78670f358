"""The table `configs/install.yaml`: stacks of torch, the cards they suit, and what a system needs before them."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ConfigDict, Field

from ..preset.files import config_root
from ..utils.limited_files import read_yaml


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str = Field(description="where the row is from")


class TorchStack(_Row):
    """A torch and what goes with it.

    Attributes:
        systems: Where it runs: `linux`, `wsl`, `windows`, `macos`.
        processors: Processors it has wheels for.
        pythons: Interpreters it has wheels for, the best choice first.
        options: Options of pip that name its index.
        packages: What pip is asked for; `{extras}` stands for the extras of the card's targets.
        extras: Extras of this package that go with it.
        targets: Targets it has kernels for; empty for one that uses no AMD GPU.
    """

    title: str
    systems: tuple[str, ...]
    processors: tuple[str, ...]
    pythons: tuple[str, ...] = Field(min_length=1)
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = Field(min_length=1)
    extras: tuple[str, ...]
    targets: tuple[str, ...] = ()

    @property
    def has_one_command(self) -> bool:
        """Whether one command of pip puts it into an environment that is there: no pins beside it, any Python."""
        return len(self.packages) <= 2 and len(self.pythons) > 1


class Cards(_Row):
    """Targets and the stacks that suit them.

    Attributes:
        targets: The targets.
        stacks: The best first; empty where no wheel has kernels for them.
        why: The reason for the first, or for there being none.
        names: What cards without a preset are called.
    """

    targets: tuple[str, ...]
    stacks: tuple[str, ...]
    why: str
    names: tuple[str, ...] = ()


class Before(_Row):
    """Something a person has to see to before anything is installed.

    Attributes:
        systems: Where, as for a stack.
        targets: For which targets; all where empty.
        kernel_before: For Linux kernels older than this one only.
        text: What to do.
        command: The command for it, where there is one.
    """

    systems: tuple[str, ...]
    targets: tuple[str, ...] = ()
    kernel_before: str | None = None
    text: str
    command: tuple[str, ...] = ()


class Table(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stacks: dict[str, TorchStack]
    cards: tuple[Cards, ...]
    before: tuple[Before, ...]

    def cards_of(self, target: str) -> Cards | None:
        """Return the row of a target; None where it is not in the table."""
        return next((row for row in self.cards if target in row.targets), None)


@cache
def table() -> Table:
    """Return the table."""
    return Table.model_validate(read_yaml(config_root() / "install.yaml"))
