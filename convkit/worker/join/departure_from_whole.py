"""Where the parts' code departs from the original's: the first module that gets or returns other
values in the parts than in the whole, although everything before it agrees.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.case import Feeds
from convkit.worker.cause.matching.weight_derivation import how_different, is_near
from convkit.worker.join.joined_original import JoinedOriginal
from convkit.worker.join.module_matching import (
    MatchedModule,
    Passed,
    Record,
    Side,
    aligned,
    distance,
    members,
    recorded,
)
from convkit.worker.join.part_flow import calls_of
from convkit.worker.original.torch_dtypes import to_array
from convkit.worker.reference.original_model import TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError

# Values inside a model count as different from this share of what counts for its outputs: a layer
# may damp a difference.
_INSIDE = 0.1
# Departures that are corrected one after the other until the outputs agree. A mistake that is in
# every layer has as many.
_MOST_PLACES = 16
# Two arrays that agree to this fraction of their RMS are the same values, summed otherwise.
_SAME = 1e-4


class PartCase(Protocol):
    """One case of the whole, as `join_agreement` reads it."""

    @property
    def feeds(self) -> Feeds:
        """The inputs of the whole."""
        ...

    @property
    def expected(self) -> Feeds:
        """The outputs of the whole."""
        ...

    def error(self, found: Feeds) -> float:
        """Return how far outputs are off."""
        ...


@dataclasses.dataclass(frozen=True)
class Departure:
    """The first place where the parts differ, and the other ones if correcting it is not enough.

    `how` says how its values differ, `after` is what is left of the outputs' error once all places
    have the original's values. `unseen` are the parts before it that share no module with the
    original.
    """

    member: MatchedModule
    side: Side
    source: str | None
    call: int
    how: str
    others: tuple[str, ...]
    after: float
    unseen: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class AfterModules:
    """No module differs: what makes the difference comes after `last`, a module of `part`, or in
    the parts `without` such modules. `how` says how the outputs differ.
    """

    part: str
    last: str
    without: tuple[str, ...]
    how: str


def first_departure(
    joined: JoinedOriginal,
    whole: TorchOriginal,
    cases: Sequence[PartCase],
    limit: float,
    allowed: float,
) -> Departure | AfterModules | None:
    """Return where the parts depart from the whole. With the original's values there, the outputs
    are within `allowed` in every case. None if the modules do not show it.
    """
    found = members(joined.modules, whole.module)
    try:
        runs = [_Compared(joined, whole, found, case) for case in cases]
        return _search(runs, limit * _INSIDE, allowed)
    except (MemoryError, RunFailedError):
        return None  # too large to record, or the original's values fit nowhere


def _search(
    runs: "Sequence[_Compared]", limit: float, allowed: float
) -> Departure | AfterModules | None:
    first = runs[0]
    places: list[_Place] = []
    _, record = first.run(())
    while len(places) < _MOST_PLACES:
        found = first.next_differences(record, limit, places)
        if not found:
            return None if places else first.behind(record)
        places += found
        error, record = first.run(places)
        after = max([error, *(each.run(places)[0] for each in runs[1:])])
        if after <= allowed:
            return _departure(first, places, after)
    return None


@dataclasses.dataclass(frozen=True)
class _Place:
    """Calls of modules that are one in the whole: what they pass, and the first that differs."""

    key: tuple[int, Side]
    passed: tuple[Passed, ...]
    wanted: tuple[tuple[torch.Tensor, ...], ...]
    number: int

    @property
    def first(self) -> Passed:
        return self.passed[self.number]

    @property
    def is_resized(self) -> bool:
        """True if the whole has tensors of other sizes here."""
        pairs = zip(self.first.tensors, self.wanted[self.number], strict=True)
        return any(own.shape != other.shape for own, other in pairs)


class _Compared:
    """One case, run by the whole and, as often as wanted, by the parts."""

    def __init__(
        self,
        joined: JoinedOriginal,
        whole: TorchOriginal,
        found: Sequence[MatchedModule],
        case: PartCase,
    ) -> None:
        self._joined = joined
        self._case = case
        self._roots = joined.source_roots
        self._shared = {each.part for each in found}
        self._hooked = [(each.module, id(each.other), each) for each in found]
        others = {id(each.other): each.other for each in found}
        self.paths = {id(each.other): each.other_path for each in found}
        with recorded([(other, key, None) for key, other in others.items()]) as self.whole:
            whole.run(case.feeds)

    def run(self, places: "Sequence[_Place]") -> tuple[float, Record]:
        """Run the parts with the whole's values at `places`; return the outputs' error."""
        keys = {place.key for place in places}
        aligned_at: dict[tuple[int, Side], Sequence[tuple[torch.Tensor, ...]]] = {}

        def wanted(key: tuple[int, Side], number: int) -> Sequence[torch.Tensor] | None:
            known = aligned_at.get(key)
            return known[number] if known is not None and number < len(known) else None

        if keys:
            # How the whole's values are divided among the calls depends on the case's sizes.
            with recorded(self._hooked) as plain:
                self._joined.run(self._case.feeds)
            for key in keys:
                if (found := self._wanted(key, plain.get(key, ()))) is None:
                    return float("inf"), {}
                aligned_at[key] = found
        with recorded(self._hooked, roots=self._roots, replace=wanted) as record:
            self._outputs = self._joined.run(self._case.feeds)
        return self._case.error(self._outputs), record

    def _wanted(
        self, key: tuple[int, Side], passed: Sequence[Passed]
    ) -> Sequence[tuple[torch.Tensor, ...]] | None:
        """Return what the whole has in the place of each call; None if nothing fits.

        Other sizes fit only if the value is that of another place in the whole: the levels of a
        pyramid of features in another order.
        """
        other = self.whole.get(key, ())
        if (wanted := aligned(passed, other)) is not None:
            return wanted
        counts = [[len(each.tensors) for each in calls] for calls in (passed, other)]
        if not passed or counts[0] != counts[1]:
            return None
        tensors = [tensor for each in passed for tensor in each.tensors]
        elsewhere = (_same_elsewhere(to_array(each), key, self) for each in tensors)
        return [each.tensors for each in other] if all(elsewhere) else None

    def behind(self, record: Record) -> AfterModules | None:
        """Return what the last run says if no module in it differs."""
        last = max(
            (each for calls in record.values() for each in calls),
            key=lambda each: each.order,
            default=None,
        )
        if last is None or last.member is None:
            return None
        texts = []
        for name, expected in self._case.expected.items():
            found = self._outputs[name]
            if found.shape == expected.shape and (text := _likeness(found, expected)):
                texts.append(f"{name!r}: {text}")
        return AfterModules(last.member.part, last.member.path, self.unseen(), "; ".join(texts))

    def unseen(self, before: str | None = None) -> tuple[str, ...]:
        """Return the parts that share no module with the whole, of those called before a part."""
        called = list(dict.fromkeys(call.part for call in calls_of(self._joined.wiring.flow)))
        until = called.index(before) if before is not None else len(called)
        return tuple(name for name in called[:until] if name not in self._shared)

    def next_differences(
        self, record: Record, limit: float, known: "Sequence[_Place]"
    ) -> "list[_Place]":
        """Return where the run of the parts first differs from the whole, in the order of calls;
        if sizes differ there, also where else they do, because one alone does not fit the others.
        """
        places = []
        for key in record.keys() - {place.key for place in known}:
            passed = record[key]
            wanted = self._wanted(key, passed)
            for number, (one, other) in enumerate(zip(passed, wanted or (), strict=False)):
                if not distance(one.tensors, other) <= limit:
                    assert wanted is not None
                    places.append(_Place(key, tuple(passed), tuple(wanted), number))
                    break
        places.sort(key=lambda place: place.first.order)
        if places and places[0].is_resized:
            return [place for place in places if place.is_resized]
        return places[:1]


def departure_finding(
    found: Departure, difference: str, before: float, output: str, case: str
) -> Finding:
    """Return C540; `difference` and `before` say how far `output` is off in a case."""
    member = found.member
    verb = "gets" if found.side == "input" else "returns"
    when = f", from call {found.call + 1} on," if found.call else ""
    how = f": {found.how}" if found.how else ""
    more = ""
    if count := len(found.others):
        more = f". {count} later place{'s differ' if count > 1 else ' differs'}, too:"
        more += f" {found.others[0]}{', ...' if count > 1 else ''}"
    if found.unseen:
        unseen = " and ".join(map(repr, found.unseen))
        more += f". It may be made in {unseen} before that, which cannot be compared step by step"
    other = f"{member.other_path!r} of the original" if member.other_path else "the original"
    return Finding(
        "C540",
        f"{_module(member)}{when} {verb} other values than {other}, although everything"
        f" before it agrees{how}{more}. {difference} in case {case!r}; with the"
        " original's values there, the joined parts agree with it",
        Place(tensor=output, module=member.path or None, source=found.source, case=case),
        {
            "proven": True,
            "before": before,
            "after": found.after,
            "part": member.part,
            "side": found.side,
            "others": list(found.others),
        },
        Remedy(f"Compare the code that leads to {_module(member)} with the original's."),
    )


def behind_text(found: AfterModules) -> str:
    """Say where the difference must come from if no module shows it."""
    how = f" ({found.how})" if found.how else ""
    where = f"after {found.last!r} of part {found.part!r}"
    if found.without:
        where = f"in {' or '.join(map(repr, found.without))}, or {where}"
    return (
        f". Every module that the parts have in common with the original gets and returns the same"
        f" values, so the difference is made {where}{how}"
    )


def _departure(run: _Compared, places: Sequence[_Place], after: float) -> Departure:
    first, *others = places
    member = first.first.member
    assert member is not None
    return Departure(
        member,
        first.key[1],
        first.first.source,
        first.number,
        _how(first, run),
        tuple(_name(place) for place in others),
        after,
        run.unseen(member.part) if first.key[1] == "input" else (),
    )


def _name(place: _Place) -> str:
    member = place.first.member
    assert member is not None
    return f"the {place.key[1]} of {_module(member)}"


def _module(member: MatchedModule) -> str:
    name = repr(member.path) if member.path else "the root module"
    return f"{name} of part {member.part!r}"


def _how(place: _Place, run: _Compared) -> str:
    """Say how the values differ; an empty text if they are just others."""
    slot = next(
        index
        for index, (one, other) in enumerate(
            zip(place.first.tensors, place.wanted[place.number], strict=True)
        )
        if distance([one], [other])
    )
    found, wanted = (
        _joined([to_array(call[slot]) for call in calls], place.number)
        for calls in ([each.tensors for each in place.passed], place.wanted)
    )
    own = to_array(place.first.tensors[slot])
    if (same := _same_elsewhere(own, place.key, run)) is not None:
        return same
    return _likeness(found, wanted)


def _likeness(found: np.ndarray, wanted: np.ndarray) -> str:
    """Say how values differ; an empty text if no rule is seen."""
    own, other = found.astype(np.float64), wanted.astype(np.float64)
    likeness = how_different(own, other)
    if likeness is not None and likeness.kind not in ("noise", "other", "rounded"):
        return likeness.text
    return _affine(own, other)


def _joined(calls: Sequence[np.ndarray], number: int) -> np.ndarray:
    """Return all calls' values, with an axis for the calls if there are several of one shape; else
    those of one call.
    """
    alike = len(calls) > 1 and len({each.shape for each in calls}) == 1
    return np.stack(calls) if alike else calls[number]


def _same_elsewhere(own: np.ndarray, key: tuple[int, Side], run: _Compared) -> str | None:
    """Say which other values of the original these are, if they are any: of the same side first."""
    places = sorted(run.whole.items(), key=lambda each: each[0][1] != key[1])
    for (module, side), calls in places:
        for call in calls if (module, side) != key else ():
            for tensor in call.tensors:
                if own.size > 1 and is_near(own, to_array(tensor), _SAME):
                    return f"they are the {side} of {run.paths[module]!r} in the original"
    return None


def _affine(found: np.ndarray, wanted: np.ndarray) -> str:
    if wanted.size < 3 or not np.isfinite(found).all() or not wanted.std():
        return ""
    factor, offset = np.polyfit(wanted.ravel(), found.ravel(), 1)
    if not is_near(found, factor * wanted + offset, _SAME):
        return ""
    return f"they are the original's, multiplied by {factor:.4g}, plus {offset:.4g}"
