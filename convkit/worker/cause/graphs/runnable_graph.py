"""An ONNX graph of which any part can be run: with values fed, replaced or exposed anywhere."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from onnx import numpy_helper

from convkit.worker.graph.graph_contract import load_graph
from convkit.worker.graph.graph_loading import map_weights
from convkit.worker.graph.integer_products.product_rewriting import with_exact_products
from convkit.worker.graph.node_origins import MODULE_KEY, SOURCE_KEY
from convkit.worker.runtime_interface.registered_operators import register_libraries

Values = Mapping[str, np.ndarray]

# Bytes. Larger constants are fed as inputs, because a session copies its model's content. Smaller
# ones stay inside, because some kernels need constants (a Resize's scales).
_FED = 4096
# Element types native to numpy, by ONNX's names.
_NATIVE = {"FLOAT", "DOUBLE", "FLOAT16", "BOOL"} | {
    f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)
}

# They read only the shape of a value.
VALUELESS = ("Shape", "Size")


class PieceFailedError(Exception):
    """onnxruntime refused a part of the graph, or failed to run it; the message is its own."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """The nodes in topological order, with every constant apart, whatever node or list it was in.

    `constants` are numpy arrays; those of types that numpy lacks (bfloat16, int4) are in `exotic`.
    Model-local functions are inlined. Nothing is changed in place: rewrites return a new graph.
    `own` are the operations of another format that this is a translation of: `OwnOperations`.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    exotic: Mapping[str, onnx.TensorProto]
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    own: object = dataclasses.field(default=None, kw_only=True, compare=False)

    @cached_property
    def producers(self) -> dict[str, int]:
        """The index of the node that computes each value."""
        return {
            name: index for index, node in enumerate(self.nodes) for name in node.output if name
        }

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """The indices of the nodes that read each value, those in subgraphs included."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in reads(node):
                found.setdefault(name, []).append(index)
        return found

    def closure(self, targets: Iterable[str], stops: Collection[str]) -> list[int]:
        """Return the indices of the nodes that compute the targets from the stops, in order."""
        needed: set[int] = set()
        pending = [name for name in targets if name not in stops]
        while pending:
            index = self.producers.get(pending.pop())
            if index is None or index in needed:
                continue
            needed.add(index)
            pending += [name for name in reads(self.nodes[index]) if name not in stops]
        return sorted(needed)

    def below(self, names: Collection[str], *, by_shape: bool = True) -> set[str]:
        """Return values and all that is computed from them, from their shapes alone if so asked."""
        found, pending = set(names), list(names)
        while pending:
            for index in self.readers.get(pending.pop(), ()):
                node = self.nodes[index]
                if by_shape or node.op_type not in VALUELESS:
                    added = {name for name in node.output if name} - found
                    found |= added
                    pending += added
        return found

    def with_nodes(
        self, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, np.ndarray] | None = None
    ) -> "Graph":
        """Return the graph with other nodes, and some constants added or replaced."""
        merged = self.constants if not constants else {**self.constants, **constants}
        return dataclasses.replace(self, nodes=tuple(nodes), constants=merged)

    def run(self, targets: Sequence[str], feeds: Values) -> dict[str, np.ndarray]:
        """Compute the targets from fed values, which may be any values of the graph.

        Fed values are not computed. Raises PieceFailedError, also if a value is missing.
        """
        given = {name: feeds[name] for name in targets if name in feeds}
        given |= {name: self.constants[name] for name in targets if name in self.constants}
        wanted = [name for name in dict.fromkeys(targets) if name not in given]
        if not wanted:
            return given
        indices = self.closure(wanted, feeds)
        nodes = [_without_outputs(self.nodes[index], feeds) for index in indices]
        return {**given, **self._run_nodes(nodes, wanted, feeds)}

    def run_replaced(
        self, targets: Sequence[str], feeds: Values, replaced: Values
    ) -> dict[str, np.ndarray]:
        """Compute targets with all readers of `replaced` reading the given values instead.

        Unlike fed values, replaced ones can also be targets: these are the graph's own results,
        from replaced inputs. Only the values that the targets need are asked for.
        """
        suffix = "//replaced"
        nodes = []
        for node in self.nodes:
            if replaced.keys() & set(reads(node)):
                node = renamed_inputs(node, {name: name + suffix for name in replaced})  # noqa: PLW2901
            nodes.append(node)
        graph, others = self.with_nodes(nodes), {name + suffix: name for name in replaced}
        indices = graph.closure(targets, {*feeds, *others})
        read = {name for index in indices for name in reads(nodes[index])}
        needed = {each: replaced[name] for each, name in others.items() if each in read}
        return graph.run(targets, {**feeds, **needed})

    def piece(
        self, targets: Sequence[str], feeds: Values
    ) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """Return the model that computes targets from fed values, for their shapes, and the values
        that it reads.
        """
        indices = self.closure(targets, feeds)
        nodes = [_without_outputs(self.nodes[index], feeds) for index in indices]
        model, fed = self._piece(nodes, targets, feeds)
        for given in model.graph.input:
            elements = given.type.tensor_type.elem_type
            shaped = onnx.helper.make_tensor_value_info(given.name, elements, fed[given.name].shape)
            given.CopyFrom(shaped)
        return model, fed

    def _piece(
        self, nodes: Sequence[onnx.NodeProto], targets: Sequence[str], feeds: Values
    ) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        read = {name for node in nodes for name in reads(node)}
        made = {name for node in nodes for name in node.output}
        fed = {name: np.asarray(feeds[name], order="C") for name in feeds if name in read}
        inside = []
        for name in sorted(read - fed.keys() - made):
            if name in self.exotic:
                inside.append(self.exotic[name])
            elif name in self.constants and self.constants[name].nbytes > _FED:
                fed[name] = np.asarray(self.constants[name], order="C")
            elif name in self.constants:
                inside.append(numpy_helper.from_array(np.asarray(self.constants[name]), name))
        return self._model(nodes, inside, fed, targets), fed

    def _run_nodes(
        self, nodes: Sequence[onnx.NodeProto], targets: Sequence[str], feeds: Values
    ) -> dict[str, np.ndarray]:
        import onnxruntime

        model, fed = self._piece(nodes, targets, feeds)
        # A file is examined with exact products, whatever family of processors this one is of.
        model = with_exact_products(model)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        register_libraries(options)
        quiet = onnxruntime.RunOptions()
        quiet.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            found = session.run(list(targets), fed, quiet)
        except MemoryError:
            raise
        except Exception as error:  # onnxruntime's own errors share no base class
            raise PieceFailedError(str(error)) from error
        return {
            name: values
            for name, values in zip(targets, found, strict=True)
            if isinstance(values, np.ndarray)
        }

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        inside: Sequence[onnx.TensorProto],
        fed: Values,
        targets: Sequence[str],
    ) -> onnx.ModelProto:
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(values.dtype), None
            )
            for name, values in fed.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in targets]
        graph = onnx.helper.make_graph(nodes, "piece", inputs, outputs, list(inside))
        opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in self.opsets]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)


def read_graph(path: Path) -> Graph:
    """Read a model's file as its session does (`load_graph`); external weights stay mapped. Raises
    StageFailedError.
    """
    model = load_graph(path)
    map_weights(model, path.parent)
    return make_graph(model)


def make_graph(model: onnx_ir.Model) -> Graph:
    """Return a model's graph, its functions inlined and its constants apart."""
    from onnx_ir.passes.common import InlinePass

    model.graph.sort()  # files need not be in order, and only what is can be copied
    model = model.clone()
    if model.functions:
        InlinePass()(model)
    model = _without_identities(model)
    constants: dict[str, np.ndarray] = {}
    exotic: dict[str, onnx.TensorProto] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.dtype.name in _NATIVE:
            constants[name] = np.asarray(tensor.numpy())
        else:
            exotic[name] = onnx_ir.serde.serialize_tensor(tensor)
        del model.graph.initializers[name]
    proto = onnx_ir.to_proto(model)
    nodes, written, _ = constants_apart(proto.graph.node, ())
    constants |= written
    inputs = tuple(v.name for v in proto.graph.input if v.name not in constants | exotic)
    return Graph(
        tuple(nodes),
        inputs,
        tuple(value.name for value in proto.graph.output),
        constants,
        exotic,
        proto.ir_version,
        tuple((each.domain, each.version) for each in proto.opset_import),
    )


def constants_apart(
    nodes: Iterable[onnx.NodeProto], tensors: Iterable[onnx.TensorProto]
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, onnx.TensorProto]]:
    """Return a graph's nodes without constants, its constants and its exotic ones."""
    constants: dict[str, np.ndarray] = {}
    exotic: dict[str, onnx.TensorProto] = {}
    for tensor in tensors:
        if onnx_ir.DataType(tensor.data_type).name in _NATIVE:
            constants[tensor.name] = numpy_helper.to_array(tensor)
        else:
            exotic[tensor.name] = tensor
    kept = []
    for node in nodes:
        plain = node.op_type == "Constant" and node.domain == ""
        if plain and (array := _constant(node)) is not None:
            constants[node.output[0]] = array
        else:
            kept.append(node)
    return kept, constants, exotic


def _without_identities(model: onnx_ir.Model) -> onnx_ir.Model:
    from convkit.worker.graph.rewriting.identity_removal import remove_identities

    plain = model.clone()
    remove_identities(plain)
    return plain


def _constant(node: onnx.NodeProto) -> np.ndarray | None:
    attribute = node.attribute[0]
    value = onnx.helper.get_attribute_value(attribute)
    match attribute.name:
        case "value":
            name = onnx_ir.DataType(value.data_type).name
            return numpy_helper.to_array(value) if name in _NATIVE else None
        case "value_float" | "value_floats":
            return np.asarray(value, np.float32)
        case "value_int" | "value_ints":
            return np.asarray(value, np.int64)
        case _:
            return None


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node reads, including those that its subgraphs capture."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {value.name for value in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            inside = [name for inner in graph.node for name in reads(inner)]
            inside += [value.name for value in graph.output]
            found += [name for name in inside if name not in own]
    return list(dict.fromkeys(found))


def renamed_inputs(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of a node that reads other values, in its subgraphs as well."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _rename_in_place(copy, names)
    return copy


def _without_outputs(node: onnx.NodeProto, fed: Collection[str]) -> onnx.NodeProto:
    """Return a node that gives results that are fed another name, if it has others as well."""
    names = {name: f"{name}//unread" for name in node.output if name in fed}
    if not names:
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for place, name in enumerate(copy.output):
        copy.output[place] = names.get(name, name)
    return copy


def with_names(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of a node that reads and computes values of other names."""
    copy = renamed_inputs(node, names)
    for place, name in enumerate(copy.output):
        copy.output[place] = names.get(name, name)
    return copy


def _rename_in_place(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for place, name in enumerate(node.input):
        if name in names:
            node.input[place] = names[name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {value.name for value in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            outer = {name: new for name, new in names.items() if name not in own}
            for inner in graph.node:
                _rename_in_place(inner, outer)
            for value in graph.output:
                value.name = outer.get(value.name, value.name)


def module_of(node: onnx.NodeProto) -> str:
    """Return the path of a node's module; "" if the file does not record it."""
    for entry in node.metadata_props:
        if entry.key == MODULE_KEY:
            return str(entry.value)
    # TorchScript names nodes after their modules: `/encoder/layer.0/attention/MatMul`.
    return ".".join(node.name.split("/")[1:-1]) if node.name.startswith("/") else ""


def source_of(node: onnx.NodeProto) -> str | None:
    """Return the source line that convkit's export left on a node."""
    return next((e.value for e in node.metadata_props if e.key == SOURCE_KEY), None)


def label(node: onnx.NodeProto) -> str:
    """Return a node's name, or the name of its first output if it has none."""
    return str(node.name or next((name for name in node.output if name), node.op_type))
