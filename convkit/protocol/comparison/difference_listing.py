"""Collects differences, up to a readable number, and rates the similarity of two files."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from convkit.protocol.comparison.json_values import first_difference
from convkit.protocol.messages import Difference, DifferenceKind, Likeness

T = TypeVar("T")

LONGEST_LIST = 50
_LONGEST_TEXT = 200


@dataclasses.dataclass
class Listing:
    """The differences found so far: `mild` are weights within epsilon, others `severe`."""

    severe: list[Difference] = dataclasses.field(default_factory=list)
    mild: list[Difference] = dataclasses.field(default_factory=list)
    severe_count: int = 0
    mild_count: int = 0

    def add(
        self,
        kind: DifferenceKind,
        place: str,
        first: str = "",
        second: str = "",
        detail: str = "",
        *,
        within: bool = False,
    ) -> None:
        """Add a difference. `within`: a difference in weights within epsilon."""
        if within:
            self.mild_count += 1
        else:
            self.severe_count += 1
        found = self.mild if within else self.severe
        if len(found) < LONGEST_LIST:
            found.append(Difference(kind, place, shortened(first), shortened(second), detail))

    def compare(
        self, kind: DifferenceKind, place: str, first: str, second: str, detail: str = ""
    ) -> None:
        """Compare two texts that should be equal."""
        if first != second:
            self.add(kind, place, first, second, detail)

    def compare_texts(
        self, place: str, first: Mapping[str, str], second: Mapping[str, str], detail: str = ""
    ) -> None:
        """Compare two metadata maps. For JSON texts, report the first key that differs."""
        for key in dict.fromkeys([*first, *second]):
            if first.get(key) == second.get(key):
                continue
            where = f"{place} {key}".strip()
            if key not in first or key not in second:
                likenesses = (
                    "only the second has this key"
                    if key not in first
                    else "only the first has this key"
                )
                self.add(
                    "metadata",
                    where,
                    first.get(key, ""),
                    second.get(key, ""),
                    _joined(detail, likenesses),
                )
            else:
                self.add(
                    "metadata",
                    where,
                    first[key],
                    second[key],
                    _joined(detail, _in_json(first[key], second[key])),
                )

    @property
    def likeness(self) -> Likeness:
        """The similarity of two files with different content."""
        if self.severe_count:
            return "DIFFERENT"
        return "STRUCTURAL" if self.mild_count else "CANONICAL_IDENTICAL"

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences to list: severe ones first, and last the number of omitted ones."""
        listed = [*self.severe, *self.mild]
        total = self.severe_count + self.mild_count
        if total <= LONGEST_LIST:
            return tuple(listed)
        # The last entry counts toward the limit.
        kept = listed[: LONGEST_LIST - 1]
        return (
            *kept,
            Difference("more", "", detail=f"{total - len(kept)} more differences are not listed"),
        )


def message_text(message: object) -> str:
    """Format a protocol buffer as one line; distinct contents have distinct lines."""
    return " ".join(line.strip() for line in str(message).split("\n")).strip()


def shortened(text: str) -> str:
    """Shorten a text that is too long for a line."""
    return (
        text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
    )


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _in_json(first: str, second: str) -> str:
    try:
        found = first_difference(json.loads(first), json.loads(second))
    except ValueError:  # not JSON, as metadata need not be
        return ""
    if found is None:
        return "the same JSON, formatted differently"
    return f"first at {found.path}: {shortened(found.first)} became {shortened(found.second)}"


def both(first: T | None, second: T | None, text: Callable[[T], str]) -> tuple[str, str]:
    """Format both sides, with an empty text for a missing one."""
    return "" if first is None else text(first), "" if second is None else text(second)


def named_pairs(
    first: Iterable[tuple[str, Any]], second: Iterable[tuple[str, Any]]
) -> Iterable[tuple[str, Any | None, Any | None]]:
    """Yield the values of both sides by name, with None for a missing one."""
    own, other = dict(first), dict(second)
    for name in dict.fromkeys([*own, *other]):
        yield name, own.get(name), other.get(name)
