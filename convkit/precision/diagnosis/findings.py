"""Findings on a target of low precision: which constant, tensor or softmax is to blame for NaN and
infinity.
"""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.codec import Json
from convkit.findings.model import Finding, Place, Remedy
from convkit.findings.severity import Severity
from convkit.float_limits import LIMITS
from convkit.models.graph.loading import load_model
from convkit.models.graph.modules import nodes_with_modules
from convkit.models.graph.preparation import prepare
from convkit.models.graph.provenance import SOURCE_KEY
from convkit.precision.diagnosis.constants import ConstantScan, scan_constants
from convkit.precision.diagnosis.error_growth import TensorError, simulate_with_errors
from convkit.precision.diagnosis.remedies import PrecisionRemedies, in_module
from convkit.precision.diagnosis.root_causes import DIVIDING, BadTensor, Culprits, find_culprits
from convkit.precision.lowering.conversion import convert
from convkit.precision.lowering.plan import (
    Assignment,
    Choice,
    PrecisionPlan,
    assign,
    touches_float32,
)
from convkit.precision.reductions import open_session
from convkit.precision.simulation.graph import low_nodes, simulate, widen
from convkit.worker.protocol import LowPrecision

Feeds = Mapping[str, np.ndarray]

# What multiplies or offsets by more than this hides values; by less, it may scale them, and another
# value is wrong.
_NO_SCALE = 1e6


class PrecisionDoctor:
    """The graph that a target was built from, with what was asked of it.

    A graph that came in low precision is set against itself in float32.
    """

    def __init__(self, exported: Path, precision: LowPrecision) -> None:
        self._precision = precision
        self._model, self._assignment = _in_float32(prepare(load_model(exported)), precision)
        paths = (path for node, path in nodes_with_modules(self._model) if touches_float32(node))
        self._paths = list(dict.fromkeys(paths))
        self._remedies = PrecisionRemedies(precision, self._paths)
        self._sources = {
            node.name: node.metadata_props.get(SOURCE_KEY, "")
            for node in self._model.graph.all_nodes()
        }
        self._scans = scan_constants(self._model, precision.default, self._assignment)

    def harmless(self) -> list[Finding]:
        """Return notes (N201) on the constants beyond the type's range, where no output suffers
        from them.
        """
        return [self._constant(scan, None, None) for scan in self._scans if scan.overflowing]

    def diagnose(self, case: str, feeds: Feeds) -> list[Finding]:
        """Say why outputs are not finite in a case in which float32's are: N201, N202, N203, N205."""
        errors = self._errors(case, feeds)
        culprits = find_culprits(
            self._model, self._precision.default, errors, self._overflowing_scans()
        )
        guilty = {scan.constant for scan in culprits.constants}
        findings = [
            self._constant(scan, case if scan.constant in guilty else None, culprits)
            for scan in self._scans
            if scan.overflowing
        ]
        findings += self._masked_rows(case, feeds, culprits)
        findings += [
            self._tensor(case, bad) for bad in culprits.tensors[:1]
        ]  # the others may well follow from it
        return sorted(findings, key=lambda finding: not finding.is_error)

    def collapse(self, case: str, feeds: Feeds, *, constant_output: bool = False) -> list[Finding]:
        """Say why outputs are finite and off: an overflow that was absorbed (N202), or a lost
        variance (N204).

        The latter is a warning, and an error where an output is constant too (`constant_output`).
        """
        errors = self._errors(case, feeds)
        culprits = find_culprits(
            self._model, self._precision.default, errors, self._overflowing_scans(), absorbed=True
        )
        if culprits.tensors:
            return [self._tensor(case, culprits.tensors[0], absorbed=True)]
        lost = [error for error in errors if error.collapsed and not error.nonfinite_simulated]
        return (
            [self._lost(case, lost[0], "error" if constant_output else "warning")] if lost else []
        )

    def _overflowing_scans(self) -> list[ConstantScan]:
        """Return the constants without those that are stored as the type's largest value instead of
        infinity.
        """
        saturate = self._precision.saturate
        return [scan for scan in self._scans if not (saturate and scan.overflowing)]

    def _errors(self, case: str, feeds: Feeds) -> tuple[TensorError, ...]:
        saturate = self._precision.saturate
        cases = {case: feeds}
        return simulate_with_errors(
            self._model, self._assignment, cases, saturate=saturate, threads=_threads()
        )

    def _constant(self, scan: ConstantScan, case: str | None, culprits: Culprits | None) -> Finding:
        """Return N201: an error where `case` shows harm, else a note."""
        softmax = culprits.softmax if culprits is not None else None
        dtype, consumer = self._precision.default, scan.consumers[0]
        stored = f"{LIMITS[dtype].largest:.6g}" if self._precision.saturate else "infinity"
        message = (
            f"constant {scan.constant!r} ({scan.extreme:.6g}) is beyond {dtype}'s range"
            f" ({LIMITS[dtype].largest:.6g}) and becomes {stored}; {consumer.op}"
            f" {in_module(consumer.module)} takes it"
        )
        module = consumer.module
        if case is None:
            message += "; no output suffers from it in any case"
        elif softmax is not None:
            module = softmax.error.module or module
            message += (
                f"; so the softmax {in_module(softmax.error.module)} gives NaN in case {case!r}"
            )
        else:
            message += f"; so outputs are not finite in case {case!r}"
        if scan.is_mask and scan.extreme is not None and abs(scan.extreme) > _NO_SCALE:
            remedy = Remedy(
                "Store what is beyond the range as the type's largest value: a mask needs no more.",
                self._remedies.saturated(),
            )
        else:
            remedy = self._remedies.keep([user.module for user in scan.consumers])
        return Finding(
            "N201",
            message,
            self._place(scan.constant, consumer.node, module, case),
            {
                "constant": scan.constant,
                "value": scan.extreme,
                "elements": scan.overflowing,
                "saturated": self._precision.saturate,
                "consumers": [
                    {"op": u.op, "node": u.node, "module": u.module} for u in scan.consumers
                ],
            },
            None if case is None else remedy,
            (
                self._constant_chain(scan, stored, culprits)
                if case is not None and culprits is not None
                else ()
            ),
        )

    def _constant_chain(
        self, scan: ConstantScan, stored: str, culprits: Culprits
    ) -> tuple[str, ...]:
        sign = "-" if (scan.extreme or 0.0) < 0 else ""
        first = (
            f"constant {scan.constant!r} ({scan.extreme:.6g}) becomes {sign}{stored} in"
            f" {self._precision.default}"
        )
        return (first, *culprits.chains.get(scan.constant, ()))

    def _place(self, tensor: str, node: str, module: str, case: str | None) -> Place:
        return Place(tensor, node or None, module or None, self._sources.get(node) or None, case)

    def _tensor(self, case: str, bad: BadTensor, *, absorbed: bool = False) -> Finding:
        error, dtype = bad.error, self._precision.default
        place = self._place(error.tensor, error.node, error.module, case)
        evidence: dict[str, Json] = {"op": error.op, "float32_magnitude": error.reference}
        name = f"{error.tensor!r} ({error.op} {in_module(error.module)})"
        if not bad.overflows and (bad.flushed is not None or error.op in DIVIDING):
            why = "an operand that is not zero in float32"
            if bad.flushed is not None:
                evidence |= {"constant": bad.flushed.constant, "value": bad.flushed.largest}
                why = (
                    f"constant {bad.flushed.constant!r} ({bad.flushed.largest:.6g}), which"
                    " guards it"
                )
            message = f"{dtype} rounds {why}, to zero, and {name} is not finite in case {case!r}"
            return Finding(
                "N203", message, place, evidence, self._remedies.keep(bad.modules), bad.chain
            )
        limit = f"{LIMITS[dtype].largest:.6g}"
        message = (
            f"{name} overflows {dtype}: up to {error.reference:.6g} in float32, the limit is"
            f" {limit}"
        )
        if not bad.overflows:
            message = (
                f"{name} is not finite in {dtype}, though at most {error.reference:.6g} in float32"
            )
        message += f", in case {case!r}"
        if absorbed:
            message += "; what follows absorbs it, so that outputs are finite and wrong"
        return Finding(
            "N202", message, place, evidence, self._remedies.keep(bad.modules), bad.chain
        )

    def _masked_rows(self, case: str, feeds: Feeds, culprits: Culprits) -> list[Finding]:
        softmax = culprits.softmax
        if softmax is None or not culprits.constants:
            return []
        taken = self._simulated(softmax.input, feeds)
        masked = np.all(np.isneginf(taken), axis=softmax.axis)
        if not masked.any():
            return []
        first = [int(index) for index in np.argwhere(masked)[0]]
        rows = int(np.count_nonzero(masked))
        message = (
            f"{rows} of {masked.size} rows of the softmax {in_module(softmax.error.module)} are"
            f" masked whole in case {case!r}: all their positions are -inf in"
            f" {self._precision.default}, and a softmax of nothing is NaN"
        )
        return [
            Finding(
                "N205",
                message,
                self._place(softmax.error.tensor, softmax.error.node, softmax.error.module, case),
                {"rows": rows, "first": list(first)},
                Remedy("Mask with a finite value.", self._remedies.saturated()),
            )
        ]

    def _lost(self, case: str, error: TensorError, severity: Severity) -> Finding:
        return Finding(
            "N204",
            f"{error.tensor!r} ({error.op} {in_module(error.module)}) varies by"
            f" {error.spread_reference:.6g} in float32 and not at all in {self._precision.default},"
            f" in case {case!r}",
            self._place(error.tensor, error.node, error.module, case),
            {"spread_float32": error.spread_reference, "magnitude_float32": error.reference},
            self._remedies.keep([error.module]),
            severity=severity,
        )

    def _simulated(self, tensor: str, feeds: Feeds) -> np.ndarray:
        """Return one tensor's values under the simulation."""
        lowered = convert(self._model, self._assignment, saturate=self._precision.saturate).model
        model = simulate(lowered)
        values = {value.name: value for node in model.graph for value in node.outputs}
        model.graph.outputs.clear()
        model.graph.outputs.append(values[tensor])
        with tempfile.TemporaryDirectory(prefix="convkit-") as folder:
            path = Path(folder) / "simulation.onnx"
            ir.save(model, path, external_data=f"{path.name}.data")
            found: np.ndarray = open_session(path, None, _threads()).run([tensor], dict(feeds))[0]
        return found


def _in_float32(model: ir.Model, precision: LowPrecision) -> tuple[ir.Model, Assignment]:
    """Return a graph in float32, and which nodes are low: those of the plan, or those that came so."""
    low = low_nodes(model)
    if not low:
        return model, assign(model, PrecisionPlan(precision.default, precision.patterns))
    widened = widen(model)
    assignment = assign(widened, PrecisionPlan(precision.default, precision.patterns))
    choices = {
        node: (
            choice
            if any(value.name in low for value in node.outputs)
            else Choice("float32", "as the graph came")
        )
        for node, choice in assignment.choices.items()
    }
    return widened, dataclasses.replace(assignment, choices=choices)


def _threads() -> int | None:
    count = os.environ.get("OMP_NUM_THREADS", "")
    return int(count) if count.isdigit() else None
