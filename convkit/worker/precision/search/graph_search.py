"""`keep_float32: auto` for a graph: see `search.modules`. Plans are judged by simulation."""

import dataclasses
import functools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.messages import LowPrecision
from convkit.protocol.metrics.limits import Limits
from convkit.protocol.module_patterns import operation_path
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.precision.diagnosis.unrepresentable_constants import scan_constants
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import (
    Assignment,
    PrecisionPlan,
    assign,
    touches_float32,
)
from convkit.worker.precision.search.float32_modules import FoundModules, search_modules
from convkit.worker.precision.search_judgment import Outputs, outputs_of
from convkit.worker.precision.simulation.arithmetic import with_defined_arithmetic
from convkit.worker.precision.simulation.simulated_graph import simulate
from convkit.worker.precision.simulation.switched_rounding import SwitchedRounding
from convkit.worker.precision.tensor_statistics import open_session


@dataclasses.dataclass(frozen=True)
class Search:
    """The result: the precision with its patterns, and what was found."""

    precision: LowPrecision
    found: FoundModules


def search_plan(
    model: ir.Model,
    precision: LowPrecision,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    *,
    threads: int | None = None,
) -> Search:
    """Find what must stay in float32 for a prepared model to meet the limits, by output, in every
    case.
    """
    graph = _Graph(model, precision, threads)
    found = search_modules(graph, cases, limits, precision.default)
    chosen = dataclasses.replace(
        precision, keep_float32=found.patterns, saturate=graph.needs_saturation(found.patterns)
    )
    return Search(chosen, found)


class _Graph:
    """A prepared graph for which a plan is searched."""

    def __init__(
        self,
        model: ir.Model,
        precision: LowPrecision,
        threads: int | None,
        *,
        by_operation: bool = False,
    ) -> None:
        self._model = model
        self._precision = precision
        self._by_operation = by_operation
        self._dtype = precision.default
        self._threads = threads
        self._asked_to_saturate = precision.saturate
        scans = scan_constants(model, precision.default)
        self._saturate = precision.saturate or any(
            scan.is_mask and scan.overflowing for scan in scans
        )
        modules = [
            operation_path(module, node.op_type) if by_operation else module
            for node, module in nodes_with_modules(model)
            if touches_float32(node)
        ]
        self.modules = list(dict.fromkeys(modules))

    def by_operation(self) -> "_Graph":
        """Return the graph with each module's types of operations in place of modules."""
        return _Graph(self._model, self._precision, self._threads, by_operation=True)

    def needs_saturation(self, patterns: tuple[str, ...]) -> bool:
        """Return True if a constant beyond the range is still stored in the low-precision type."""
        left = scan_constants(self._model, self._dtype, self._assignment(patterns))
        return self._asked_to_saturate or (
            self._saturate and any(scan.overflowing for scan in left)
        )

    def _assignment(self, patterns: tuple[str, ...]) -> Assignment:
        return assign(self._model, PrecisionPlan(self._dtype, patterns))

    def planned(
        self, patterns: tuple[str, ...], cases: Mapping[str, JudgedCase]
    ) -> Iterator[tuple[str, Outputs]]:
        """Simulate a plan on every case."""
        converted = convert(self._model, self._assignment(patterns), saturate=self._saturate)
        simulation = with_defined_arithmetic(simulate(converted.model))
        with tempfile.TemporaryDirectory(prefix="convkit-plan-") as folder:
            path = Path(folder) / "simulation.onnx"
            save_model(simulation, path)
            session = open_session(path, None, self._threads)
            names = [output.name or "" for output in simulation.graph.outputs]

            def outputs(feeds: Mapping[str, np.ndarray]) -> Outputs:
                return dict(zip(names, run_outputs(session, names, feeds), strict=True))

            for name, case in cases.items():
                yield name, outputs_of(functools.partial(outputs, case.feeds))

    def switched(self) -> SwitchedRounding:
        """Open the graph with switchable rounding."""
        return SwitchedRounding(
            self._model,
            self._dtype,
            saturate=self._saturate,
            threads=self._threads,
            by_operation=self._by_operation,
        )
