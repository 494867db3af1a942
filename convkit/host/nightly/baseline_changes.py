"""The kinds of difference between a run and its baseline."""

import dataclasses

from convkit.host.nightly.nightly_record import NightlyFault


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
