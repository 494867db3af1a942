"""Verifies a quantized model for both families of processors: with the host's own kernels, and with
the other family's sums simulated.
"""

import contextlib
import dataclasses
import importlib.util
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    FamilyMetrics,
    Layout,
    OptionsT,
    ProductFamily,
    Quantization,
    TensorMetrics,
    VerifyRequest,
    is_usual,
)
from convkit.worker.building.built_files import EXPORTED_FILE
from convkit.worker.cases.calibration_cases import calibration_feeds
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.runtime_interface.sessions import (
    GraphRuntime,
    ModelRefusedError,
    RunFailedError,
    Runnable,
)
from convkit.worker.verification.built_model import BuiltModel

if TYPE_CHECKING:
    from convkit.worker.graph.integer_products.family_session import SwitchedProducts
    from convkit.worker.graph.integer_products.saturation_findings import Examined, RemedyTrial


class ProductFamilies(Generic[OptionsT]):
    """The families of processors that a built graph must be right on; `own` is the host's."""

    def __init__(
        self,
        request: VerifyRequest[OptionsT],
        runtime: GraphRuntime[OptionsT],
        model: Path,
        switched: "SwitchedProducts",
    ) -> None:
        from convkit.worker.graph.integer_products.processor_families import OTHER, host_family

        self._request = request
        self._runtime = runtime
        self._model = model
        self._switched = switched
        self.own: ProductFamily = host_family()
        self.other: ProductFamily = OTHER[self.own]

    @property
    def differ(self) -> bool:
        """False if no product of the graph can saturate: then both families compute the same."""
        return bool(self._switched.nodes or self._switched.unknown)

    @property
    def matters(self) -> bool:
        """True if the model must be right on the other family, too."""
        return self.other in self._request.families

    def measure_other(
        self, cases: Sequence[CaseRecord], found: Contract, context: Context, layout: Layout
    ) -> tuple[Runnable, FamilyMetrics]:
        """Run the ladder as the other family would, within the request's budget; return what ran
        it, too.
        """
        context.progress(f"simulating processors with {self.other} products")
        session = self._switched.in_family(self.other)
        built = BuiltModel(self._request, session, found, context, layout)
        metrics, omitted = built.ladder(cases)
        unknown = tuple(node.node for node in self._switched.unknown)
        return session, FamilyMetrics(self.other, tuple(metrics), tuple(omitted), unknown)

    def explain(
        self,
        own: Sequence[CaseMetrics],
        other: Sequence[CaseMetrics],
        verification: BuiltModel,
        context: Context,
    ) -> list[Finding]:
        """Return Q105 if saturation makes a case clearly worse, with its nodes and what helps."""
        pairs = (own, other) if self.own == "exact" else (other, own)
        case = _examined(*pairs)
        if case is None or not self._switched.nodes:
            return []
        context.progress("looking for the products that saturate")
        # Only here does the environment have onnx-ir.
        from convkit.worker.graph.graph_loading import load_model
        from convkit.worker.graph.integer_products.saturation_findings import (
            Examined,
            origin_module,
            responsible,
            saturation_finding,
        )

        contract = self._request.contract
        feeds, expected = verification.feeds(case), verification.expected(case)
        padding = {name: verification.padding(feeds, name) for name in expected}

        def error(outputs: Mapping[str, np.ndarray]) -> float:
            metrics = compare_outputs(contract, expected, outputs, padding.get)
            return _largest_nrmse(metrics)

        switched = self._switched
        every = range(len(switched.nodes))
        exact = error(switched.run(feeds, ()))
        examined = Examined(case, feeds, exact, error(switched.run(feeds, every)), error)
        counts = switched.counts(feeds)
        numbers = responsible(switched, examined, counts)
        if not numbers:
            return []  # rounding alone differs
        quantized = load_model(self._model)
        modules = dict.fromkeys(origin_module(quantized, switched.nodes[i]) for i in numbers)
        trials = list(self._trials(list(modules), examined))
        return [saturation_finding(switched, numbers, examined, counts, quantized, trials)]

    def _trials(self, modules: Sequence[str], examined: "Examined") -> Iterator["RemedyTrial"]:
        """Try what makes the model right in both families, on the examined case."""
        from convkit.worker.graph.integer_products.saturation_findings import RemedyTrial

        given = self._request.precision
        if not isinstance(given, Quantization) or self._request.exported is None:
            return
        kept = tuple(dict.fromkeys([*given.patterns, *(path or "." for path in modules)]))
        changes: list[tuple[str, dict[str, Json], Quantization]] = [
            (
                "use 7-bit weights (reduce_range: true)",
                {"target.precision.reduce_range": True},
                dataclasses.replace(given, reduce_range=True),
            ),
            (
                "use signed activations (symmetric: true)",
                {"target.precision.symmetric": True},
                dataclasses.replace(given, symmetric=True),
            ),
            (
                f"keep {', '.join(kept)} in float32",
                {"target.precision.keep_float32": list(kept)},
                given.keeping(kept),
            ),
        ]
        if given.quantize != "static-int8":
            del changes[1]
        for text, change, quantization in changes:
            errors = self._tried(quantization, examined)
            if errors is not None:
                yield RemedyTrial(text, change, *errors)

    def _tried(
        self, quantization: Quantization, examined: "Examined"
    ) -> tuple[float, float] | None:
        """Return the errors of the examined case in both families with another quantization; None
        if it is impossible.
        """
        from convkit.worker.precision.quantization.quantize import quantize_file

        request = self._request
        with tempfile.TemporaryDirectory(prefix="convkit-trial-") as name:
            folder = Path(name)
            feeds = calibration_feeds(Path(request.reference), request.contract)
            source = Path(request.exported or "") / EXPORTED_FILE
            try:
                findings = quantize_file(source, folder / "trial.onnx", quantization, feeds)
                if any(finding.is_error for finding in findings):
                    return None
                opened = _switched(folder / "trial.onnx", request.options, self._runtime)
                assert opened is not None
                with opened as switched:
                    every = range(len(switched.nodes))
                    return (
                        examined.error(switched.run(examined.feeds, ())),
                        examined.error(switched.run(examined.feeds, every)),
                    )
            except (StageFailedError, ModelRefusedError, RunFailedError):
                return None


def product_families(
    request: VerifyRequest[OptionsT],
    runtime: GraphRuntime[OptionsT],
    model: Path,
    held: contextlib.ExitStack,
    *,
    quantized: bool,
) -> ProductFamilies[OptionsT] | None:
    """Return the families of processors for a quantized graph on the CPU; None if the runtime does
    not show the graph that it executes.

    `held` keeps files alive. Without onnx-ir, nothing can be rewritten.
    """
    if not quantized or request.device != "cpu" or request.stand_in:
        return None
    if importlib.util.find_spec("onnx_ir") is None:
        return None
    try:
        switched = _switched(model, request.options, runtime)
    except ModelRefusedError:
        return None  # opening the model itself reports that
    if switched is None:
        return None
    held.enter_context(switched)
    return ProductFamilies(request, runtime, model, switched)


def _switched(
    model: Path, options: OptionsT, runtime: GraphRuntime[OptionsT]
) -> "SwitchedProducts | None":
    """Open a model with a switch for each product that can saturate; None if the runtime does not
    show what it executes.
    """
    from convkit.worker.graph.integer_products.family_session import SwitchedProducts

    show = getattr(runtime, "executed_graph", None)  # plug-ins need not have it
    with tempfile.TemporaryDirectory(prefix="convkit-executed-") as folder:
        executed = show(model, options, Path(folder)) if show is not None else None
        return None if executed is None else SwitchedProducts(executed)


def _examined(exact: Sequence[CaseMetrics], saturating: Sequence[CaseMetrics]) -> str | None:
    """Return the case that saturation makes worst, usual ones first; None if it makes none clearly
    worse.
    """
    from convkit.worker.graph.integer_products.saturation_findings import WORSE

    before = {case.case: _largest_nrmse(case.outputs) for case in exact if case.error is None}
    worse: dict[str, float] = {}
    for case in saturating:
        error = _largest_nrmse(case.outputs)
        if case.case in before and not error <= WORSE * before[case.case]:
            worse[case.case] = error - before[case.case]
    usual = [name for name in worse if is_usual(name)] or list(worse)
    return max(
        usual,
        key=lambda name: worse[name] if not math.isnan(worse[name]) else math.inf,
        default=None,
    )


def _largest_nrmse(outputs: Sequence[TensorMetrics]) -> float:
    numbers = [output.nrmse for output in outputs]
    return math.nan if any(map(math.isnan, numbers)) else max(numbers, default=math.nan)
