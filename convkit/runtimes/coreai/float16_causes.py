"""Why a float16 model is wrong where float32 is right: the first values that float16 cannot hold,
or the modules whose rounding matters. Each is proven by a conversion without it.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from torch.fx import Node

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import LowPrecision
from convkit.protocol.metrics.limits import Limits
from convkit.runtimes.coreai.precision import SearchedModel
from convkit.runtimes.coreai.traced_program import (
    computed_nodes,
    module_of,
    operator_name,
    origin_of,
)
from convkit.runtimes.coreai.trial_conversions import (
    Trials,
    outputs_or_none,
    run_exposed,
    tensor_nodes,
)
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.diagnosis.diagnosis_messages import (
    ABSORBED,
    masked_rows,
    not_finite,
    overflow,
    rounded_to_zero,
)
from convkit.worker.precision.diagnosis.low_precision_remedies import PrecisionRemedies, in_module
from convkit.worker.precision.search.float32_modules import search_modules
from convkit.worker.precision.search_judgment import compared, overshoot_in
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

Values = Mapping[str, np.ndarray]
_LARGEST = LIMITS["float16"].largest
# Operators that return NaN or infinity for a zero argument.
_DIVIDING = frozenset({"div", "reciprocal", "rsqrt", "log", "log2", "log10", "pow"})
_TRIED = 6
# A change explains an error of which it leaves at most this share.
_LEAVES = 0.5


@dataclasses.dataclass(frozen=True)
class _Start:
    """Where values stop being finite: a node, and what makes it so."""

    node: Node
    kind: str  # constant, overflow, zero, masked, other
    reached: float
    operand: str = ""
    rows: int = 0
    total: int = 0


@dataclasses.dataclass(frozen=True)
class Float16Causes:
    """A model in a low precision and a case in which only its float32 conversion is right."""

    trials: Trials
    precision: LowPrecision
    case: str
    judged: JudgedCase
    limits: Mapping[str, Limits]

    def findings(self) -> list[Finding]:
        """Return N201, N202, N203 or N205 for values that are not finite, else N214 for the modules
        whose rounding matters; N209 if nothing in float32 helps.
        """
        before = self._error(self.precision)
        found = [self._finding(start, before) for start in self._starts()[:_TRIED]]
        proven = [each for each in found if each.evidence.get("proven")]
        return proven[:1] or self._rounding(before) or found[:1]

    @property
    def _remedies(self) -> PrecisionRemedies:
        paths = dict.fromkeys(map(module_of, computed_nodes(self.trials.program)))
        return PrecisionRemedies(self.precision, list(paths))

    def _error(self, precision: LowPrecision) -> float:
        """Return by how many times a precision misses the limits in this case."""
        found = outputs_or_none(lambda: self.trials.session(precision), self.judged.feeds)
        return overshoot_in(self.judged, compared(self.judged, found), self.limits)

    def _starts(self) -> list[_Start]:
        """Return where values stop being finite although the original's are."""
        names = tensor_nodes(self.trials.program)
        try:
            session = self.trials.session(self.precision, exposed=names)
            found = run_exposed(session, self.judged.feeds, {})
        except (StageFailedError, ModelRefusedError, RunFailedError):
            return []  # the modules that matter may still be found
        originals = self.trials.originals(self.judged.feeds)
        known = {**self.judged.feeds, **found}
        return list(self._not_finite(known, {**self.judged.feeds, **originals}))

    def _not_finite(self, found: Values, originals: Values) -> Iterator[_Start]:
        _, constants = self.trials.lowered(self.precision)
        beyond = {each.origin.name: each.value for each in constants}
        for node in computed_nodes(self.trials.program):
            value, original = found.get(node.name), originals.get(node.name)
            if value is None or original is None or value.dtype.kind != "f":
                continue
            bad = ~np.isfinite(value) & np.isfinite(original)
            if value.shape != original.shape or not bad.any():
                continue
            inputs = [each for each in node.all_input_nodes if each.name in found]
            before = [each.name for each in inputs if not _is_good(found, originals, each.name)]
            if node.name in beyond:
                yield _Start(node, "constant", beyond[node.name])
            elif not before:
                yield self._start(node, [each.name for each in inputs], found, originals)
            elif operator_name(node) in ("_softmax", "softmax", "_safe_softmax"):
                rows = ~np.isfinite(found[before[0]]).any(-1)
                masked = np.isneginf(found[before[0]]).all(-1)
                if masked.any():
                    yield _Start(node, "masked", 0.0, before[0], int(masked.sum()), int(rows.size))

    def _start(self, node: Node, inputs: Sequence[str], found: Values, originals: Values) -> _Start:
        original = originals[node.name]
        finite = np.abs(original[np.isfinite(original)])
        reached = float(finite.max()) if finite.size else 0.0
        if operator_name(node) in _DIVIDING:
            for name in inputs:
                zero = (found[name] == 0) & (originals[name] != 0)
                if zero.any():
                    return _Start(node, "zero", float(np.abs(originals[name][zero]).max()), name)
        return _Start(node, "overflow" if reached > _LARGEST else "other", reached)

    def _origin(self, node: Node) -> OperationOrigin:
        return origin_of(node, self.trials.prepared.loaded.source_root)

    def _finding(self, start: _Start, before: float) -> Finding:
        origin = self._origin(start.node)
        place = dataclasses.replace(origin.place(self.case), tensor=start.node.name)
        name = f"{start.node.name!r} ({origin})"
        modules = [origin.module, *(module_of(each) for each in start.node.users)]
        keep = self._remedies.keep(list(dict.fromkeys(modules)))
        if start.kind == "constant":
            saturated = dataclasses.replace(self.precision, saturate=True)
            evidence = self._proof(saturated, before)
            remedy = self._remedies.for_constant(start.reached, modules, is_mask=True)
            message = (
                f"the number {start.reached:.6g} at {name} is outside float16's range"
                f" ({_LARGEST:.6g}) and becomes infinite; outputs are then wrong in case"
                f" {self.case!r}"
            )
            return Finding("N201", message, place, evidence, remedy, severity="error")
        if start.kind == "masked":
            saturated = dataclasses.replace(self.precision, saturate=True)
            evidence = self._proof(saturated, before)
            return masked_rows(
                place, start.rows, start.total, "float16", self._remedies, **evidence
            )
        kept = dataclasses.replace(
            self.precision,
            keep_float32=tuple(keep.change["target.precision"].get("keep_float32", ())),
        )
        evidence = {**self._proof(kept, before), "reached": start.reached}
        if start.kind == "zero":
            what = f"{start.operand!r}, up to {start.reached:.3g},"
            message = rounded_to_zero(name, what, "float16", self.case)
            return Finding("N203", message, place, evidence, keep)
        if start.kind == "overflow":
            message = overflow(name, "float16", f"{start.reached:.6g}", _LARGEST, self.case)
            absorbed = math.isfinite(before)
            return Finding("N202", message + (ABSORBED if absorbed else ""), place, evidence, keep)
        message = not_finite(
            name, "float16", f"the original only reaches {start.reached:.6g}", self.case
        )
        return Finding("N202", message, place, evidence, keep)

    def _proof(self, precision: LowPrecision, before: float) -> dict[str, Json]:
        """Return the evidence of a conversion in another precision."""
        after = self._error(precision)
        return {
            "proven": math.isfinite(after) and not after > _LEAVES * before,
            "before": before if math.isfinite(before) else str(before),
            "after": after if math.isfinite(after) else str(after),
            "error_in": "limit",
        }

    def _rounding(self, before: float) -> list[Finding]:
        """Return the modules that must stay in float32 for this case to be within its limits."""
        searched = SearchedModel(self.trials, self.precision)
        found = search_modules(searched, {self.case: self.judged}, self.limits)
        if not found.met or not found.patterns:
            return []
        modules = [m for m in searched.modules if searched.keeps(found.patterns, m)]
        nodes = [n for n in computed_nodes(self.trials.program) if module_of(n) in modules]
        first = next((node for node in nodes if self._origin(node).source), nodes[0])
        origin = self._origin(first)
        kept = dataclasses.replace(self.precision, keep_float32=found.patterns)
        after = self._error(kept)
        evidence: dict[str, Json] = {
            "modules": list(modules),
            "proven": not after > 1,
            "before": before if math.isfinite(before) else str(before),
            "after": after,
            "error_in": "limit",
        }
        named = ", ".join(in_module(each) for each in modules[:3])
        more = f" and {len(modules) - 3} more modules" if len(modules) > 3 else ""
        message = (
            f"rounding to float16 {named}{more} makes most of the error: the outputs are at"
            f" {before:.3g} times their limits in case {self.case!r}, and at {after:.3g} times with"
            " these modules in float32"
        )
        place = Place(
            node=first.name, module=modules[0] or None, source=origin.source or None, case=self.case
        )
        return [Finding("N214", message, place, evidence, self._remedies.keep(modules))]


def _is_good(found: Values, originals: Values, name: str) -> bool:
    value, original = found[name], originals.get(name)
    if value.dtype.kind != "f" or original is None or value.shape != original.shape:
        return True
    return not (~np.isfinite(value) & np.isfinite(original)).any()
