"""How a low-precision graph's error grows from tensor to tensor, by running it alongside the
float32 graph.

The two graphs are joined into one that shares the inputs. Their nodes alternate, so that a tensor
and its counterpart can be compared while both exist, and only statistics leave the graph.
"""

import dataclasses
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_traversal import (
    all_names,
    all_values,
    constant_tensor,
    free_name,
    is_tensor,
)
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import Assignment
from convkit.worker.precision.simulation.simulated_graph import simulate
from convkit.worker.precision.tensor_statistics import (
    MOVING_OPERATORS,
    Key,
    Reductions,
    Statistic,
    open_session,
)

Feeds = Mapping[str, np.ndarray]

# The statistics of each tensor in the first pass and, if any element is not finite, in the second.
_PLAIN: tuple[Statistic, ...] = ("max", "min", "sum")
_COUNTING: tuple[Statistic, ...] = ("nonfinite", "finite_max", "finite_min")
_REFERENCE, _SIMULATED, _ERROR = "reference", "simulated", "error"


@dataclasses.dataclass(frozen=True)
class TensorError:
    """One tensor of the low-precision graph compared with float32, in one case; `module` is empty
    for the root.

    `dtype` is the type its node computes in. `error` is the largest absolute difference,
    `reference` and `simulated` are the largest magnitudes, all over finite elements.
    `nonfinite_reference` and `nonfinite_simulated` count the other elements. `spread_reference` and
    `spread_simulated` are maximum minus minimum: a tensor whose spread vanishes has lost its
    information.
    """

    case: str
    tensor: str
    node: str
    op: str
    module: str
    dtype: str
    error: float
    reference: float
    simulated: float
    nonfinite_reference: int
    nonfinite_simulated: int
    spread_reference: float
    spread_simulated: float

    @property
    def collapsed(self) -> bool:
        """True if the float32 tensor varies but the low-precision one does not."""
        return self.spread_reference > 0 and not self.spread_simulated > 0

    @property
    def relative_error(self) -> float:
        """The error relative to the reference's magnitude."""
        return self.error / self.reference if self.reference else (math.inf if self.error else 0.0)


def simulate_with_errors(
    model: ir.Model,
    assignment: Assignment,
    cases: Mapping[str, Feeds],
    *,
    saturate: bool = False,
    threads: int | None = None,
) -> tuple[TensorError, ...]:
    """Simulate a prepared model under an assignment (see `convert`), alongside its float32 version,
    on named cases.

    Returns every float32 tensor of the main graph, in graph order, case by case, except those that
    only move another's values (such as Reshape). Tensors inside subgraphs are simulated but not
    compared. Costs the time and memory of about two inferences, plus a second pass over cases with
    non-finite elements.
    """
    simulated = simulate(convert(model, assignment, saturate=saturate).model)
    numbers = _measure(simulated, model, _PLAIN, cases, threads)
    doubtful = {
        case: feeds
        for case, feeds in cases.items()
        if not np.isfinite(list(numbers[case].values())).all()
    }
    if doubtful:
        for case, counted in _measure(simulated, model, _COUNTING, doubtful, threads).items():
            numbers[case].update(counted)
    found = []
    for case in cases:
        for node, module in nodes_with_modules(model):
            for value in node.outputs:
                if (f"{_ERROR}/{value.name}", "max") in numbers[case]:
                    choice = assignment.choices.get(node)
                    dtype = choice.dtype if choice is not None else "float32"
                    found.append(
                        _tensor_error(case, value.name or "", node, module, dtype, numbers[case])
                    )
    return tuple(found)


def _measure(
    simulated: ir.Model,
    model: ir.Model,
    statistics: tuple[Statistic, ...],
    cases: Mapping[str, Feeds],
    threads: int | None,
) -> dict[str, dict[Key, float]]:
    joined, pairs = _join(simulated.clone(), model.clone())
    joined.graph.outputs.clear()
    reductions = Reductions(joined)
    for name, reference, twin in pairs:
        reductions.add(reference, statistics, named=f"{_REFERENCE}/{name}")
        reductions.add(twin, statistics, named=f"{_SIMULATED}/{name}")
        difference = _subtract(joined.graph, reference, twin, reductions.names)
        reductions.add(difference, statistics, named=f"{_ERROR}/{name}")
    layout = reductions.finish()
    wanted = list(layout.outputs)
    if not wanted:
        return {case: {} for case in cases}
    with tempfile.TemporaryDirectory(prefix="convkit-") as folder:
        path = Path(folder) / "joined.onnx"
        save_model(joined, path)
        session = open_session(path, None, threads)
        return {
            case: layout.read(dict(zip(wanted, run_outputs(session, wanted, feeds), strict=True)))
            for case, feeds in cases.items()
        }


def _join(
    simulated: ir.Model, reference: ir.Model
) -> tuple[ir.Model, list[tuple[str, ir.Value, ir.Value]]]:
    """Move the float32 nodes into the simulation, each right behind its counterpart.

    Returns the joined model and, for each tensor that both have: its name, its float32 value, its
    simulated value.
    """
    taken = all_names(simulated)
    twins = {value.name: value for node in simulated.graph for value in node.outputs}
    pairs = [
        (value.name or "", value, twins[value.name])
        for node in reference.graph
        for value in node.outputs
        if value.dtype == ir.DataType.FLOAT
        and is_tensor(value)
        and value.name in twins
        and node.op_type not in MOVING_OPERATORS
    ]
    pairs = [pair for pair in pairs if constant_tensor(pair[1]) is None]
    for node in reference.graph.all_nodes():
        node.name = free_name(f"float32/{node.name}", taken)
    shared = [*reference.graph.inputs, *reference.graph.initializers.values()]
    for value in list(all_values(reference)):  # a body's initializers are kept by name
        if value.name and value not in shared:
            value.name = free_name(f"float32/{value.name}", taken)
    reference.graph.outputs.clear()
    _share_inputs(simulated.graph, reference.graph)
    _share_weights(simulated.graph, reference.graph, taken)
    _interleave(simulated.graph, reference.graph, {id(ours): twin for _, ours, twin in pairs})
    return simulated, pairs


def _share_inputs(simulated: ir.Graph, reference: ir.Graph) -> None:
    for ours, theirs in zip(simulated.inputs, list(reference.inputs), strict=True):
        ir.convenience.replace_all_uses_with(theirs, ours)


def _share_weights(simulated: ir.Graph, reference: ir.Graph, taken: set[str | None]) -> None:
    """Share the weights that are float32 in both; the others are stored twice."""
    for name, value in list(reference.initializers.items()):
        if value.is_graph_input():
            continue
        twin = simulated.initializers.get(name)
        if twin is not None and twin.const_value is value.const_value:
            ir.convenience.replace_all_uses_with(value, twin)
            continue
        del reference.initializers[name]
        value.name = free_name(f"float32/{name}", taken)
        simulated.register_initializer(value)


def _interleave(simulated: ir.Graph, reference: ir.Graph, twins: Mapping[int, ir.Value]) -> None:
    """Move each node behind the producer of its counterpart, and behind the nodes moved before
    it.
    """
    order = {node: index for index, node in enumerate(simulated)}
    reached, last = -1, None
    for node in list(reference):
        reference.remove(node)
        for value in node.outputs:
            producer = twin.producer() if (twin := twins.get(id(value))) is not None else None
            if producer is not None and order[producer] > reached:
                reached, last = order[producer], producer
        if last is None:
            simulated.insert_before(simulated[0], node)
        else:
            simulated.insert_after(last, node)
        last = node


def _subtract(
    graph: ir.Graph, reference: ir.Value, twin: ir.Value, taken: set[str | None]
) -> ir.Value:
    producer = reference.producer()
    assert producer is not None
    name = free_name(f"difference/{twin.name}", taken)
    output = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT))
    graph.insert_after(producer, ir.Node("", "Sub", [reference, twin], outputs=[output], name=name))
    return output


def _tensor_error(
    case: str, tensor: str, node: ir.Node, module: str, dtype: DType, numbers: Mapping[Key, float]
) -> TensorError:
    def extremes(graph: str) -> tuple[float, float, int]:
        name = f"{graph}/{tensor}"
        if (name, "nonfinite") in numbers:
            return (
                numbers[name, "finite_max"],
                numbers[name, "finite_min"],
                int(numbers[name, "nonfinite"]),
            )
        high, low = numbers[name, "max"], numbers[name, "min"]
        return (
            (high, low, 0) if high >= low else (0.0, 0.0, 0)
        )  # no elements: the maximum of an empty tensor is -inf

    reference_high, reference_low, reference_lost = extremes(_REFERENCE)
    simulated_high, simulated_low, simulated_lost = extremes(_SIMULATED)
    error_high, error_low, _ = extremes(_ERROR)
    return TensorError(
        case=case,
        tensor=tensor,
        node=node.name or "",
        op=node.op_type,
        module=module,
        dtype=dtype,
        error=max(abs(error_high), abs(error_low)),
        reference=max(abs(reference_high), abs(reference_low)),
        simulated=max(abs(simulated_high), abs(simulated_low)),
        nonfinite_reference=reference_lost,
        nonfinite_simulated=simulated_lost,
        spread_reference=reference_high - reference_low,
        spread_simulated=simulated_high - simulated_low,
    )
