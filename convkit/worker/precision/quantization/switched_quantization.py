"""A model whose quantized parts can be switched on and off individually, in one session.

The float32 and quantized graphs are joined at every tensor that both compute and that quantization
changes: a switch selects which of the two values the rest of the graph uses. With one module's
switches on, the outputs show that module's cost; with all on, it is the quantized model. With all
off, each quantized part receives float32 inputs, so the difference at a join is that part's own
error, without upstream errors.
"""

import dataclasses
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import (
    add_constant,
    all_names,
    attribute_graphs,
    free_name,
)
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.simulation.float32_graph import load_float32
from convkit.worker.precision.temporary_session import TemporarySession
from convkit.worker.precision.tensor_statistics import Reductions, StatisticsLayout
from convkit.worker.precision.threads import threads
from convkit.worker.process.memory_use import available_memory

Feeds = Mapping[str, np.ndarray]

_SWITCHES = "convkit.switches"
_PREFIX = "quantized/"


@dataclasses.dataclass(frozen=True)
class Join:
    """A tensor that both graphs compute and quantization changes, with the module and operator of
    its float32 node.
    """

    tensor: str
    module: str
    operator: str


@dataclasses.dataclass(frozen=True)
class JoinError:
    """Measurements of one join in one run: the energies (sums of squares) of its float32 value and
    of the error.
    """

    signal: float
    noise: float


class TooLargeError(StageFailedError):
    """The joined model does not fit; the message has both numbers of bytes."""


class SwitchedModel(TemporarySession):
    """The joined model, open in onnxruntime.

    Raises TooLargeError if its weights do not fit into memory, or among temporary files.
    """

    def __init__(self, float32: Path, quantized: Path) -> None:
        reference, _ = load_float32(float32)
        self.outputs: tuple[str, ...] = tuple(value.name or "" for value in reference.graph.outputs)
        joined, pairs = _join(reference, load_model(quantized))
        _check_room(joined)
        self.joins: tuple[Join, ...] = tuple(pair.join for pair in pairs)
        self._layout = _measure(joined, pairs)
        self.modules: tuple[str, ...] = tuple(dict.fromkeys(join.module for join in self.joins))
        super().__init__(joined, threads())

    def run(self, feeds: Feeds, modules: Collection[str]) -> dict[str, np.ndarray]:
        """Return the outputs with the given modules quantized and all others in float32."""
        found = run_outputs(self._session, self.outputs, self._feeds(feeds, modules))
        return dict(zip(self.outputs, found, strict=True))

    def own_errors(self, feeds: Feeds) -> dict[Join, JoinError]:
        """Return the error that each join adds to its float32 inputs."""
        wanted = list(self._layout.outputs)
        if not wanted:
            return {}
        found = run_outputs(self._session, wanted, self._feeds(feeds, ()))
        numbers = self._layout.read(dict(zip(wanted, found, strict=True)))
        return {
            join: JoinError(
                numbers[f"signal/{join.tensor}", "sum"], numbers[f"noise/{join.tensor}", "sum"]
            )
            for join in self.joins
        }

    def _feeds(self, feeds: Feeds, modules: Collection[str]) -> dict[str, np.ndarray]:
        switches = np.array([join.module in modules for join in self.joins], dtype=bool)
        return {**feeds, _SWITCHES: switches}


@dataclasses.dataclass(frozen=True)
class _Pair:
    """Both values of a join, and the node that selects one of them."""

    join: Join
    reference: ir.Value
    quantized: ir.Value
    switch: ir.Node


def _check_room(joined: ir.Model) -> None:
    needed = sum(
        value.const_value.nbytes
        for value in joined.graph.initializers.values()
        if value.const_value is not None
    )
    room = {"memory": available_memory(), "temporary files": shutil.disk_usage(gettempdir()).free}
    place = min(room, key=lambda each: room[each])
    if needed > room[place]:
        raise TooLargeError(
            "to compare their modules, the float32 and the quantized model are opened as one, which"
            f" needs {needed:,} bytes; {room[place]:,} are free for {place}"
        )


def _join(float32: ir.Model, quantized: ir.Model) -> tuple[ir.Model, list[_Pair]]:
    """Move the quantized graph's own parts into the float32 graph, in place; return it and the
    joins.
    """
    graph = float32.graph
    changed = _changed(graph, quantized.graph)
    modules = dict(nodes_with_modules(float32))
    values = [value for node in graph for value in node.outputs]
    joined = [
        value for value in values if value.name in changed and value.dtype == ir.DataType.FLOAT
    ]
    for domain, version in quantized.opset_imports.items():
        float32.opset_imports[domain] = max(version, float32.opset_imports.get(domain, version))
    float32.ir_version = max(float32.ir_version, quantized.ir_version)
    theirs = {value.name: _as_read(changed[value.name or ""]) for value in joined}
    names = all_names(float32)
    _adopt(float32, quantized, list(theirs.values()), names)
    switches = ir.Value(
        name=_SWITCHES, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([len(joined)])
    )
    graph.inputs.append(switches)
    pairs = []
    for index, value in enumerate(joined):
        node = value.producer()
        assert node is not None
        join = Join(value.name or "", modules[node], node.op_type)
        pairs.append(_switch(graph, join, value, theirs[value.name], switches, index, names))
    graph.sort()
    return float32, pairs


def _changed(float32: ir.Graph, quantized: ir.Graph) -> dict[str, ir.Value]:
    """Return the quantized graph's values, by name, that are computed differently than in the
    float32 graph.
    """
    before = {value.name: node for node in float32 for value in node.outputs}
    changed: dict[str, ir.Value] = {}
    for node in quantized:
        for value in node.outputs:
            twin = before.get(value.name)
            if twin is not None and not _same(node, twin):
                changed[value.name or ""] = value
    return changed


def _as_read(value: ir.Value) -> ir.Value:
    """Return what others read of a quantized graph's value: rounded to the type, if that is all
    that is read. A Relu that the quantizer has dropped is in that alone, as the range's lower end.
    """
    rounding = _only_reader(value, "QuantizeLinear")
    back = _only_reader(rounding.outputs[0], "DequantizeLinear") if rounding is not None else None
    return value if back is None else back.outputs[0]


def _only_reader(value: ir.Value, operator: str) -> ir.Node | None:
    readers = list(value.consumers())
    if len(readers) != 1 or readers[0].op_type != operator or value.is_graph_output():
        return None
    return readers[0]


def _same(ours: ir.Node, theirs: ir.Node) -> bool:
    names = [
        [value.name if value is not None else None for value in node.inputs]
        for node in (ours, theirs)
    ]
    if (ours.op_type, ours.domain) != (theirs.op_type, theirs.domain) or names[0] != names[1]:
        return False
    bodies = ([*_bodies(node)] for node in (ours, theirs))
    return all(_same_body(*pair) for pair in zip(*bodies, strict=True))


def _same_body(ours: ir.Graph, theirs: ir.Graph) -> bool:
    """Say whether two bodies have the same nodes, in any order."""
    twins = {node.name: node for node in theirs}
    return len(ours) == len(theirs) and all(
        (twin := twins.get(node.name)) is not None and _same(node, twin) for node in ours
    )


def _bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """Walk a node's bodies in the order of their attributes' names."""
    for name in sorted(node.attributes):
        yield from attribute_graphs(node.attributes[name])


def _adopt(
    float32: ir.Model, quantized: ir.Model, wanted: list[ir.Value], names: set[str | None]
) -> None:
    """Move the nodes that the wanted values need, connected to the float32 graph wherever it has
    the same tensor.
    """
    graph, theirs = float32.graph, quantized.graph
    # Not the values inside bodies: those of a node belong to it.
    known = {value.name: value for value in _own_values(graph)}
    theirs.outputs.clear()
    for value in _own_values(theirs):
        twin, read = known.get(value.name), _as_read(value)
        if twin is not None and read is not value and read in wanted:
            # Its error is its own module's, and not that of those that read it.
            ir.convenience.replace_all_uses_with(read, twin)
        elif twin is not None and value.dtype in (None, twin.dtype):
            ir.convenience.replace_all_uses_with(value, twin)
    nodes = list(theirs)
    needed: set[ir.Node] = set()
    read = set(wanted)
    for node in reversed(nodes):
        if not read.isdisjoint(node.outputs):
            needed.add(node)
            read.update(_inputs(node))
    weights: dict[ir.Value, None] = {}
    for node in [node for node in nodes if node in needed]:
        weights.update(
            dict.fromkeys(
                value for value in _inputs(node) if value.is_initializer() and value.graph is theirs
            )
        )
        theirs.remove(node)
        for body in _bodies(node):
            _rename(body, names)
        node.name = free_name(f"{_PREFIX}{node.name}", names)
        for value in node.outputs:
            value.name = free_name(f"{_PREFIX}{value.name}", names)
        graph.append(node)
    for value in weights:
        del theirs.initializers[value.name or ""]
        value.name = free_name(f"{_PREFIX}{value.name}", names)
        graph.register_initializer(value)


def _own_values(graph: ir.Graph) -> list[ir.Value]:
    """Return the values of a graph, without those of its nodes' bodies."""
    made = [value for node in graph for value in node.outputs]
    return [*graph.inputs, *graph.initializers.values(), *made]


def _rename(body: ir.Graph, names: set[str | None]) -> None:
    """Name everything in a body: the other model's body has the same."""
    weights = list(body.initializers.values())
    body.initializers.clear()
    for value in (*body.inputs, *weights, *(each for node in body for each in node.outputs)):
        value.name = free_name(f"{_PREFIX}{value.name}", names)
    for value in weights:
        body.register_initializer(value)
    for node in body:
        node.name = free_name(f"{_PREFIX}{node.name}", names)
        for inner in _bodies(node):
            _rename(inner, names)


def _inputs(node: ir.Node) -> list[ir.Value]:
    """Return a node's inputs, including those of its bodies."""
    found = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        for body in attribute_graphs(attribute):
            found += [
                value for inner in body.all_nodes() for value in inner.inputs if value is not None
            ]
    return found


def _switch(
    graph: ir.Graph,
    join: Join,
    reference: ir.Value,
    quantized: ir.Value,
    switches: ir.Value,
    index: int,
    names: set[str | None],
) -> _Pair:
    """Redirect all consumers of a float32 value to its switch."""
    name = free_name(f"convkit.switch.{index}", names)
    place = add_constant(graph, f"{name}.index", np.array(index, np.int64))
    is_on = ir.Value(name=f"{name}.on", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    running = ir.Value(name=f"{name}.value", type=reference.type, shape=reference.shape)
    ir.convenience.replace_all_uses_with(reference, running, replace_graph_outputs=True)
    choose = ir.Node("", "Where", [is_on, quantized, reference], outputs=[running], name=name)
    graph.extend(
        [ir.Node("", "Gather", [switches, place], outputs=[is_on], name=f"{name}.on"), choose]
    )
    if running.is_graph_output():
        reference.name, running.name = f"{name}.float32", join.tensor
    return _Pair(join, reference, quantized, choose)


def _measure(joined: ir.Model, pairs: list[_Pair]) -> StatisticsLayout:
    """Add the energies of each join's float32 value and error as outputs."""
    reductions = Reductions(joined)
    for index, pair in enumerate(pairs):
        name = f"convkit.noise.{index}"
        difference, noise, signal = (
            ir.Value(name=f"{name}.{part}", type=ir.TensorType(ir.DataType.FLOAT))
            for part in ("difference", "square", "signal")
        )
        nodes = [
            ir.Node(
                "",
                "Sub",
                [pair.quantized, pair.reference],
                outputs=[difference],
                name=f"{name}.difference",
            ),
            ir.Node("", "Mul", [difference, difference], outputs=[noise], name=f"{name}.square"),
            ir.Node(
                "", "Mul", [pair.reference, pair.reference], outputs=[signal], name=f"{name}.signal"
            ),
        ]
        joined.graph.insert_after(pair.switch, nodes)
        reductions.add(signal, ("sum",), named=f"signal/{pair.join.tensor}")
        reductions.add(noise, ("sum",), named=f"noise/{pair.join.tensor}")
    return reductions.finish()
