"""Findings about a low-precision target: the constant, tensor or softmax that causes NaN and
infinity.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.findings.severity import Severity
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import LowPrecision
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.diagnosis.counterfactual import Interventions, helps, keeping, proven
from convkit.worker.precision.diagnosis.diagnosis_messages import (
    ABSORBED,
    harm,
    lost_variance,
    masked_rows,
    not_finite,
    out_of_range,
    overflow,
    rounded_to_zero,
)
from convkit.worker.precision.diagnosis.guilty_origins import proof
from convkit.worker.precision.diagnosis.low_precision_remedies import (
    PrecisionRemedies,
    in_module,
    saturates,
)
from convkit.worker.precision.diagnosis.overflow_origins import (
    DIVIDING,
    BadTensor,
    RootCauses,
    find_root_causes,
)
from convkit.worker.precision.diagnosis.rounding_growth import TensorError, simulate_with_errors
from convkit.worker.precision.diagnosis.simulated_tensor import simulated_tensor
from convkit.worker.precision.diagnosis.taken_branches import open_taken_branches
from convkit.worker.precision.diagnosis.unrepresentable_constants import (
    ConstantScan,
    scan_constants,
)
from convkit.worker.precision.lowering.precision_plan import (
    Assignment,
    PrecisionPlan,
    TypeChoice,
    assign,
    touches_float32,
)
from convkit.worker.precision.simulation.float32_graph import in_float32
from convkit.worker.precision.simulation.simulated_graph import low_nodes, widen
from convkit.worker.precision.threads import threads

Feeds = Mapping[str, np.ndarray]

# A row is masked if a finite mask makes more than this share of it finite.
_MASKED = 0.5


class PrecisionDiagnosis:
    """The graph that a target was built from, with the requested precision.

    A graph that was already in low precision is compared with its float32 version.
    """

    def __init__(self, exported: Path, precision: LowPrecision) -> None:
        self._precision = precision
        self._adopt(*_in_float32(prepare(load_model(exported)), precision))

    def _adopt(self, model: ir.Model, assignment: Assignment) -> None:
        precision = self._precision
        self._model, self._assignment = model, assignment
        paths = (path for node, path in nodes_with_modules(self._model) if touches_float32(node))
        self._paths = list(dict.fromkeys(paths))
        self._remedies = PrecisionRemedies(precision, self._paths)
        self._sources = {
            node.name: node.metadata_props.get(SOURCE_KEY, "")
            for node in self._model.graph.all_nodes()
        }
        self._scans = scan_constants(self._model, precision.default, self._assignment)

    def _open_branches(self, feeds: Feeds) -> None:
        """Move the branches that a case takes into the main graph."""
        opened = open_taken_branches(self._model, feeds, threads())
        if opened is self._model:
            return
        low = {
            value.name
            for node, choice in self._assignment.choices.items()
            if choice.dtype != "float32"
            for value in node.outputs
        }
        self._adopt(opened, _assigned(opened, self._precision, low))

    def harmless(self) -> list[Finding]:
        """Return notes (N201) on constants beyond the type's range that affect no output."""
        return [self._constant(scan, None, None) for scan in self._scans if scan.overflowing]

    def diagnose(self, case: str, feeds: Feeds) -> list[Finding]:
        """Explain non-finite outputs in a case in which float32's are finite: N201, N202, N203,
        N205.
        """
        self._open_branches(feeds)
        errors = self._errors(case, feeds)
        self._scans = tuple(_proven_mask(scan, errors) for scan in self._scans)
        root_causes = find_root_causes(
            self._model, self._precision.default, errors, self._overflowing_scans()
        )
        root_causes = proven(root_causes, self._interventions(feeds).count)
        guilty = {scan.constant for scan in root_causes.constants}
        findings = [
            self._constant(scan, case if scan.constant in guilty else None, root_causes)
            for scan in self._scans
            if scan.overflowing
        ]
        findings += self._masked_rows(case, feeds, root_causes)
        findings += [
            self._tensor(case, bad, root_causes) for bad in root_causes.tensors[:1]
        ]  # the others may be consequences
        return sorted(findings, key=lambda finding: not finding.is_error)

    def collapse(self, case: str, feeds: Feeds, *, constant_output: bool = False) -> list[Finding]:
        """Explain outputs that are finite but wrong: an absorbed overflow (N201, N202), or a lost
        variance (N204). Constants that are not to blame are notes (N201).

        N204 is a warning, or an error if an output is also constant (`constant_output`).
        """
        self._open_branches(feeds)
        errors = self._errors(case, feeds)
        self._scans = tuple(_proven_mask(scan, errors) for scan in self._scans)
        root_causes = find_root_causes(
            self._model, self._precision.default, errors, self._overflowing_scans(), absorbed=True
        )
        guilty = {scan.constant for scan in root_causes.constants}
        findings = [
            self._constant(
                scan, case if scan.constant in guilty else None, root_causes, absorbed=True
            )
            for scan in self._scans
            if scan.overflowing
        ]
        findings.sort(key=lambda finding: not finding.is_error)
        modules: list[str] = []
        if guilty:
            users = (user for scan in root_causes.constants for user in scan.consumers)
            modules = [user.module for user in users]
        elif root_causes.tensors:
            findings.append(self._tensor(case, root_causes.tensors[0], root_causes, absorbed=True))
            modules = list(root_causes.tensors[0].modules)
        elif lost := [each for each in errors if each.collapsed and not each.nonfinite_simulated]:
            findings.append(self._lost(case, lost[0], "error" if constant_output else "warning"))
            modules = [lost[0].module]
        return self._with_modules_kept(findings, modules, case, feeds, errors)

    def _with_modules_kept(
        self,
        findings: Sequence[Finding],
        modules: Sequence[str],
        case: str,
        feeds: Feeds,
        errors: Sequence[TensorError],
    ) -> list[Finding]:
        """Return findings with the outputs' error in a case if these modules compute in float32, or
        if the constants are saturated that a remedy saturates.
        """
        if not any(finding.is_error for finding in findings):
            return list(findings)
        kept = self._errors(case, feeds, keeping(self._model, self._assignment, modules))
        evidence = helps(self._model, errors, kept)
        saturated: dict[str, Json] | None = None
        if any(finding.is_error and saturates(finding) for finding in findings):
            saturated = helps(self._model, errors, self._errors(case, feeds, saturate=True))
        return [
            dataclasses.replace(
                finding,
                evidence={
                    **finding.evidence,
                    **(saturated if saturated and saturates(finding) else evidence),
                },
            )
            if finding.is_error
            else finding
            for finding in findings
        ]

    def _overflowing_scans(self) -> list[ConstantScan]:
        """Return the constants, except those stored as the type's largest value instead of
        infinity.
        """
        saturate = self._precision.saturate
        return [scan for scan in self._scans if not (saturate and scan.overflowing)]

    def _errors(
        self,
        case: str,
        feeds: Feeds,
        assignment: Assignment | None = None,
        *,
        saturate: bool = False,
    ) -> tuple[TensorError, ...]:
        """Simulate a case; `assignment` is the precision's own unless given, and constants are
        saturated if `saturate` or the precision says so.
        """
        return simulate_with_errors(
            self._model,
            assignment or self._assignment,
            {case: feeds},
            saturate=saturate or self._precision.saturate,
            threads=threads(),
        )

    def _interventions(self, feeds: Feeds) -> Interventions:
        saturate, most = self._precision.saturate, threads()
        return Interventions(self._model, self._assignment, feeds, saturate=saturate, threads=most)

    def _constant(
        self,
        scan: ConstantScan,
        case: str | None,
        root_causes: RootCauses | None,
        *,
        absorbed: bool = False,
    ) -> Finding:
        """Return N201: an error if `case` shows harm, otherwise a note. If it is `absorbed`, the
        outputs of that case are finite but wrong.
        """
        softmax = root_causes.softmax if root_causes is not None else None
        dtype, consumer = self._precision.default, scan.consumers[0]
        stored = f"{LIMITS[dtype].largest:.6g}" if self._precision.saturate else "infinity"
        message = (
            out_of_range(
                scan.constant, scan.extreme, dtype, LIMITS[dtype].largest, f"becomes {stored}"
            )
            + f"; {consumer.op} {in_module(consumer.module)} uses it"
        )
        module, nan_at = consumer.module, None
        if case is not None and softmax is not None:
            module = softmax.error.module or module
            nan_at = f"the softmax {in_module(softmax.error.module)}"
        message += harm(case, nan_at, absorbed=absorbed)
        remedy = self._remedies.for_constant(
            scan.extreme, [user.module for user in scan.consumers], is_mask=scan.is_mask
        )
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
                **({} if root_causes is None else proof(root_causes.guilt, scan.constant)),
            },
            None if case is None else remedy,
            (
                self._constant_chain(scan, stored, root_causes)
                if case is not None and root_causes is not None
                else ()
            ),
            severity="note" if case is None else "error",
        )

    def _constant_chain(
        self, scan: ConstantScan, stored: str, root_causes: RootCauses
    ) -> tuple[str, ...]:
        sign = "-" if (scan.extreme or 0.0) < 0 else ""
        first = (
            f"constant {scan.constant!r} ({scan.extreme:.6g}) becomes {sign}{stored} in"
            f" {self._precision.default}"
        )
        return (first, *root_causes.chains.get(scan.constant, ()))

    def _place(self, tensor: str, node: str, module: str, case: str | None) -> Place:
        return Place(tensor, node or None, module or None, self._sources.get(node) or None, case)

    def _tensor(
        self, case: str, bad: BadTensor, causes: RootCauses, *, absorbed: bool = False
    ) -> Finding:
        error, dtype = bad.error, self._precision.default
        place = self._place(error.tensor, error.node, error.module, case)
        evidence: dict[str, Json] = {
            "op": error.op,
            "float32_magnitude": error.reference,
            **proof(causes.guilt, bad.begins),
        }
        name = f"{error.tensor!r} ({error.op} {in_module(error.module)})"
        if not bad.overflows and (bad.flushed is not None or error.op in DIVIDING):
            why = "an operand that is not zero in float32"
            if bad.flushed is not None:
                evidence |= {"constant": bad.flushed.constant, "value": bad.flushed.largest}
                why = (
                    f"the constant {bad.flushed.constant!r} ({bad.flushed.largest:.6g}) that"
                    " guards it"
                )
            message = rounded_to_zero(name, why, dtype, case)
            return Finding(
                "N203", message, place, evidence, self._remedies.keep(bad.modules), bad.chain
            )
        reached = f"{error.reference:.6g} in float32"
        message = (
            overflow(name, dtype, reached, LIMITS[dtype].largest, case)
            if bad.overflows
            else not_finite(name, dtype, f"it reaches only {reached}", case)
        )
        if absorbed:
            message += ABSORBED
        return Finding(
            "N202", message, place, evidence, self._remedies.keep(bad.modules), bad.chain
        )

    def _masked_rows(self, case: str, feeds: Feeds, root_causes: RootCauses) -> list[Finding]:
        softmax = root_causes.softmax
        if softmax is None or not root_causes.constants:
            return []
        given = (self._model, self._assignment, softmax.input, feeds)
        taken = simulated_tensor(*given, saturate=self._precision.saturate)
        if taken is None:
            return []
        masked = np.all(np.isneginf(taken), axis=softmax.axis)
        if masked.any():
            # What is not finite with a finite mask either has overflowed by itself; a masked score
            # far below zero may as well.
            saturated = simulated_tensor(*given, saturate=True)
            assert saturated is not None  # as above
            masked &= np.isfinite(saturated).mean(axis=softmax.axis) > _MASKED
        if not masked.any():
            return []
        first = [int(index) for index in np.argwhere(masked)[0]]
        rows = int(np.count_nonzero(masked))
        error = softmax.error
        place = self._place(error.tensor, error.node, error.module, case)
        dtype = self._precision.default
        evidence = proof(root_causes.guilt, root_causes.constants[0].constant)
        return [
            masked_rows(place, rows, masked.size, dtype, self._remedies, first=[*first], **evidence)
        ]

    def _lost(self, case: str, error: TensorError, severity: Severity) -> Finding:
        return Finding(
            "N204",
            lost_variance(
                f"{error.tensor!r} ({error.op} {in_module(error.module)})",
                error.spread_reference,
                "in float32",
                self._precision.default,
                case,
            ),
            self._place(error.tensor, error.node, error.module, case),
            {"spread_float32": error.spread_reference, "magnitude_float32": error.reference},
            self._remedies.keep([error.module]),
            severity=severity,
        )


def _in_float32(model: ir.Model, precision: LowPrecision) -> tuple[ir.Model, Assignment]:
    """Return a graph in float32, and its low-precision nodes: the plan's, or those that already
    were.
    """
    model, _ = in_float32(model, precision.default)
    low = low_nodes(model)
    if not low:
        return model, assign(model, PrecisionPlan(precision.default, precision.patterns))
    widened = widen(model)
    return widened, _assigned(widened, precision, low)


def _assigned(model: ir.Model, precision: LowPrecision, low: AbstractSet[str | None]) -> Assignment:
    """Return an assignment in which only nodes with one of the results `low` are low."""
    assignment = assign(model, PrecisionPlan(precision.default, precision.patterns))
    choices = {
        node: (
            choice
            if any(value.name in low for value in node.outputs)
            else TypeChoice("float32", "as the graph came")
        )
        for node, choice in assignment.choices.items()
    }
    return dataclasses.replace(assignment, choices=choices)


def _proven_mask(scan: ConstantScan, errors: Sequence[TensorError]) -> ConstantScan:
    """Return a scan that is not a mask if it visibly multiplies anything but zeros and ones: then
    it is a scale, which must not be saturated.
    """
    multiplying = {user.node for user in scan.consumers if user.op == "Mul"}
    results = [error for error in errors if error.op == "Mul" and error.node in multiplying]
    sizes = (0.0, abs(scan.extreme or 0.0))
    scales = any(
        result.reference not in sizes or result.spread_reference not in sizes for result in results
    )
    return dataclasses.replace(scan, is_mask=scan.is_mask and not scales)
