"""Which sizes of each axis and which kinds of values a run tried, beside what the recipe declares:
a fault may exist at one size only, or for rows of zeros.
"""

import dataclasses
from collections.abc import Callable, Iterator

from convkit.host.record.run_record import RunRecord
from convkit.protocol.messages import EVERY_NUMBER, is_at_decisions, is_of_plain_rows, is_usual

# Sizes that are listed, and axes that a line on the terminal has room for.
_LISTED, _MOST_AXES = 8, 4


@dataclasses.dataclass(frozen=True)
class TriedSizes:
    """An axis, the range that the recipe declares, and the sizes that every verification tried."""

    axis: str
    low: int
    high: int
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.axis} {_listed(self.sizes)} of {self.low} to {self.high}"


def tried_sizes(record: RunRecord) -> tuple[TriedSizes, ...]:
    """Return the sizes that were tried, axis by axis; none if nothing was verified."""
    verified = [
        [case.sizes for case in verification.cases]
        for target in record.targets
        for verification in target.verifications
        if verification.cases
    ]
    found = []
    for axis in record.contract.axes:
        of_each = [
            {sizes[axis.name] for sizes in cases if axis.name in sizes} for cases in verified
        ]
        if of_each and (common := set.intersection(*of_each)):
            found.append(TriedSizes(axis.name, axis.min, axis.max, tuple(sorted(common))))
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class TriedValues:
    """A kind of values, and the cases in which it was tried, none if it was not. A case that not
    every target ran is followed by those that did: `plain-rows:huge (ort-cpu)`.
    """

    kind: str
    cases: tuple[str, ...]


def tried_values(record: RunRecord) -> tuple[TriedValues, ...]:
    """Return the kinds of values that were tried, and those that were not; none if nothing was
    verified.
    """
    verified = [
        (target.name, {case.case: case.description for case in verification.cases})
        for target in record.targets
        for verification in target.verifications
        if verification.cases
    ]
    if not verified:
        return ()
    described = {name: text for _, cases in verified for name, text in cases.items()}
    shown = {name: _with_targets(name, verified) for name in described}
    found = (
        TriedValues(
            kind, tuple(shown[name] for name, text in described.items() if is_one(name, text))
        )
        for kind, is_one in _KINDS.items()
    )
    return tuple(each for each in found if each.cases or each.kind != _EVERY_ID)


def _with_targets(case: str, verified: list[tuple[str, dict[str, str]]]) -> str:
    ran = [case in cases for _, cases in verified]
    if all(ran):
        return case
    names = dict.fromkeys(name for (name, _), did in zip(verified, ran, strict=True) if did)
    return f"{case} ({', '.join(names)})"


def _rows(what: str) -> Callable[[str, str], bool]:
    return lambda name, text: is_of_plain_rows(name) and what in text


# Listed only if it was tried: the largest case may have room for all of them, or there are none.
_EVERY_ID = "every whole number in an input's range, in cases of their own"
# Each kind of values, and which cases have it, by name and description.
_KINDS: dict[str, Callable[[str, str], bool]] = {
    "drawn from the samples": lambda name, _: is_usual(name),
    "the ends of every range": lambda name, _: name == "extreme",
    "rows of zeros, or the nearest legal value": _rows("zeros"),
    "rows of one value throughout": _rows("one value throughout"),
    "rows equal to another": _rows("equal to another"),
    "one huge value": _rows("one huge value"),
    "rows of tiny values": _rows("tiny values"),
    _EVERY_ID: lambda name, _: name.startswith(EVERY_NUMBER),
    "values beside those that the model compares with or branches on": lambda name, _: (
        name.startswith("values") or is_at_decisions(name)
    ),
}


def fixed_sizes(record: RunRecord) -> tuple[str, ...]:
    """Return the inputs that have a size of their own which is always the same."""
    return tuple(
        f"{spec.name} [{', '.join(map(str, spec.shape))}]"
        for spec in record.contract.inputs
        if any(isinstance(size, int) and size > 1 for size in spec.shape)
    )


def sizes_line(record: RunRecord) -> str | None:
    """Return what was tried as one line; None if nothing was verified, or no size is known."""
    verified = any(each.cases for target in record.targets for each in target.verifications)
    tried, fixed = tried_sizes(record), fixed_sizes(record)
    if not verified or not (tried or fixed):
        return None
    shown = [*_shown(tried)]
    if fixed:
        others = len(fixed) - 1
        more = f" and {others} other input{'' if others == 1 else 's'}" if others else ""
        shown.append(f"other sizes are fixed: {fixed[0]}{more}")
    return f"Sizes tried: {'; '.join(shown)}."


def _shown(tried: tuple[TriedSizes, ...]) -> Iterator[str]:
    yield from map(str, tried[:_MOST_AXES])
    if len(tried) > _MOST_AXES:
        yield f"those of {len(tried) - _MOST_AXES} more axes are in the report"


def _listed(sizes: tuple[int, ...]) -> str:
    if len(sizes) <= _LISTED:
        return ", ".join(map(str, sizes))
    first = ", ".join(map(str, sizes[: _LISTED - 2]))
    return f"{first} ... {sizes[-1]} ({len(sizes)} sizes)"
