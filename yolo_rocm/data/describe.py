"""The loader settings that apply on a machine, as data: for `yolo-rocm loader` and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from . import resources
from .transport import HAS_MEMFD
from .worker_count import Recommendation

_NAMES: Final = {
    "gpus": "GPUs",
    "ram_available_gb": "memory available, GB",
    "shm_free_gb": "shared memory free, GB",
    "transport": "batches travel by",
    "workers_reason": "because",
}
_UNSET: Final = "not set"


@dataclass(frozen=True)
class LoaderFacts:
    """What loaders will do here, and what that follows from."""

    system: str
    cores: int
    gpus: int
    ram_available_gb: float | None
    shm_free_gb: float | None
    transport: str
    workers: int
    workers_reason: str
    limits: dict[str, int]
    settings: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, value) lines for people."""
        facts = asdict(self).items()
        plain = [(_NAMES.get(name, name), value) for name, value in facts if not isinstance(value, dict)]
        limits = ", ".join(f"{name} {number}" for name, number in self.limits.items())
        settings = ((f"loader.{key}", _UNSET if value is None else value) for key, value in self.settings.items())
        lines = [*plain, ("worker limits", limits), *settings]
        return [(name, f"{value:.1f}" if isinstance(value, float) else str(value)) for name, value in lines]


def loader_facts(recommendation: Recommendation, settings: dict[str, Any]) -> LoaderFacts:
    """Gather what is known of this machine, together with the settings of a preset."""
    ram, shm = resources.ram_available(), resources.shm_free()
    return LoaderFacts(
        system=resources.system_name(),
        cores=resources.cpu_cores(),
        gpus=resources.visible_gpus(),
        ram_available_gb=None if ram is None else ram / 2**30,
        shm_free_gb=None if shm is None else shm / 2**30,
        transport="memfd, /dev/shm does not limit it" if HAS_MEMFD else "torch shared memory",
        workers=recommendation.workers,
        workers_reason=recommendation.reason,
        limits={limit.name: limit.workers for limit in recommendation.limits},
        settings=settings,
    )
