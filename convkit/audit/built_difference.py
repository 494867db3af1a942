"""How two built files differ, beyond that they do. The one place to teach convkit more about a kind of file."""

from pathlib import Path

from convkit.figures import bytes_text

_CHUNK = 1 << 20


def describe_difference(file_a: Path, file_b: Path) -> list[str]:
    """Return what differs between two files, a line each; nothing where they are equal or one is not there.

    Sizes and the first differing byte. What a difference means inside a graph needs a tool that reads graphs.
    """
    if not (file_a.is_file() and file_b.is_file()):
        return []
    sizes = file_a.stat().st_size, file_b.stat().st_size
    lines = [f"{bytes_text(sizes[0])} became {bytes_text(sizes[1])} ({sizes[1] - sizes[0]:+d} bytes)"]
    place = _first_difference(file_a, file_b)
    if place is None:
        return []
    return [*(lines if sizes[0] != sizes[1] else []), f"the first differing byte is number {place} (from 0)"]


def _first_difference(file_a: Path, file_b: Path) -> int | None:
    start = 0
    with file_a.open("rb") as stream_a, file_b.open("rb") as stream_b:
        while True:
            block_a, block_b = stream_a.read(_CHUNK), stream_b.read(_CHUNK)
            if block_a != block_b:
                pairs = enumerate(zip(block_a, block_b, strict=False))
                return start + next((i for i, (a, b) in pairs if a != b), min(len(block_a), len(block_b)))
            if not block_a:
                return None
            start += len(block_a)
