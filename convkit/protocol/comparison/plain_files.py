"""Compares files that are not models: by bytes, and for JSON by the first differing key."""

import json
from pathlib import Path

from convkit.protocol.comparison.difference_listing import Listing
from convkit.protocol.comparison.json_values import first_difference

_CHUNK = 1 << 20
_ENGINES = (".engine", ".plan", ".trt")


def same_bytes(first: Path, second: Path) -> bool:
    """Return True if two files have the same content."""
    return first_byte(first, second) is None


def first_byte(first: Path, second: Path) -> int | None:
    """Return the offset of the first byte that differs; None if there is none."""
    start = 0
    with first.open("rb") as own, second.open("rb") as other:
        while True:
            block, against = own.read(_CHUNK), other.read(_CHUNK)
            if block != against:
                pairs = enumerate(zip(block, against, strict=False))
                return start + next(
                    (i for i, (a, b) in pairs if a != b), min(len(block), len(against))
                )
            if not block:
                return None
            start += len(block)


def compare_plain(first: Path, second: Path) -> Listing:
    """Compare two files with different content. JSON with equal values in a different notation is
    the same canonically.
    """
    listing = Listing()
    if first.suffix == second.suffix == ".json" and _compare_json(listing, first, second):
        return listing
    detail = f"the first differing byte is number {first_byte(first, second)} (from 0)"
    if first.suffix in _ENGINES:
        detail = "an engine is identified by its verification"
    listing.add(
        "file", "", f"{first.stat().st_size} bytes", f"{second.stat().st_size} bytes", detail
    )
    return listing


def _compare_json(listing: Listing, first: Path, second: Path) -> bool:
    """List where two JSON files diverge; return False if they are not JSON."""
    try:
        values = [json.loads(file.read_text(encoding="utf-8")) for file in (first, second)]
    except ValueError:  # not JSON, despite its name: compare bytes
        return False
    found = first_difference(*values)
    if found is not None:
        listing.add("file", found.path, found.first, found.second, "the first key that differs")
    return True
