"""Environment variables: our own, those that presets set, and when each is read."""

from __future__ import annotations

from typing import Final

from yolo_rocm.preset.allowed_variables import FAMILIES, SINGLE
from yolo_rocm.preset.moments import READ
from yolo_rocm.preset.schema import Variable, When

from .markdown import code, joined, table
from .presets import shipped

# Variables of this package, for its users and for the processes it starts itself. The modules that read them say more.
OWN: Final[dict[str, str]] = {
    "YOLO_ROCM": "`0` turns the whole package off: convolutions, loaders, variables, checkpoints.",
    "YOLO_ROCM_PRESET": "The preset that `auto` means: a name, what a card is sold as, or a YAML file.",
    "YOLO_ROCM_CONFIG": "The folder above `presets/`, where presets of your own are looked for by name.",
    "YOLO_ROCM_CACHE": "The folder of measured choices, of what the doctor has learned, and of MIOpen's files by rank.",
    "YOLO_ROCM_ANY_ULTRALYTICS": "`1` goes on with an Ultralytics that lacks something training needs.",
}
INTERNAL: Final[dict[str, str]] = {
    "YOLO_ROCM_RUN": "The Python environment that a `yolo-rocm run` is for; processes of another one are left alone.",
    "YOLO_ROCM_CHILD": "The preset of a training, for the processes that Ultralytics starts for it.",
    "YOLO_ROCM_RESTARTED": "The variables for which a command has been started again, so that it is only once.",
}


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
    rows = (
        (code(name if "_" in name.rstrip("_") else f"{name}*"), when.value)
        for when, names in READ.items()
        for name in names
    )
    return table(("variable", "read for the last time"), rows)


def allowed() -> str:
    """Return the variables that a preset may set at all."""
    return ", ".join(code(name) for name in (*(f"{family}*" for family in FAMILIES), *SINGLE))
