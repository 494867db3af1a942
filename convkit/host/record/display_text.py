"""Formats sizes, durations and lines of text for display. Pure."""

import math
from collections.abc import Mapping


def bytes_text(size: int) -> str:
    """Format a size: '86.7 MiB'."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """Format a duration: '0.42 s', '8.1 s', '3 min 05 s', '2 h 10 min'."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:  # durations that round to a minute are shown as one
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def age_text(seconds: float) -> str:
    """Format how long ago something was: 'now', '5 min', '3 h', '12 d'."""
    minutes = max(round(seconds / 60), 0)
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} d"


def remaining_text(seconds: float) -> str:
    """Format an estimate of the time left, no more exactly than it is known: 'about 20 s left',
    'about 4 min left', 'about 1 h 10 min left'.
    """
    if seconds < 5:
        return "a few seconds left"
    if seconds < 57.5:  # more than that rounds to a minute
        return f"about {5 * round(seconds / 5)} s left"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"about {minutes} min left"
    minutes = 5 * round(seconds / 300)
    hours, rest = divmod(minutes, 60)
    return f"about {hours} h left" if not rest else f"about {hours} h {rest:02d} min left"


def count_text(count: float) -> str:
    """Format a count to three digits, with separators: '51,300', '4.25'."""
    if not 100 <= count < math.inf:
        return f"{count:.3g}"
    return f"{round(count, 2 - math.floor(math.log10(count))):,.0f}"


def ratio_text(ratio: float) -> str:
    """Format a ratio: '1.52', '0.50', '0.0042'."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Format a case's axis sizes: 'batch=4, sequence=128'."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"


def brief_time_text(seconds: float) -> str:
    """Format a short time with three digits: '0.639 ms', '224 ms', '3.55 s'."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def first_line(text: str) -> str:
    """Return the first nonempty line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
