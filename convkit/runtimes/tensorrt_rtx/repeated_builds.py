"""Compares two engines built from one graph, and names what the differing bytes are about. Pure."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy

# A plan writes names as plain text next to what it says of them; bytes.
_NEAR = 96
_TEXT = re.compile(rb"[\x21-\x7e]{3,}")
_MOST_NAMED = 6


def repeated(one: bytes, two: bytes, names: Iterable[str]) -> Finding | None:
    """Return R103 if two engines differ: how many bytes, in how many places, and which of the
    network's layers and tensors (`names`) are written there; None if they are identical.
    """
    if one == two:
        return None
    common = min(len(one), len(two))
    left, right = (np.frombuffer(plan, np.uint8, common) for plan in (one, two))
    apart = np.flatnonzero(left != right)
    places = _places(apart) if len(apart) else [(common, common)]
    known = set(names)
    near, swapped = _written(one, two, places, known)
    about = f", next to {', '.join(near[:_MOST_NAMED])}" if near else ""
    if swapped is not None:
        about += f"; one engine lists {swapped[0]} where the other lists {swapped[1]}"
    sizes = f"{len(one)} bytes each" if len(one) == len(two) else f"{len(one)} and {len(two)} bytes"
    return Finding(
        "R103",
        f"two builds of the same graph differ: {sizes}, {len(apart)} of them different in"
        f" {len(places)} place{'s' if len(places) > 1 else ''}{about}",
        Place(tensor=near[0] if near else None),
        {
            "sizes": [len(one), len(two)],
            "different": len(apart),
            "places": [[int(first), int(last)] for first, last in places[:100]],
            "near": list(near[:100]),
        },
        Remedy("Identify the engine by how it was verified, not by its bytes."),
    )


def _places(apart: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and last byte of each differing stretch; near ones are one."""
    breaks = np.flatnonzero(np.diff(apart) > _NEAR)
    firsts = apart[np.concatenate(([0], breaks + 1))]
    lasts = apart[np.concatenate((breaks, [len(apart) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _written(
    one: bytes, two: bytes, places: Sequence[tuple[int, int]], known: set[str]
) -> tuple[list[str], tuple[str, str] | None]:
    """Return the known names at the places, in order, and the first that differ between the two."""
    near: dict[str, None] = {}
    swapped = None
    for first, last in places:
        here, there = (
            [name for name in _names(plan[max(0, first - _NEAR) : last + _NEAR]) if name in known]
            for plan in (one, two)
        )
        near |= dict.fromkeys([*here, *there])
        if swapped is None:
            swapped = next(((a, b) for a, b in zip(here, there, strict=False) if a != b), None)
    return list(near), swapped


def _names(stretch: bytes) -> list[str]:
    return [found.group().decode("ascii") for found in _TEXT.finditer(stretch)]
