"""Leaves out the rows of a case that the original refuses, or has no numbers for."""

from collections.abc import Callable

from convkit.protocol.messages import OmittedCase
from convkit.worker.cases.case import Case, Feeds
from convkit.worker.cases.plain_rows import PlainCase
from convkit.worker.reference.original_outputs import count_nan
from convkit.worker.runtime_interface.sessions import RunFailedError

Run = Callable[[Feeds], Feeds]


def with_defined_rows(case: Case, run: Run) -> tuple[Case, list[OmittedCase]] | None:
    """Return a case that the original refuses as a whole, or returns NaN in, with those of its rows
    that it accepts and has numbers for, and what is left out; None if that is no row, or all.
    """
    if not isinstance(case, PlainCase) or len(case.rows) < 2:
        return None
    kinds = dict.fromkeys(case.rows)  # of which a case may have several rows
    defined = {kind for kind in kinds if _is_defined(case.keeping([kind]).inputs(), run)}
    kept = [row for row in case.rows if row in defined]
    if len(kept) in (0, len(case.rows)) or kept == ["drawn"]:
        return None
    omitted = [
        OmittedCase(f"{case.name}:{row}", "the original refuses it, or returns NaN")
        for row in kinds
        if row not in defined
    ]
    return case.keeping(kept), omitted


def _is_defined(feeds: Feeds, run: Run) -> bool:
    try:
        outputs = run(feeds)
    except RunFailedError:
        return False
    return not any(map(count_nan, outputs.values()))
