"""Whether a built model's results depend on the calls before: a runtime that plans its memory for
the first sizes it sees may never recover.

The proof is the failing case in two fresh sessions: alone, and after another case.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseRecord, DiagnoseRequest
from convkit.worker.cases.case import sizes_text
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    RunFailedError,
    RuntimeSession,
)

# Relative errors of outputs: of the same kernels run again, and of other results.
_SAME, _OTHER = 1e-5, 1e-3
# Cases that are tried before the failing one.
_MOST_TRIED = 12

Tensors = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Call:
    """A case's inputs, and the outputs that it has in a fresh session."""

    case: CaseRecord
    feeds: Tensors
    alone: Tensors


def earlier_call_finding(
    request: DiagnoseRequest, opened: Callable[[], RuntimeSession], name: str, advice: str
) -> Finding | None:
    """Return N410 if the failing case has other results after another case than alone; None
    otherwise. `opened` opens a fresh session, `name` is the runtime's, `advice` what may help.
    """
    reference, inputs = Path(request.reference), request.contract.inputs
    records = read_cases(reference).cases
    failing = next((each for each in records if each.name == request.case), None)
    if failing is None:
        return None

    def feeds_of(case: CaseRecord) -> Tensors:
        return read_tensors(reference, case.name, "inputs", inputs)

    try:
        feeds = feeds_of(failing)
        call = _Call(failing, feeds, opened().run(feeds))
        if not largest_error(call.alone, opened().run(feeds)) <= _SAME:
            return None  # not even the same twice
        for other in _others(records, failing):
            after = _after(opened(), feeds_of(other), call)
            if after > _OTHER:
                return _finding(name, advice, call, other, after)
    except (RunFailedError, ModelRefusedError):
        return None
    return None


def _others(records: tuple[CaseRecord, ...], failing: CaseRecord) -> Iterator[CaseRecord]:
    """Yield a case for each other choice of sizes, in the order in which they run."""
    seen = [failing.sizes]
    for each in records:
        if each.kind == "ladder" and each.sizes not in seen and len(seen) <= _MOST_TRIED:
            seen.append(each.sizes)
            yield each


def _after(session: RuntimeSession, before: Tensors, call: _Call) -> float:
    """Return how far a case's outputs are, after another call, from those that it has alone."""
    session.run(before)
    return largest_error(call.alone, session.run(call.feeds))


def _finding(name: str, advice: str, call: _Call, other: CaseRecord, after: float) -> Finding:
    case = call.case
    return Finding(
        "N410",
        f"{name} returns something else in case {case.name!r} ({sizes_text(case.sizes)}) after a"
        f" call with {sizes_text(other.sizes)} than in a fresh session: its outputs are off by"
        f" {after:.2g}, with the same inputs",
        Place(case=case.name),
        {"kind": "earlier calls", "proven": True, "before": other.name, "off": after},
        Remedy(
            f"{advice}, write one size for each axis, or open a session of its own for each size:"
            " its results depend on earlier calls. None of these was tried."
        ),
    )
