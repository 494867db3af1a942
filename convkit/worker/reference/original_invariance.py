"""Runs the original on the invariance cases: outputs that it keeps unchanged must not change in a
built model.
"""

import dataclasses
import math
import time
from collections.abc import Sequence

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseRecord, Layout, OmittedCase, TensorMetrics
from convkit.protocol.metrics.limits import is_same
from convkit.protocol.numpy_dtypes import is_float
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import Case, CaseInputs, Feeds, case_cost, sizes_text
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.cases.input_probes import other_values
from convkit.worker.cases.invariance_cases import (
    AGAIN,
    ALONE,
    BASE,
    CHECKS,
    MASKED,
    PADDED,
    base_case,
    base_sizes,
    build_variants,
    contract_input,
    find_layout,
)
from convkit.worker.cases.pointed_positions import pointing_inputs, pointing_to_real
from convkit.worker.cases.time_budget import Budget
from convkit.worker.job_context import Context
from convkit.worker.metrics.magnitudes import rms
from convkit.worker.metrics.tensor_metrics import as_float64
from convkit.worker.reference.case_agreement import compare_cases
from convkit.worker.reference.original_model import OnnxOriginal, OriginalModel, TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError

# The relative change (RMS over RMS) of an original's output with added padding from which it counts
# as dependent on padding: kernels for a different length add in a different order (about 1e-6 in
# float32, 1e-2 in a half type).
_NOISE = 1e-3
_HALF_NOISE = 0.05


@dataclasses.dataclass(frozen=True)
class OriginalInvariance:
    """The original's results: its cases, the omitted ones, the axes of rows and padding, and the
    findings.
    """

    cases: tuple[CaseRecord, ...]
    omitted: tuple[OmittedCase, ...]
    layout: Layout
    findings: tuple[Finding, ...]


def run_original(
    original: OriginalModel, made_from: CaseInputs, context: Context, budget: Budget, *, half: bool
) -> OriginalInvariance:
    """Run the original on the base case, repeat it, and run its variants; write their inputs and
    outputs.

    `half`: the original computes in float16 or bfloat16. Findings: N303 if a second run returns
    different outputs, N305 if padding moves outputs at real positions.
    """
    layout, omitted = find_layout(made_from.contract, made_from.samples)
    run = _Run(original, made_from.contract, context, budget)
    base = _base(run, made_from, layout)
    if isinstance(base, str):
        made = {case.name for case in omitted}
        omitted += [OmittedCase(name, base) for name in CHECKS if name not in made]
        return OriginalInvariance((), tuple(omitted), layout, ())
    variants, left_out = build_variants(made_from, layout, base)
    again = dataclasses.replace(base, name=AGAIN, description=f"{BASE!r} once more", base=BASE)
    for variant in (again, *variants):
        if isinstance(refusal := run.case(variant), str):
            omitted.append(OmittedCase(variant.name, refusal))
    findings = [
        *_random(run, run.compare(AGAIN, layout)),
        *_depends_on_padding(run, layout, made_from, base, noise=_HALF_NOISE if half else _NOISE),
        *_depends_on_batch(run, layout, noise=_HALF_NOISE if half else _NOISE),
    ]
    return OriginalInvariance(
        tuple(run.records.values()), (*omitted, *left_out), layout, tuple(findings)
    )


class _Run:
    """Runs cases and keeps their tensors, which are small, in memory."""

    def __init__(
        self,
        original: OriginalModel,
        contract: Contract,
        context: Context,
        budget: Budget,
        *,
        writes: bool = True,
    ) -> None:
        self.original = original
        self._writes = writes
        self._contract = contract
        self._context = context
        self._budget = budget
        self._feeds: dict[str, Feeds] = {}
        self._outputs: dict[str, Feeds] = {}
        self.records: dict[str, CaseRecord] = {}

    def over_budget(self, sizes: dict[str, int]) -> str | None:
        """Return why there is no time for the base case and its variants, or None."""
        return self._budget.refusal(BASE, (len(CHECKS) + 1) * case_cost(self._contract, sizes))

    def case(self, case: Case) -> str | None:
        """Run one case, and write it unless this is only a question; return the reason if the
        original rejects it.
        """
        self._context.progress(f"original model: {case.name}")
        feeds = case.inputs()
        started = time.perf_counter()
        try:
            outputs = self.original.run(feeds)
        except RunFailedError as error:
            return f"the original refuses {sizes_text(case.sizes)}: {error}"
        seconds = time.perf_counter() - started
        self._budget.record(case_cost(self._contract, case.sizes), seconds)
        if self._writes:
            write_tensors(self._context.output, case.name, "inputs", feeds)
            write_tensors(self._context.output, case.name, "outputs", outputs)
        self._feeds[case.name], self._outputs[case.name] = feeds, outputs
        self.records[case.name] = CaseRecord(
            case.name, case.kind, case.description, case.sizes, seconds, case.base
        )
        return None

    def asking(self, contract: Contract) -> "_Run":
        """Return what runs the same original on other cases, for a question."""
        return _Run(self.original, contract, self._context, self._budget, writes=False)

    def responds(self, base: Case, made_from: CaseInputs, layout: Layout, *, noise: float) -> bool:
        """Say whether every output of floats moves at real positions if all inputs but masks get
        other values.
        """
        feeds, contract = self._feeds[base.name], self._contract
        others = {
            spec.name: values
            if spec.name in layout.masks
            else other_values(made_from, spec, values)
            for spec in contract.inputs
            for values in (feeds[spec.name],)
        }
        try:
            outputs = self.original.run(others)
        except RunFailedError:
            return False
        specs = {spec.name: spec for spec in contract.outputs}
        metrics = compare_cases(
            CHECKS[MASKED], contract, layout, feeds, self._outputs[base.name], outputs
        )
        return all(
            each.rms > noise * self.rms(base.name, each.output)
            for each in metrics
            if is_float(specs[each.output].dtype)
        )

    def compare(self, name: str, layout: Layout) -> tuple[TensorMetrics, ...]:
        """Return how a variant's outputs differ from its base's; empty if it did not run."""
        record = self.records.get(name)
        if record is None or record.base is None or record.base not in self.records:
            return ()
        base = record.base
        return compare_cases(
            CHECKS[name],
            self._contract,
            layout,
            self._feeds[base],
            self._outputs[base],
            self._outputs[name],
        )

    def first_change(self) -> Finding | None:
        """Return N303 for the operation that differs between two runs of the base case, where the
        original's operations can be seen.
        """
        if not isinstance(self.original, TorchOriginal | OnnxOriginal):
            return None
        return self.original.first_change(self._feeds[BASE])

    def rms(self, case: str, output: str) -> float:
        """Return the RMS of an output's finite values in a case."""
        values = as_float64(self._outputs[case][output])
        return rms(values[np.isfinite(values)])


def _base(run: _Run, made_from: CaseInputs, layout: Layout) -> Case | str:
    """Run the base case at the first sizes that the original accepts; return it, or why there is
    none.
    """
    contract = made_from.contract
    refusals = []
    for others in (probe_sizes(contract), contract.typical_sizes()):
        base = base_case(made_from, layout, base_sizes(contract, layout, others))
        refusal = run.over_budget(base.sizes) or run.case(base)
        if refusal is None:
            return base
        refusals.append(refusal)
    return refusals[0]


def _random(run: _Run, metrics: Sequence[TensorMetrics]) -> list[Finding]:
    """Return N303 for the output that changes most in a second run, if any does, with the operation
    that changes.
    """
    changed = [output for output in metrics if not is_same(output)]
    if not changed:
        return []
    worst = max(changed, key=lambda output: output.max_abs)
    finding = Finding(
        "N303",
        f"the original model returns a different {worst.output!r} when run again on the same"
        f" inputs: it differs by {worst.max_abs:.3g}",
        Place(tensor=worst.output, case=AGAIN),
        {"max_abs": worst.max_abs},
        Remedy("Put the model into eval mode, and seed anything random."),
    )
    at = run.first_change()
    if at is None:
        return [finding]
    place = dataclasses.replace(at.place, tensor=worst.output, case=AGAIN)
    evidence = {**finding.evidence, **at.evidence}
    return [
        Finding(
            "N303",
            f"{at.message} ({worst.output!r} differs by {worst.max_abs:.3g})",
            place,
            evidence,
            at.remedy,
        )
    ]


def _depends_on_padding(
    run: _Run, layout: Layout, made_from: CaseInputs, base: Case, *, noise: float
) -> list[Finding]:
    """Return N305 for the output that padding moves most at real positions, if any moves by more
    than noise, and not only because an input points to padding.
    """
    share, name, worst = _moved_most(run, layout, made_from)
    if worst is None or not share > noise:
        return []
    if _only_where_pointed(run, layout, made_from, base, noise=noise):
        return []
    remedy = _other_meaning(run, layout, made_from, noise=noise) or Remedy(
        "Check that the mask marks padding as its sample says (padding_mask: by 0,"
        " key_padding_mask: by 1), and that the model applies its mask everywhere. If it is meant"
        " to see padding, pad inputs the way it was trained."
    )
    what = "more padding" if name == PADDED else "changing masked positions"
    return [
        Finding(
            "N305",
            f"the original model itself depends on padding: {what} changes {worst.output!r} at"
            f" real positions by up to {worst.max_abs:.3g} ({share:.1%} of its rms overall)",
            Place(tensor=worst.output, case=name),
            {"max_abs": worst.max_abs, "share_of_rms": share},
            remedy,
        )
    ]


def _only_where_pointed(
    run: _Run, layout: Layout, made_from: CaseInputs, base: Case, *, noise: float
) -> bool:
    """Say whether padding moves nothing once inputs that may point to positions point to real
    ones.
    """
    pointing = pointing_inputs(made_from, layout, base)
    if not pointing:
        return False
    again = run.asking(made_from.contract)
    first = pointing_to_real(base, pointing, made_from, layout)
    variants, _ = build_variants(made_from, layout, first)
    if any(again.case(each) is not None for each in (first, *variants)):
        return False
    share, _, moved = _moved_most(again, layout, made_from)
    return moved is not None and share <= noise


def _depends_on_batch(run: _Run, layout: Layout, *, noise: float) -> list[Finding]:
    """Return N307 for the output that differs most for a row alone, if any does by more than noise:
    a share of its rms, or where it has whole numbers any.
    """
    shares = [
        (_share(each.rms, run.rms(BASE, each.output)), each)
        for each in run.compare(ALONE, layout)
        if each.mismatch is None and not is_same(each)
    ]
    share, worst = max(shares, key=lambda entry: entry[0], default=(0.0, None))
    if worst is None or not share > noise:
        return []
    return [
        Finding(
            "N307",
            f"the original's rows depend on one another: {worst.output!r} of a row changes by up to"
            f" {worst.max_abs:.3g} ({share:.1%} of its rms overall) without the rows beside it",
            Place(tensor=worst.output, case=ALONE),
            {"max_abs": worst.max_abs, "share_of_rms": share if math.isfinite(share) else None},
            Remedy(
                "If callers may send any rows together, look for what is computed over the first"
                " axis: a mean, a norm, a softmax or a sort of the whole batch. Otherwise declare"
                " the batch with the one size that it has."
            ),
        )
    ]


def _share(moved: float, overall: float) -> float:
    return moved / overall if overall > 0.0 else math.inf


def _moved_most(
    run: _Run, layout: Layout, made_from: CaseInputs
) -> tuple[float, str, TensorMetrics | None]:
    """Return by which share of its rms padding moves an output at real positions, in which case,
    and which; the one that it moves most.
    """
    names = [PADDED]
    # A model with a pad token may look for it: it need not tolerate other ids at padding. If a mask
    # has a fixed length, the positions in the outputs are ambiguous.
    if made_from.facts.pad_token is None and _symbolic(made_from.contract, layout):
        names.append(MASKED)
    specs = {spec.name: spec for spec in made_from.contract.outputs}
    shares = [
        (output.rms / rms, name, output)
        for name in names
        for output in run.compare(name, layout)
        if is_float(specs[output.output].dtype) and (rms := run.rms(BASE, output.output)) > 0.0
    ]
    return max(shares, key=lambda entry: entry[0], default=(0.0, "", None))


def _other_meaning(
    run: _Run, layout: Layout, made_from: CaseInputs, *, noise: float
) -> Remedy | None:
    """Return what to write if padding moves nothing once the masks mark it by the other value, and
    what is real then moves all outputs: zeros at what was padding move by nothing.
    """
    contract = made_from.contract
    inputs = tuple(
        dataclasses.replace(spec, padding=1 - spec.padding) if spec.name in layout.masks else spec
        for spec in contract.inputs
    )
    other = dataclasses.replace(made_from, contract=dataclasses.replace(contract, inputs=inputs))
    again = run.asking(other.contract)
    base = _base(again, other, layout)
    if isinstance(base, str):
        return None
    variants, _ = build_variants(other, layout, base)
    if any(again.case(variant) is not None for variant in variants):
        return None
    share, _, moved = _moved_most(again, layout, other)
    if moved is None or not share <= noise or not again.responds(base, other, layout, noise=noise):
        return None
    changed = [(place, spec) for place, spec in enumerate(inputs) if spec.name in layout.masks]
    names = ", ".join(repr(spec.name) for _, spec in changed)
    mark = changed[0][1].padding
    sample = "key_padding_mask" if mark else "padding_mask"
    return Remedy(
        f"{mark} marks padding in {names}: with masks like that, padding changes nothing. Write"
        f" sample: {sample}.",
        {f"inputs.{place}.sample": sample for place, _ in changed},
        proven=True,
    )


def _symbolic(contract: Contract, layout: Layout) -> bool:
    return all(isinstance(contract_input(contract, mask).shape[-1], str) for mask in layout.masks)
