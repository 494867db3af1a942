"""The kinds of difference between a run and its baseline."""

import dataclasses
from collections.abc import Iterator, Mapping

from convkit.host.nightly.nightly_record import FaultKind, NightlyFault


@dataclasses.dataclass(frozen=True)
class Better:
    """An improvement over the baseline."""

    message: str


@dataclasses.dataclass(frozen=True)
class Note:
    """A difference that is neither better nor worse."""

    message: str


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """What the baseline's processor explains: figures that are equal within rounding, or that are
    of other integer kernels and so not comparable. Neither better nor worse.
    """

    message: str


Change = NightlyFault | Better | Note | Elsewhere


def changed_keys(
    kind: FaultKind,
    before: Mapping[str, str],
    now: Mapping[str, str],
    prefix: str,
    target: str = "",
) -> Iterator[Change]:
    """Compare keys and their values; every difference is a fault."""
    for key in dict.fromkeys([*before, *now]):
        if before.get(key) != now.get(key):
            was, found = before.get(key, "(absent)"), now.get(key, "(absent)")
            message = f"{prefix}{key}: {was} -> {found}"
            yield NightlyFault(kind, f"{prefix}{key}" if target else key, message, target)
