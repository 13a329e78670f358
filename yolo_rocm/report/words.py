"""Numbers as the page says them."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Return a number of things, with an s where there is not exactly one."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def milliseconds(value: float) -> str:
    """Return a time in the unit in which it is easy to read, with about three digits."""
    return f"{milliseconds_alone(value)} ms" if value < 999.5 else duration(value / 1000)


def milliseconds_alone(value: float) -> str:
    """Return the same without a unit, for a column of milliseconds."""
    places = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.0995 else 3
    return f"{value:.{places}f}"


def gigabytes(mebibytes: float) -> str:
    """Return memory in the unit in which cards are sold."""
    return f"{mebibytes / 1024:.2f} GB" if mebibytes < 10 * 1024 else f"{mebibytes / 1024:.1f} GB"


def duration(seconds: float) -> str:
    """Return a time in the units in which it is easy to read."""
    if seconds < 0.9995:
        return milliseconds(1000 * seconds)
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
