"""Findings about a Core ML program in float16: the constant, tensor or softmax that causes wrong
results.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.findings.severity import Severity
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion.recorded_constants import LargeConstant
from convkit.runtimes.coreml.packages.input_types import as_served
from convkit.runtimes.coreml.packages.interventions import bad_elements, helps
from convkit.runtimes.coreml.packages.step_trace import StepTrace, Taken, perform, sums
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.evaluation.execution_plan import every_step
from convkit.worker.mil.program import Program
from convkit.worker.precision.diagnosis.diagnosis_messages import (
    ABSORBED,
    harm,
    lost_variance,
    masked_rows,
    not_finite,
    out_of_range,
    overflow,
    rounded_to_zero,
    wide_sum,
)
from convkit.worker.precision.diagnosis.guilty_origins import WrongValueOrigin, guilty, proof
from convkit.worker.precision.diagnosis.low_precision_remedies import PrecisionRemedies, in_module

Feeds = Mapping[str, np.ndarray]

# Operations that return NaN or infinity for a zero argument.
_DIVIDING = frozenset({"inverse", "log", "pow", "real_div", "rsqrt"})
_NO_PROOF: Mapping[str, Json] = {}
# The only low precision in which Core ML programs compute.
_FLOAT16: Final = "float16"
# Alternatives for a mask that overflows.
_OR_SDPA = (
    " Or load the model with attn_implementation: sdpa, which masks by selection instead of"
    " addition."
)
# How many operations at its start and end a chain lists.
_FIRST_STEPS, _LAST_STEPS = 4, 2


class ProgramDiagnosis:
    """A package's program, with facts from its conversion: modules by tensor, and constants beyond
    float16.
    """

    def __init__(
        self,
        program: Program,
        modules: Mapping[str, str],
        constants: Sequence[LargeConstant],
        precision: LowPrecision,
    ) -> None:
        self._program = program
        self._evaluator = Evaluator(program, modules)
        self._constants = constants
        self._precision = precision
        self._limit = LIMITS[precision.default].largest
        self._steps = {step.name: step for step in every_step(self._evaluator.plan)}
        paths = list(dict.fromkeys(step.module for step in self._steps.values()))
        self._remedies = PrecisionRemedies(precision, paths)

    def harmless(self) -> list[Finding]:
        """Return notes (N201) on constants beyond the type's range that affect no output."""
        return [self._constant(constant, None, None) for constant in self._constants]

    def sums(self, feeds: Feeds) -> list[Finding]:
        """Return a warning (N215) for each mean in float16 whose sum is beyond its range."""
        return [
            wide_sum(
                f"{step.operation} {name}",
                Place(tensor=name, node=name, module=step.module or None),
                count,
                largest,
            )
            for name, (step, count, largest) in sums(self._evaluator, self._served(feeds)).items()
            if np.isfinite(largest) and largest > self._limit
        ]

    def diagnose(self, case: str, feeds: Feeds) -> list[Finding]:
        """Explain non-finite outputs in a case in which the original's are finite: N201, N202,
        N203, N205.
        """
        walk = _Walk(self._perform(feeds), self._program)
        roots = walk.roots()
        served = self._served(feeds)
        found = guilty(
            [origin for root in roots for origin in root.origins],
            lambda corrected: bad_elements(self._evaluator, served, corrected),
        )
        if found:
            roots = [each for each in roots if any(one.name in found for one in each.origins)]
        constants = {taken.name for root in roots for taken in root.constants}
        constants &= found.keys() or constants
        evidence = {
            name: proof(found, name) for name in (*constants, *(r.made.name for r in roots))
        }
        findings = [self._judged(each, case, constants, walk, evidence) for each in self._constants]
        if constants:
            findings += self._masked_rows(case, walk, evidence[min(constants)])
        findings += [
            self._tensor(case, root.made, walk, evidence[root.made.name])
            for root in roots
            if not root.constants
        ][:1]
        return sorted(findings, key=lambda finding: not finding.is_error)

    def collapse(self, case: str, feeds: Feeds, *, constant_output: bool = False) -> list[Finding]:
        """Explain outputs that are finite but wrong: an absorbed overflow (N202), or lost
        differences (N204).
        """
        traces = self._perform(feeds)
        overflowed = [each for each in traces.values() if each.overflowed]
        if overflowed:
            evidence = self._with_kept(feeds, self._around(overflowed[0]))
            return [self._tensor(case, overflowed[0], None, evidence)]
        flattened = [each for each in traces.values() if each.flattened]
        if not flattened:
            return []
        evidence = self._with_kept(feeds, [flattened[0].step.module]) if constant_output else {}
        return [self._lost(case, flattened[0], evidence, is_error=constant_output)]

    def _with_kept(self, feeds: Feeds, modules: Sequence[str]) -> dict[str, Json]:
        return helps(self._evaluator, self._served(feeds), modules)

    def _perform(self, feeds: Feeds) -> dict[str, StepTrace]:
        return perform(self._evaluator, self._served(feeds))

    def _served(self, feeds: Feeds) -> dict[str, np.ndarray]:
        features = (*self._program.inputs, *self._program.states)
        types = {feature.name: feature.dtype for feature in features}
        return {
            name: as_served(array, types[name]) for name, array in feeds.items() if name in types
        }

    def _judged(
        self,
        constant: LargeConstant,
        case: str,
        to_blame: AbstractSet[str],
        walk: "_Walk",
        evidence: Mapping[str, dict[str, Json]],
    ) -> Finding:
        name = _named(constant, to_blame)
        if name is None:
            return self._constant(constant, None, walk)
        return self._constant(constant, case, walk, evidence[name])

    def _constant(
        self,
        constant: LargeConstant,
        case: str | None,
        walk: "_Walk | None",
        proof: Mapping[str, Json] = _NO_PROOF,
    ) -> Finding:
        """Return N201: an error if `case` shows harm, otherwise a note."""
        consumer = constant.consumers[0]
        sign = "-" if constant.extreme < 0 else ""
        becomes = {
            "infinity": f"becomes {sign}infinity",
            "saturated": f"is stored as {sign}{self._limit:.6g}",
            "float32": "keeps its consumers in float32",
        }[constant.fate]
        message = (
            out_of_range(constant.constant, constant.extreme, _FLOAT16, self._limit, becomes)
            + f"; {consumer.op} {consumer.tensor!r} {in_module(consumer.module)} uses it"
        )
        chain: tuple[str, ...] = ()
        module, nan_at = consumer.module, None
        remedy: Remedy | None = None
        if case is not None:
            worst = walk.first_nan() if walk is not None else None
            if worst is not None:
                module = worst.step.module or module
                nan_at = f"{worst.step.operation} {worst.name!r} {in_module(worst.step.module)}"
            remedy = self._remedies.for_constant(
                constant.extreme,
                [user.module for user in constant.consumers],
                is_mask=constant.fate == "infinity",
                or_else=_OR_SDPA if constant.can_choose_sdpa else "",
            )
            first = f"constant {constant.constant!r} ({constant.extreme:.6g}) {becomes} in float16"
            chain = (first, *(walk.chain(consumer.tensor) if walk is not None else ()))
        message += harm(case, nan_at)
        evidence: dict[str, Json] = {
            "constant": constant.constant,
            "value": constant.extreme,
            "elements": constant.beyond,
            "fate": constant.fate,
            "consumers": [dataclasses.asdict(each) for each in constant.consumers],
            **proof,
        }
        place = Place(constant.constant, consumer.tensor, module or None, None, case)
        return Finding(
            "N201",
            message,
            place,
            evidence,
            remedy,
            chain,
            severity="note" if case is None else "error",
        )

    def _tensor(
        self, case: str, made: StepTrace, walk: "_Walk | None", proof: Mapping[str, Json]
    ) -> Finding:
        """Return N202 or N203 for the step at which values went bad; without a walk, later steps
        absorb it.
        """
        step = made.step
        name = f"{made.name!r} ({step.operation} {in_module(step.module)})"
        place = Place(made.name, None, step.module or None, None, case)
        chain = walk.chain(made.name) if walk is not None else ()
        evidence: dict[str, Json] = {
            "op": step.operation,
            "computed_magnitude": made.reached,
            **proof,
        }
        if (
            not made.overflowed
            and step.operation in _DIVIDING
            and any(taken.zeros for taken in made.taken)
        ):
            message = rounded_to_zero(name, "an operand", _FLOAT16, case)
            return Finding(
                "N203", message, place, evidence, self._remedies.keep(self._around(made)), chain
            )
        message = (
            overflow(name, _FLOAT16, f"{made.reached:.6g}", self._limit, case)
            if made.overflowed
            else not_finite(name, _FLOAT16, "its operands are", case)
        )
        if walk is None:
            message += ABSORBED
        return Finding(
            "N202", message, place, evidence, self._remedies.keep(self._around(made)), chain
        )

    def _around(self, made: StepTrace) -> list[str]:
        """Return the modules that produce or consume a step's results: they stay in float32
        together.
        """
        results = {result.variable for result in made.step.results}
        takers = [
            step.module
            for step in self._steps.values()
            if any(
                results.intersection(given if isinstance(given, tuple) else (given,))
                for _, given in step.arguments
            )
        ]
        return list(dict.fromkeys([made.step.module, *takers]))

    def _masked_rows(
        self, case: str, walk: "_Walk", proof: Mapping[str, Json]
    ) -> Iterator[Finding]:
        masked = next((each for each in walk.bad if each.masked_rows), None)
        if masked is None:
            return
        place = Place(masked.name, None, masked.step.module or None, None, case)
        yield masked_rows(place, masked.masked_rows, masked.rows, _FLOAT16, self._remedies, **proof)

    def _lost(
        self, case: str, made: StepTrace, proof: Mapping[str, Json], *, is_error: bool
    ) -> Finding:
        step = made.step
        name = f"{made.name!r} ({step.operation} {in_module(step.module)})"
        message = lost_variance(name, made.spread, "before rounding", _FLOAT16, case)
        place = Place(made.name, None, step.module or None, None, case)
        evidence: dict[str, Json] = {"spread": made.spread, "magnitude": made.reached, **proof}
        remedy = self._remedies.keep([step.module])
        severity: Severity = "error" if is_error else "warning"
        return Finding("N204", message, place, evidence, remedy, severity=severity)


@dataclasses.dataclass(frozen=True)
class _Root:
    """The origin of bad values: a step without bad inputs, or with bad constants."""

    made: StepTrace
    constants: tuple[Taken, ...]

    @property
    def origins(self) -> list[WrongValueOrigin]:
        """What to put right to see whether the outputs are then finite."""
        if not self.constants:
            beyond = (self.made.name,) if self.made.overflowed else ()
            return [WrongValueOrigin(self.made.name, is_constant=False, together=beyond)]
        return [WrongValueOrigin(taken.name, is_constant=True) for taken in self.constants]


class _Walk:
    """The path back from non-finite outputs, through steps with non-finite results."""

    def __init__(self, traces: Mapping[str, StepTrace], program: Program) -> None:
        reached: dict[str, None] = {}
        pending = [_maker(variable.name, traces) for variable in program.function.outputs]
        while pending:
            made = pending.pop()
            if made is None or made.name in reached or not (made.nan or made.infinite):
                continue
            reached[made.name] = None
            pending += [traces.get(taken.maker) for taken in _bad(made) if taken.maker is not None]
        # In program order: causes precede their effects.
        self.bad = [each for name, each in traces.items() if name in reached]

    def roots(self) -> list[_Root]:
        """Return the origins of bad values, in program order."""
        roots = []
        for made in self.bad:
            constants = tuple(taken for taken in _bad(made) if taken.is_constant)
            begins = constants or made.overflowed or not _bad(made)
            if begins:
                roots.append(_Root(made, constants))
        return roots

    def first_nan(self) -> StepTrace | None:
        """Return the first step that produces NaN from inputs without NaN."""
        makers = (
            made for made in self.bad if made.nan and not any(taken.nan for taken in made.taken)
        )
        return next(makers, None)

    def chain(self, start: str) -> tuple[str, ...]:
        """Return the path from a step to an output, one operation per line, with the middle
        omitted.

        The step may have the longer name that casting it to float16 added.
        """
        names = {start, f"{start}_cast_fp16"}
        lines = []
        for made in self.bad:
            if made.name in names or any(taken.maker in names for taken in made.taken):
                names.add(made.name)
                what = "NaN" if made.nan else "infinity"
                step = made.step
                lines.append(
                    f"{step.operation} {made.name!r} {in_module(step.module)} returns {what}"
                )
        if len(lines) > _FIRST_STEPS + _LAST_STEPS + 1:
            left = len(lines) - _FIRST_STEPS - _LAST_STEPS
            lines = [*lines[:_FIRST_STEPS], f"... {left} more operations", *lines[-_LAST_STEPS:]]
        return tuple(lines)


def _bad(made: StepTrace) -> Iterable[Taken]:
    return [taken for taken in made.taken if taken.nan or taken.infinite]


def _maker(name: str, traces: Mapping[str, StepTrace]) -> StepTrace | None:
    return next(
        (each for each in traces.values() if name in {result.name for result in each.step.results}),
        None,
    )


def _named(constant: LargeConstant, names: AbstractSet[str]) -> str | None:
    """Return a constant's name in the program, if it is among these: casting it to float16 gave it
    a longer one.
    """
    own = constant.constant
    return next((each for each in names if each == own or each.startswith(f"{own}_to_")), None)
