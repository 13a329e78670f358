"""Numbers and names as the page says them."""

from __future__ import annotations

from typing import Final

# Names in rocm.json and results.csv that are no words.
_NAMES: Final = {
    "amdgpu": "amdgpu driver",
    "archs": "GPU targets of torch",
    "build": "torch build",
    "cores": "processor cores",
    "hip": "HIP",
    "hip_engine": "engine hip",
    "ram_gb": "memory of the host, GB",
    "rocblas_archs": "GPU targets of rocBLAS",
    "rocm": "ROCm",
    "shm_gb": "shared memory (/dev/shm), GB",
}


def name(key: str) -> str:
    """Return the name of a fact in words."""
    return _NAMES.get(key, key)


def parameter_group(key: str) -> str:
    """Return the name of a learning rate: Ultralytics calls the optimiser's parameter groups pg0, pg1, ..."""
    number = key.removeprefix("pg")
    return f"parameter group {number}" if key.startswith("pg") and number.isdigit() else key


def counted(number: int, thing: str) -> str:
    """Return a number of things, with an s where there is not exactly one."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def milliseconds(value: float) -> str:
    """Return a time in the unit in which it is easy to read."""
    return f"{value:.1f} ms" if value < 1000 else duration(value / 1000)


def duration(seconds: float) -> str:
    """Return a time in the units in which it is easy to read."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
