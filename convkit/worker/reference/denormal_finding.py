"""Whether the original's results depend on denormal numbers: N306.

Many devices flush them to zero: GPUs in their fast modes, and CPUs in programs that ask for it.
While the original runs on its cases, the processor says whether it met one. Only then does it run
again, on the quickest of these cases, with denormals flushed.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.protocol.messages import CaseRecord
from convkit.protocol.module_naming import module_at
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import Context
from convkit.worker.metrics.magnitudes import rms
from convkit.worker.original.probing.denormal_place import DenormalPlace, changed
from convkit.worker.process.denormal_mode import watching
from convkit.worker.reference.original_model import OnnxOriginal, OriginalModel, TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError

# What an output may change by, in parts of its rms, as for N305: far beyond rounding.
_NOISE = 1e-3
_HALF_NOISE = 0.05
# Beyond the quickest case that met a denormal, further ones run while they take this many seconds.
_MOST_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class _Change:
    """What flushing changes in an output; `share` is in parts of its rms, infinity if only one side
    is finite.
    """

    output: str
    max_abs: float
    share: float


class DenormalWatch:
    """Notes the cases in which the original met a denormal number."""

    def __init__(self, original: OriginalModel, contract: Contract, context: Context) -> None:
        self._original = original
        self._contract = contract
        self._context = context
        self._met: set[str] = set()

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Watch the original in a case."""
        with watching() as seen:
            yield
        if seen.found:
            self._met.add(name)

    @property
    def met(self) -> tuple[str, ...]:
        """The names of the cases in which the original met a denormal number."""
        return tuple(sorted(self._met))

    def findings(self, records: Sequence[CaseRecord], *, half: bool) -> list[Finding]:
        """Return N306 for the first case, from quick to slow, whose outputs change without
        denormals.
        """
        original = self._original
        if not isinstance(original, TorchOriginal | OnnxOriginal):
            return []
        spent = 0.0
        met = (record for record in records if record.name in self._met)
        for record in sorted(met, key=lambda each: each.seconds):
            if spent and spent + record.seconds > _MOST_SECONDS:
                break
            spent += max(record.seconds, 1e-3)
            self._context.progress(f"original model without denormal numbers: {record.name}")
            feeds = self._tensors(record.name, "inputs")
            try:
                flushed = original.run_without_denormals(feeds)
            except RunFailedError:
                continue
            kept = self._tensors(record.name, "outputs")
            change = _largest_change(kept, flushed, _HALF_NOISE if half else _NOISE)
            if change is not None:
                return [_finding(change, record.name, original.denormal_place(feeds))]
        return []

    def _tensors(self, case: str, kind: Literal["inputs", "outputs"]) -> Feeds:
        specs = self._contract.inputs if kind == "inputs" else self._contract.outputs
        return read_tensors(self._context.output, case, kind, specs)


def _largest_change(
    kept: Mapping[str, np.ndarray], flushed: Mapping[str, np.ndarray], noise: float
) -> _Change | None:
    found = []
    for name, values in kept.items():
        if values.dtype.kind != "f" or not values.size or not changed(values, flushed[name], noise):
            continue
        one, other = values.astype(np.float64), flushed[name].astype(np.float64)
        finite = np.isfinite(one)
        if one.shape != other.shape or not np.array_equal(finite, np.isfinite(other)):
            found.append(_Change(name, math.inf, math.inf))
            continue
        largest = float(np.abs(one[finite] - other[finite]).max())
        found.append(_Change(name, largest, largest / rms(one[finite])))
    return max(found, key=lambda each: each.share, default=None)


def _finding(change: _Change, case: str, at: DenormalPlace | None) -> Finding:
    effect = (
        f"changes by up to {change.max_abs:.3g} ({change.share:.2g} times its rms)"
        if math.isfinite(change.share)
        else "is finite in other places"
    )
    message = (
        f"the original depends on denormal numbers, those below {SMALLEST_NORMAL:.3g}: with them"
        f" flushed to zero, {change.output!r} {effect}"
    )
    evidence: dict[str, object] = {"share_of_rms": change.share, "max_abs": change.max_abs}
    place = Place(tensor=change.output, case=case)
    if at is not None:
        where = module_at(at.module, at.source)
        message += f", first in {at.operator} ({f'node {at.node}' if at.node else where})"
        place = dataclasses.replace(place, node=at.node, module=at.module or None, source=at.source)
        evidence |= {"operator": at.operator, "mended_by_larger_constants": at.mended}
    return Finding("N306", message, place, evidence, _remedy(at))


def _remedy(at: DenormalPlace | None) -> Remedy:
    if at is not None and at.mended:
        return Remedy(
            f"Raise every constant below {SMALLEST_NORMAL:.3g}, such as an eps or a weight, to at"
            " least that. Tried: with that number in their place, flushing changes nothing."
        )
    return Remedy(
        "Scale the values up before they become so small, or add an eps that is large beside"
        f" {SMALLEST_NORMAL:.3g} (1e-12) before a division or a logarithm. Not tried."
    )
