"""Asks the ONNX parser of a TensorRT library about a graph: which nodes it refuses, and which
tensors it gives other types than the graph.

Nothing here lists operators: a graph is parsed as it is. If the parser refuses nodes, they are cut
out, their results become inputs, and what is left is parsed again, until the parser accepts it or
has nothing more to say: it stops at some refusals, and names all of others at once.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import onnx
import onnx_ir as ir

from convkit.protocol.contract import Contract, Dimension, DType, TensorSpec
from convkit.runtimes.tensorrt.library import DTYPES, MessageLog, make_logger
from convkit.runtimes.tensorrt.lone_graphs import constant_alone, input_alone
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.graph.typed_graph import with_types
from convkit.worker.original.contract_check import UNKNOWN_DIMENSION

if TYPE_CHECKING:
    import tensorrt as trt

# Each round cuts at least one node out. More than this many kinds of refusals help nobody.
_MOST_ROUNDS = 16
# The parser says no more than this of operators that it has no importer for.
_SILENT = "false"
# `condition && "what it says"`, and `Assertion failed: condition: What it says`.
_QUOTED = re.compile(r'&& "(?P<said>[^"]+)"$')
_CONDITION = re.compile(r"^Assertion failed: .*?(?<!:): (?=[A-Z])")


@dataclasses.dataclass(frozen=True)
class Origin:
    """A node and where it comes from; `types` as in `float32 -> int64`. Empty if unknown."""

    node: str = ""
    operator: str = ""
    module: str = ""
    source: str = ""
    types: str = ""


@dataclasses.dataclass(frozen=True)
class Refused:
    """A node that the parser refuses, or a graph input (`tensor`); `message` is the parser's
    reason.
    """

    origin: Origin
    tensor: str
    message: str

    @property
    def lacks_plugin(self) -> bool:
        """True if the parser knows the operator, and misses the plugin that would compute it."""
        return "plugin" in self.message.lower()


@dataclasses.dataclass(frozen=True)
class Retyped:
    """A tensor that has the type `planned` in the graph, and `built` in the network."""

    origin: Origin
    tensor: str
    planned: str
    built: str


@dataclasses.dataclass
class Parsed:
    """A parsed graph. `builder` and `parser` must outlive `network`."""

    builder: "trt.Builder"
    parser: "trt.OnnxParser"
    network: "trt.INetworkDefinition"
    refused: tuple[Refused, ...]
    retyped: tuple[Retyped, ...]

    @property
    def accepted(self) -> bool:
        """True if the parser made a network of the whole graph."""
        return not self.refused

    def contract(self) -> Contract:
        """Return the network's inputs and outputs in their order, with types and shapes."""
        network = self.network
        return Contract(
            tuple(_spec(network.get_input(i)) for i in range(network.num_inputs)),
            tuple(_spec(network.get_output(i)) for i in range(network.num_outputs)),
            (),
        )


def parse(api: ModuleType, graph: Path, messages: MessageLog) -> Parsed:
    """Parse a graph's file; `api` is a TensorRT library's module."""
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = api
    logger = make_logger(api, messages)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(str(graph)):
        return Parsed(builder, parser, network, (), tuple(_retyped(network, graph)))
    refusals = _Refusals(api, builder, logger, graph)
    refused = tuple(refusals())
    return Parsed(builder, parser, network, refused, refusals.retyped)


def _spec(tensor: "trt.ITensor") -> TensorSpec:
    shape: list[Dimension] = [size if size >= 0 else UNKNOWN_DIMENSION for size in tensor.shape]
    name = str(tensor.dtype.name)
    dtype = DTYPES.get(name) or cast("DType", name.lower())  # a type that no contract declares
    return TensorSpec(tensor.name, dtype, tuple(shape))


def _retyped(network: "trt.INetworkDefinition", graph: Path) -> Iterator[Retyped]:
    """Yield the graph's tensors that the network has in another type, in graph order."""
    built = {}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for result in range(layer.num_outputs):
            if (tensor := layer.get_output(result)) is not None:
                built[tensor.name] = tensor
    for index in range(network.num_inputs):
        built[network.get_input(index).name] = network.get_input(index)
    for index in range(network.num_outputs):
        built[network.get_output(index).name] = network.get_output(index)
    model = with_types(load_model(graph))
    for value in model.graph.inputs:
        yield from _compared(value, Origin(operator="input", types=_type(value)), built)
    for node, module in nodes_with_modules(model):
        for value in node.outputs:
            yield from _compared(value, _origin(node, module), built)


def _compared(
    value: ir.Value, origin: Origin, built: "dict[str, trt.ITensor]"
) -> Iterator[Retyped]:
    tensor = built.get(value.name or "")
    planned = contract_dtype(value.dtype) if value.dtype is not None else None
    if tensor is None or planned is None:
        return
    found = DTYPES.get(tensor.dtype.name, tensor.dtype.name.lower())
    if found != planned:
        yield Retyped(origin, value.name or "", planned, found)


class _Refusals:
    """Everything that the parser refuses in one graph; then `retyped` are the tensors of the rest
    whose types it changes.
    """

    def __init__(
        self, api: ModuleType, builder: "trt.Builder", logger: "trt.ILogger", graph: Path
    ) -> None:
        self._api, self._builder, self._logger = api, builder, logger
        self._graph = graph
        self.retyped: tuple[Retyped, ...] = ()
        self._proto = onnx.load(graph, load_external_data=False)
        self._model = load_model(graph)
        self._inputs = {value.name for value in self._proto.graph.input}
        # Inlined functions would number the nodes anew.
        typed = self._model if self._model.functions else with_types(self._model)
        self._origins: list[Origin] = []
        # What is in the bodies of each of these nodes, by name and operator.
        self._bodies: list[dict[tuple[str, str], Origin]] = []
        outer = {id(node) for node in typed.graph}
        for node, module in nodes_with_modules(typed):
            if id(node) in outer:
                self._origins.append(_origin(node, module))
                self._bodies.append({})
            else:
                key = node.name or "", node.op_type
                self._bodies[-1].setdefault(key, _origin(node, module))
        self._inner = {
            node.name: _origin(node, module)
            for node, module in nodes_with_modules(with_types(self._model))
            if node.name
        }
        self._alive = list(range(len(self._proto.graph.node)))

    def __call__(self) -> Iterator[Refused]:
        """Yield each refusal once, in the order found."""
        for _ in range(_MOST_ROUNDS):
            errors = self._ask(self._proto)
            cut: set[int] = set()
            for error in errors:
                place = self._outer_index(error)
                if place is None:
                    inputs = self._refused_inputs()
                    yield from self._about_inputs(inputs, error)
                    readers = self._readers_of_refused_constants()
                    for reader in sorted(readers.keys() - cut):
                        origin = self._origins[self._alive[reader]]
                        yield Refused(origin, readers[reader], _text(error))
                    cut |= readers.keys()
                    if not inputs and not readers and (last := self._first_refused()) not in cut:
                        cut.add(last)
                        yield Refused(self._origins[self._alive[last]], "", _text(error))
                elif place not in cut:
                    cut.add(place)
                    yield Refused(self._named(error, place), "", _text(error))
            if not cut or not self._cut(cut):
                return

    def _ask(self, proto: onnx.ModelProto) -> "list[_Error]":
        network = self._builder.create_network(0)
        if TYPE_CHECKING:
            import tensorrt as trt
        else:
            trt = self._api
        parser = trt.OnnxParser(network, self._logger)
        if parser.parse(proto.SerializeToString(), str(self._graph)):
            self.retyped = tuple(_retyped(network, self._graph)) if proto is self._proto else ()
            return []
        # The errors are copies of the parser's, which may go.
        return [_Error(parser.get_error(number)) for number in range(parser.num_errors)]

    def _outer_index(self, error: "_Error") -> int | None:
        """Return the index of the main graph's node that an error is about; None for an input."""
        nodes = self._proto.graph.node
        if error.stack:
            caller = error.stack[0].rpartition(" (")[0]
            return next((i for i, node in enumerate(nodes) if node.name == caller), None)
        if 0 <= error.index < len(nodes) and nodes[error.index].op_type == error.operator:
            return error.index
        named = next((i for i, node in enumerate(nodes) if node.name == error.node != ""), None)
        if named is not None:
            return named
        return next((i for i in range(len(nodes)) if error.key in self._body(i)), None)

    def _body(self, index: int) -> "dict[tuple[str, str], Origin]":
        return self._bodies[self._alive[index]]

    def _named(self, error: "_Error", index: int) -> Origin:
        """Return the node itself, which may be in a body or a function of the main graph's node."""
        if error.stack and (inner := self._inner.get(error.node)) is not None:
            return inner
        return self._body(index).get(error.key, self._origins[self._alive[index]])

    def _refused_inputs(self) -> list[onnx.ValueInfoProto]:
        """Return the inputs that the parser refuses by themselves; results of nodes that were cut
        out are inputs, too.
        """
        return [
            value for value in self._proto.graph.input if self._ask(input_alone(value, self._proto))
        ]

    def _about_inputs(
        self, refused: Sequence[onnx.ValueInfoProto], error: "_Error"
    ) -> Iterator[Refused]:
        """Yield those of the refused inputs that the graph itself has."""
        for value in refused:
            if value.name in self._inputs:
                self._inputs.remove(value.name)  # named once
                origin = Origin("", "input", types=_proto_type(value))
                yield Refused(origin, value.name, _text(error))

    def _first_refused(self) -> int:
        """Return the node with which the parser begins to refuse the graph, for an error that names
        no node: the graph is parsed up to one node after the other, by halves.
        """
        low, high = 0, len(self._proto.graph.node) - 1
        while low < high:
            middle = (low + high) // 2
            if self._ask(self._up_to(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def _up_to(self, last: int) -> onnx.ModelProto:
        """Return the graph up to a node, whose results are its outputs."""
        part = onnx.ModelProto()
        part.CopyFrom(self._proto)
        del part.graph.node[last + 1 :], part.graph.output[:]
        typed = _value_infos(self._model)
        names = [name for name in part.graph.node[last].output if name in typed]
        part.graph.output.extend(typed[name] for name in names)
        return part

    def _readers_of_refused_constants(self) -> dict[int, str]:
        """Return the nodes that read a constant whose type is refused by itself, and its name."""
        refused = {
            kind: self._ask(constant_alone(kind, self._proto))
            for kind in {constant.data_type for constant in self._proto.graph.initializer}
        }
        names = {
            constant.name
            for constant in self._proto.graph.initializer
            if refused[constant.data_type]
        }
        return {
            index: next(name for name in node.input if name in names)
            for index, node in enumerate(self._proto.graph.node)
            if names.intersection(node.input)
        }

    def _cut(self, indices: set[int]) -> bool:
        """Remove nodes, and turn their results into inputs; False if nothing is left to ask about,
        or a result's type is unknown.
        """
        graph = self._proto.graph
        typed = _value_infos(self._model)
        results = [name for i in sorted(indices) for name in graph.node[i].output if name]
        wanted = [typed.get(name) for name in results]
        if any(info is None for info in wanted):
            return False
        graph.input.extend(info for info in wanted if info is not None)
        lost = {name for index in indices for name in graph.node[index].input}
        for index in sorted(indices, reverse=True):
            del graph.node[index]
            del self._alive[index]
        read = {name for node in graph.node for name in node.input}
        constants = [each for each in graph.initializer if each.name in read]
        del graph.initializer[:]
        graph.initializer.extend(constants)
        kept = [value for value in graph.output if value.name not in results]
        if not kept:  # what led to the lost outputs is asked about as well
            made = {name for node in graph.node for name in node.output}
            kept = [typed[name] for name in sorted(made & lost) if name in typed]
        del graph.output[:]
        graph.output.extend(kept)
        return bool(kept and graph.node)


class _Error:
    """What a parser's error says, kept beyond the parser's life."""

    def __init__(self, error: "trt.ParserError") -> None:
        self.index = int(error.node())
        self.node, self.operator = str(error.node_name()), str(error.node_operator())
        self.description = str(error.desc())
        self.stack = [str(line) for line in error.local_function_stack()]

    @property
    def key(self) -> tuple[str, str]:
        """The name and operator of the node."""
        return self.node, self.operator


def _origin(node: ir.Node, module: str) -> Origin:
    given = ", ".join(_type(value) if value is not None else "none" for value in node.inputs)
    results = ", ".join(map(_type, node.outputs))
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
    return Origin(
        node.name or "",
        f"{domain}{node.op_type}",
        module,
        node.metadata_props.get(SOURCE_KEY, ""),
        f"{given} -> {results}",
    )


def _type(value: ir.Value) -> str:
    if value.dtype is None:
        return "unknown"
    return contract_dtype(value.dtype) or value.dtype.name.lower()


def _proto_type(value: onnx.ValueInfoProto) -> str:
    if not value.type.HasField("tensor_type"):
        return str(value.type.WhichOneof("value")).removesuffix("_type")
    kind = ir.DataType(value.type.tensor_type.elem_type)
    rank = len(value.type.tensor_type.shape.dim)
    return f"{contract_dtype(kind) or kind.name.lower()} of rank {rank}"


def _value_infos(model: ir.Model) -> dict[str, onnx.ValueInfoProto]:
    """Return the type and shape of each value of the main graph, where known."""
    infos = {}
    for node in with_types(model).graph:
        for value in node.outputs:
            if value.name and value.dtype is not None:
                infos[value.name] = ir.to_proto(value)
    return infos


def _text(error: _Error) -> str:
    """Return the parser's reason on one line, without the condition that failed in its source."""
    words = " ".join(error.description.split())
    if words == _SILENT:
        return "it has no importer for it"
    if (quoted := _QUOTED.search(words)) is not None:
        return quoted["said"]
    return _CONDITION.sub("", words)
