"""Environment variables: our own, those that presets set, and when each is read."""

from __future__ import annotations

from yolo_rocm.preset.allowed_variables import FAMILIES, SINGLE
from yolo_rocm.preset.moments import INTERNAL, OWN, READ
from yolo_rocm.preset.schema import Variable, When

from .markdown import code, joined, table
from .presets import shipped


def own() -> str:
    """Return the variables of this package."""
    users = table(("variable", "meaning"), ((code(name), words) for name, words in OWN.items()))
    ours = table(("variable", "meaning"), ((code(name), words) for name, words in INTERNAL.items()))
    return f"{users}\n\nThese the package sets for processes that it starts; leave them alone:\n\n{ours}"


def of_presets() -> str:
    """Return the variables that shipped presets set, each with its conditions and cards."""
    found: dict[tuple[str, str], tuple[Variable, list[str]]] = {}
    for presets in shipped().values():
        for preset in presets:
            for name, variable in preset.env.items():
                key = (name, repr(variable))
                found.setdefault(key, (variable, []))[1].append(preset.name)
    rows = (
        (code(f"{name}={variable.value}"), _conditions(variable.when), variable.why, joined(map(code, presets)))
        for (name, _), (variable, presets) in found.items()
    )
    return table(("variable", "only if", "why", "presets"), rows)


def _conditions(when: When) -> str:
    words = []
    if when.os:
        words.append(f"on {' or '.join(when.os)}")
    if when.torch:
        words.append(f"torch {code(when.torch)}")
    if when.hip:
        words.append(f"ROCm {code(when.hip)}")
    if when.own_kernels is not None:
        words.append(f"torch has {'' if when.own_kernels else 'no '}kernels for the card's own target")
    if when.kernels_for:
        words.append(f"torch has {when.kernels_for} kernels")
    return ", ".join(words) or "always"


def moments() -> str:
    """Return when each kind of variable is read for the last time."""
    rows = ((code(name if "_" in name.rstrip("_") else f"{name}*"), when.value) for name, when in READ)
    return table(("variable", "read for the last time"), rows)


def allowed() -> str:
    """Return the variables that a preset may set at all."""
    return ", ".join(code(name) for name in (*(f"{family}*" for family in FAMILIES), *SINGLE))
