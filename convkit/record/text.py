"""Sizes, durations and lines of text for people. Pure."""

from collections.abc import Mapping


def bytes_text(size: int) -> str:
    """Return a size for people: '86.7 MiB'."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration for people: '0.42 s', '8.1 s', '3 min 05 s', '2 h 10 min'."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:  # what rounds to a minute is told as one
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return a case's axis sizes: 'batch=4, sequence=128'."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"


def first_line(text: str) -> str:
    """Return the first line that holds something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
