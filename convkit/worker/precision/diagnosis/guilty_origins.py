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


@dataclasses.dataclass(frozen=True)
class Guilt:
    """How many elements of the outputs are not finite with all `others` put right, and with this
    origin as well. Of an output that two origins spoil, putting right one alone changes nothing.
    """

    before: int
    after: int
    others: tuple[str, ...] = ()


def guilty(
    origins: Sequence[WrongValueOrigin], count: Callable[[Collection[WrongValueOrigin]], int]
) -> dict[str, Guilt]:
    """Return the origins that spoil outputs even if all others are put right, by name.

    `count` returns how many elements of the outputs are not finite with some origins put right. Of
    an output that two origins spoil, both are guilty.
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
            found[origin.name] = Guilt(alone, unspoiled, tuple(each.name for each in others))
    return found


def proof(found: Mapping[str, Guilt], name: str) -> dict[str, Json]:
    """Return the evidence that an origin spoils outputs, or that this was not shown; `found` is the
    result of `guilty`.
    """
    if name not in found:
        return {"proven": False}
    guilt = found[name]
    beside: dict[str, Json] = {}
    if guilt.others:
        beside = {"others_corrected": len(guilt.others), "other_causes": list(guilt.others)}
    counts: dict[str, Json] = {"before": guilt.before, "after": guilt.after, **beside}
    return {"proven": True, **counts, "error_in": "elements"}


def lessening(before: float, after: float) -> dict[str, Json]:
    """Return the evidence on whether a change takes away most of an error."""
    return {"proven": bool(after <= _MOST * before), "before": before, "after": after}
