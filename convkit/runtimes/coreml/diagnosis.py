"""Findings on a Core ML program in float16: which constant, tensor or softmax is to blame for what
is off.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from convkit.codec import Json
from convkit.findings.model import Finding, Place, Remedy
from convkit.findings.severity import Severity
from convkit.float_limits import LIMITS
from convkit.mil.evaluator import Evaluator
from convkit.mil.plan import every_step
from convkit.mil.program import Program
from convkit.precision.diagnosis.remedies import PrecisionRemedies, in_module
from convkit.runtimes.coreml.constants import LargeConstant
from convkit.runtimes.coreml.feeds import as_served
from convkit.runtimes.coreml.step_trace import Autopsy, Taken, perform
from convkit.worker.protocol import LowPrecision

Feeds = Mapping[str, np.ndarray]

# Operations that give NaN or infinity for an argument of zero.
_DIVIDING = frozenset({"inverse", "log", "pow", "real_div", "rsqrt"})
# What multiplies or offsets by more than this hides values; by less, it may scale them, and another
# value is wrong.
_NO_SCALE = 1e6
# How many operations a chain tells from its beginning on, and up to its end.
_FIRST_STEPS, _LAST_STEPS = 4, 2


class ProgramDoctor:
    """A package's program, with what its conversion knew: modules by tensor, and constants beyond
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
        """Return notes (N201) on the constants beyond the type's range, where no output suffers
        from them.
        """
        return [self._constant(constant, None, None) for constant in self._constants]

    def diagnose(self, case: str, feeds: Feeds) -> list[Finding]:
        """Say why outputs are not finite in a case in which the original's are: N201, N202, N203,
        N205.
        """
        walk = _Walk(self._perform(feeds), self._program)
        roots = walk.roots()
        guilty = {taken.name: taken for root in roots for taken in root.constants}
        findings = [
            self._constant(constant, case if _named(constant, guilty) else None, walk)
            for constant in self._constants
        ]
        findings += self._masked_rows(case, walk)
        findings += [self._tensor(case, root.made, walk) for root in roots if not root.constants][
            :1
        ]
        return sorted(findings, key=lambda finding: not finding.is_error)

    def collapse(self, case: str, feeds: Feeds, *, constant_output: bool = False) -> list[Finding]:
        """Say why outputs are finite and off: an overflow that was absorbed (N202), or lost
        differences (N204).
        """
        autopsies = self._perform(feeds)
        overflowed = [each for each in autopsies.values() if each.overflowed]
        if overflowed:
            return [self._tensor(case, overflowed[0], None)]
        flattened = [each for each in autopsies.values() if each.flattened]
        return [self._lost(case, flattened[0], is_error=constant_output)] if flattened else []

    def _perform(self, feeds: Feeds) -> dict[str, Autopsy]:
        types = {feature.name: feature.dtype for feature in self._program.inputs}
        served = {
            name: as_served(array, types[name]) for name, array in feeds.items() if name in types
        }
        return perform(self._evaluator, served)

    def _constant(self, constant: LargeConstant, case: str | None, walk: "_Walk | None") -> Finding:
        """Return N201: an error where `case` shows harm, else a note."""
        consumer = constant.consumers[0]
        sign = "-" if constant.extreme < 0 else ""
        becomes = {
            "infinity": f"becomes {sign}infinity",
            "saturated": f"is stored as {sign}{self._limit:.6g}",
            "float32": "keeps what takes it in float32",
        }[constant.fate]
        message = (
            f"constant {constant.constant!r} ({constant.extreme:.6g}) is beyond float16's range"
            f" ({self._limit:.6g}) and {becomes}; {consumer.op} {consumer.tensor!r}"
            f" {in_module(consumer.module)} takes it"
        )
        chain: tuple[str, ...] = ()
        module = consumer.module
        remedy: Remedy | None = None
        if case is None:
            message += "; no output suffers from it in any case"
        else:
            worst = walk.first_nan() if walk is not None else None
            if worst is not None:
                module = worst.step.module or module
                message += (
                    f"; so {worst.step.operation} {worst.name!r} {in_module(worst.step.module)}"
                    f" gives NaN in case {case!r}"
                )
            else:
                message += f"; so outputs are not finite in case {case!r}"
            if constant.fate == "infinity" and abs(constant.extreme) > _NO_SCALE:
                text = (
                    "Store what is beyond the range as the type's largest value: a mask needs no"
                    " more. Or load the model with attn_implementation: sdpa, which chooses where"
                    " eager adds."
                )
                remedy = Remedy(text, self._remedies.saturated())
            else:
                remedy = self._remedies.keep([user.module for user in constant.consumers])
            first = f"constant {constant.constant!r} ({constant.extreme:.6g}) {becomes} in float16"
            chain = (first, *(walk.chain(consumer.tensor) if walk is not None else ()))
        evidence: dict[str, Json] = {
            "constant": constant.constant,
            "value": constant.extreme,
            "elements": constant.beyond,
            "fate": constant.fate,
            "consumers": [dataclasses.asdict(each) for each in constant.consumers],
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

    def _tensor(self, case: str, made: Autopsy, walk: "_Walk | None") -> Finding:
        """Return N202 or N203 on the step at which values went bad; without a walk, what follows
        absorbs it.
        """
        step = made.step
        name = f"{made.name!r} ({step.operation} {in_module(step.module)})"
        place = Place(made.name, None, step.module or None, None, case)
        chain = walk.chain(made.name) if walk is not None else ()
        evidence: dict[str, Json] = {"op": step.operation, "computed_magnitude": made.reached}
        if (
            not made.overflowed
            and step.operation in _DIVIDING
            and any(taken.zeros for taken in made.taken)
        ):
            message = (
                f"float16 rounds an operand to zero, and {name} is not finite in case {case!r}"
            )
            return Finding(
                "N203", message, place, evidence, self._remedies.keep(self._around(made)), chain
            )
        message = (
            f"{name} overflows float16: it computes up to {made.reached:.6g}, the limit is"
            f" {self._limit:.6g}"
        )
        if not made.overflowed:
            message = f"{name} is not finite in float16, though what it takes is"
        message += f", in case {case!r}"
        if walk is None:
            message += "; what follows absorbs it, so that outputs are finite and wrong"
        return Finding(
            "N202", message, place, evidence, self._remedies.keep(self._around(made)), chain
        )

    def _around(self, made: Autopsy) -> list[str]:
        """Return the modules that make or take a step's results: they stay in float32 together."""
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

    def _masked_rows(self, case: str, walk: "_Walk") -> Iterator[Finding]:
        masked = next((each for each in walk.bad if each.masked_rows), None)
        if masked is None:
            return
        message = (
            f"{masked.masked_rows} of {masked.rows} rows of the softmax"
            f" {in_module(masked.step.module)} are masked whole in case {case!r}: all their"
            " positions are -inf in float16, and a softmax of nothing is NaN"
        )
        place = Place(masked.name, None, masked.step.module or None, None, case)
        remedy = Remedy("Mask with a finite value.", self._remedies.saturated())
        yield Finding("N205", message, place, {"rows": masked.masked_rows}, remedy)

    def _lost(self, case: str, made: Autopsy, *, is_error: bool) -> Finding:
        step = made.step
        message = (
            f"{made.name!r} ({step.operation} {in_module(step.module)}) varies by {made.spread:.6g}"
            f" before it is stored and not at all in float16, in case {case!r}"
        )
        place = Place(made.name, None, step.module or None, None, case)
        evidence: dict[str, Json] = {"spread": made.spread, "magnitude": made.reached}
        remedy = self._remedies.keep([step.module])
        severity: Severity = "error" if is_error else "warning"
        return Finding("N204", message, place, evidence, remedy, severity=severity)


@dataclasses.dataclass(frozen=True)
class _Root:
    """Where bad values begin: a step that takes none, or takes them from constants."""

    made: Autopsy
    constants: tuple[Taken, ...]


class _Walk:
    """The way back from outputs that are not finite, through steps whose results are not finite."""

    def __init__(self, autopsies: Mapping[str, Autopsy], program: Program) -> None:
        self._autopsies = autopsies
        reached: dict[str, None] = {}
        pending = [_maker(variable.name, autopsies) for variable in program.function.outputs]
        while pending:
            made = pending.pop()
            if made is None or made.name in reached or not (made.nan or made.infinite):
                continue
            reached[made.name] = None
            pending += [
                autopsies.get(taken.maker) for taken in _bad(made) if taken.maker is not None
            ]
        # In the program's order: what comes first is the cause of what comes after.
        self.bad = [each for name, each in autopsies.items() if name in reached]

    def roots(self) -> list[_Root]:
        """Return where bad values begin, in the program's order."""
        roots = []
        for made in self.bad:
            constants = tuple(taken for taken in _bad(made) if taken.is_constant)
            begins = constants or made.overflowed or not _bad(made)
            if begins:
                roots.append(_Root(made, constants))
        return roots

    def first_nan(self) -> Autopsy | None:
        """Return the first step that makes NaN of what is none."""
        makers = (
            made for made in self.bad if made.nan and not any(taken.nan for taken in made.taken)
        )
        return next(makers, None)

    def chain(self, start: str) -> tuple[str, ...]:
        """Return the way from a step on to an output, one operation a line, the middle left out.

        The step may bear the longer name that casting it to float16 gave it.
        """
        names = {start, f"{start}_cast_fp16"}
        lines = []
        for made in self.bad:
            if made.name in names or any(taken.maker in names for taken in made.taken):
                names.add(made.name)
                what = "NaN" if made.nan else "infinity"
                step = made.step
                lines.append(
                    f"{step.operation} {made.name!r} {in_module(step.module)} gives {what}"
                )
        if len(lines) > _FIRST_STEPS + _LAST_STEPS + 1:
            left = len(lines) - _FIRST_STEPS - _LAST_STEPS
            lines = [*lines[:_FIRST_STEPS], f"{left} operations more", *lines[-_LAST_STEPS:]]
        return tuple(lines)


def _bad(made: Autopsy) -> Iterable[Taken]:
    return [taken for taken in made.taken if taken.nan or taken.infinite]


def _maker(name: str, autopsies: Mapping[str, Autopsy]) -> Autopsy | None:
    return next(
        (
            each
            for each in autopsies.values()
            if name in {result.name for result in each.step.results}
        ),
        None,
    )


def _named(constant: LargeConstant, guilty: Mapping[str, Taken]) -> bool:
    """Say whether a constant is among the guilty: casting it to float16 gave it a longer name."""
    return any(
        name == constant.constant or name.startswith(f"{constant.constant}_to_") for name in guilty
    )
