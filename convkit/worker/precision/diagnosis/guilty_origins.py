"""Which origins of NaN and infinity spoil the outputs, by putting right all but one of them.

An origin on the way to an output may be harmless: a later operation selects other values. So a case
is computed without any origin, with each alone, and without each alone. Needs only the standard
library.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from convkit.protocol.json_codec import Json

# Origins that are tried: each costs two simulations. Later ones are often consequences.
_TRIED = 6
# Elements that are put right reach this: far from any limit, also once squared.
HARMLESS = 16.0
# A change explains an error of which it leaves at most this share.
_MOST = 0.5


@dataclasses.dataclass(frozen=True)
class WrongValueOrigin:
    """Where bad values begin: a constant beyond the type's range, or else the result of a node.
    `together` are results that are put right by computing them in float32, instead of replacing
    what is not finite: those beyond the type's range, and what reads them.
    """

    name: str
    is_constant: bool
    together: tuple[str, ...] = ()


def guilty(
    origins: Sequence[WrongValueOrigin], count: Callable[[Collection[WrongValueOrigin]], int]
) -> dict[str, tuple[int, int]]:
    """Return the origins that spoil outputs even if all others are put right, each with how many
    elements of the outputs are not finite: as the case is, and with that origin alone put right.

    `count` returns that number with some origins put right. Of an output that two origins spoil,
    both are guilty.
    """
    every = list(dict.fromkeys(origins))
    before = count(())
    if not before:
        return {}
    unspoiled = count(every)
    found = {}
    for origin in every[:_TRIED]:
        others = [each for each in every if each != origin]
        alone = count(others) if others else before
        if alone > unspoiled:
            found[origin.name] = before, count([origin]) if others else unspoiled
    return found


def proof(found: Mapping[str, tuple[int, int]], name: str) -> dict[str, Json]:
    """Return the evidence that an origin spoils outputs, or that this was not shown; `found` is the
    result of `guilty`.
    """
    if name not in found:
        return {"proven": False}
    before, after = found[name]
    return {"proven": True, "before": before, "after": after, "error_in": "elements"}


def lessening(before: float, after: float) -> dict[str, Json]:
    """Return the evidence on whether a change takes away most of an error."""
    return {"proven": bool(after <= _MOST * before), "before": before, "after": after}
