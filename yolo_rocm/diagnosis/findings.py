"""What the doctor finds, as plain data, and what makes a check of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .context import Context

Severity = Literal["error", "warning", "info"]
ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        id: Stable name.
        severity: `error`: training on the GPU fails or gives wrong numbers; `warning`: it may, or costs much; `info`:
            good to know.
        finding: What was found here.
        remedy: What to do about it.
        sources: Where that is known from.
    """

    id: str
    severity: Severity
    finding: str
    remedy: str
    sources: tuple[str, ...] = ()


Check = Callable[[Context], Finding | None]
# What was found, what to do about it, and how grave it is where that depends; None where all is well.
Found = tuple[str, str] | tuple[str, str, Severity] | None


class Checks(list[Check]):
    """The checks of a module, in the order in which things have to be repaired."""

    def check(self, severity: Severity, *sources: str) -> Callable[[Callable[[Context], Found]], Check]:
        """Make a check of a function and append it; the function's name is the id of the finding.

        Args:
            severity: How grave the finding is, unless the function says otherwise.
            sources: Where it is known from.
        """

        def made(look: Callable[[Context], Found]) -> Check:
            @functools.wraps(look)
            def run(context: Context) -> Finding | None:
                found = look(context)
                if found is None:
                    return None
                grave = found[2] if len(found) == 3 else severity
                return Finding(look.__name__.replace("_", "-"), grave, found[0], found[1], sources)

            self.append(run)
            return run

        return made
