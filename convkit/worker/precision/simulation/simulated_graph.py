"""A float32 graph that computes what a mixed-precision graph computes, with explicit rounding.

onnxruntime's CPU provider runs chains of float16 operators in float32, which hides overflow. Here,
every value that is float16 or bfloat16 in the real graph passes through Cast(to that type), Cast(to
float32), which onnxruntime preserves at every optimization level (a test enforces it). Overflow
yields infinity, underflow yields zero, and everything else is rounded to nearest even, at the
border of every operator.

It does not show rounding inside an operator. Kernels of real devices accumulate matrix products,
convolutions, means, sums, softmax and layer normalization in float32 and round once at the end, as
this does. A kernel that accumulates in float16 is worse, and one that fuses several operators is
better than the simulation.
"""

from pathlib import Path

import onnx_ir as ir

from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import (
    all_names,
    attribute_graphs,
    cast_node,
    free_name,
    set_dtype,
)
from convkit.worker.graph.typed_graph import prepare, with_types
from convkit.worker.precision.constant_rounding import NAMES, convert_tensor
from convkit.worker.precision.lowering.graph_conversion import TYPED_BY_ATTRIBUTE, cast_like_to_cast
from convkit.worker.precision.simulation.arithmetic import with_defined_arithmetic

_LOW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

# Operators whose output values are among their input values, or are integers or signs of them:
# representable values stay representable, so rounding again would change nothing.
_EXACT = frozenset(
    {
        "Abs", "Ceil", "Clip", "Compress", "Concat", "ConcatFromSequence", "DepthToSpace",
        "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
        "Identity", "Max", "MaxPool", "Min", "Neg", "OneHot", "Optional", "OptionalGetElement",
        "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "ReverseSequence", "Round",
        "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
        "Sign", "Slice", "SpaceToDepth", "Split", "SplitToSequence", "Squeeze", "Tile", "TopK",
        "Transpose", "Trilu", "Unsqueeze", "Where",
    }
)  # fmt: skip
_BODIES = frozenset({"If", "Loop", "Scan"})


def simulate(model: ir.Model) -> ir.Model:
    """Return the float32 simulation of a strongly typed mixed-precision model; functions are
    inlined.

    The result has the model's inputs and outputs, and its values keep their names. Weights are
    stored in float32 with their rounded values, read one by one when the result is saved.
    """
    copy = prepare(model)
    _Simulator(copy).run()
    return copy


def widen(model: ir.Model) -> ir.Model:
    """Return a prepared mixed-precision model entirely in float32: the same graph, without
    rounding.

    Weights keep their rounded values; inputs and outputs keep their types.
    """
    copy = prepare(model)
    _Simulator(copy, rounds=False).run()
    return copy


def low_nodes(model: ir.Model) -> set[str]:
    """Return the names of results that nodes of a prepared model produce in float16 or bfloat16."""
    return {
        value.name or ""
        for node in model.graph.all_nodes()
        for value in node.outputs
        if value.dtype in _LOW
    }


def simulate_file(source: Path, destination: Path) -> None:
    """Write the simulation of a model file in the arithmetic that simulations define, with weights
    next to it in `<name>.data`; see `simulate` and `with_defined_arithmetic`.
    """
    simulation = with_defined_arithmetic(simulate(load_model(source)))
    save_model(simulation, destination)


def define_file(source: Path, destination: Path) -> None:
    """Write a model file in the arithmetic that simulations define, as `simulate_file` does."""
    model = with_defined_arithmetic(with_types(load_model(source)))
    save_model(model, destination)


def widen_file(source: Path, destination: Path) -> None:
    """Write a model file without rounding, with its weights in `<name>.data`; see `widen`."""
    save_model(widen(load_model(source)), destination)


class _Simulator:
    def __init__(self, model: ir.Model, *, rounds: bool = True) -> None:
        self.model = model
        self.rounds = rounds
        self.names = all_names(model)

    def run(self) -> None:
        main = self.model.graph
        outputs = [output.dtype for output in main.outputs]
        low_inputs = [(value, value.dtype) for value in main.inputs if value.dtype in _LOW]
        for graph in self.model.graphs():
            for value in graph.initializers.values():
                if value.dtype in _LOW and not value.is_graph_input():
                    assert value.const_value is not None
                    value.const_value = convert_tensor(
                        value.const_value, "float32", value.name or ""
                    )
                    set_dtype(value, ir.DataType.FLOAT)
            if graph is not main:
                for value in graph.inputs:
                    self.widen(value)
        self.rewrite_graph(main)
        for value, _ in low_inputs:
            self.widen_input(value)
        for index, dtype in enumerate(outputs):
            if dtype in _LOW:
                self.narrow_output(index, dtype)

    def rewrite_graph(self, graph: ir.Graph) -> None:
        for node in list(graph):
            for attribute in list(node.attributes.values()):
                for body in attribute_graphs(attribute):
                    self.rewrite_graph(body)
            low = [(value, value.dtype) for value in node.outputs if value.dtype in _LOW]
            if not low:
                continue
            if node.domain == "":
                if node.op_type == "CastLike":
                    cast_like_to_cast(node)
                if node.op_type == "Cast" or "sparse_value" in node.attributes:
                    self.round_cast(node)
                    continue
                self.widen_attributes(node)
            for value, dtype in low:
                self.widen(value)
                if node.domain != "" or node.op_type not in _EXACT | _BODIES | {
                    "Constant",
                    "ConstantOfShape",
                }:
                    self.round_output(node, value, dtype)

    def widen(self, value: ir.Value) -> None:
        if value.dtype in _LOW:
            set_dtype(value, ir.DataType.FLOAT)

    def widen_attributes(self, node: ir.Node) -> None:
        """Make a node with an attribute for its output type return float32."""
        if node.op_type in ("Constant", "ConstantOfShape"):
            stored = node.attributes["value"].as_tensor()
            widened = convert_tensor(stored, "float32", stored.name or "")
            node.attributes["value"] = ir.AttrTensor("value", widened)
        elif (
            attribute := TYPED_BY_ATTRIBUTE.get(node.op_type)
        ) in node.attributes and attribute is not None:
            node.attributes[attribute] = ir.AttrInt64(attribute, int(ir.DataType.FLOAT))

    def round_cast(self, node: ir.Node) -> None:
        """Let a node, usually a Cast, produce its low-precision type, and convert back to float32
        behind it.
        """
        value = node.outputs[0]
        if not self.rounds:
            if node.op_type == "Cast":
                node.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.FLOAT))
                set_dtype(value, ir.DataType.FLOAT)
                return
            return  # a sparse constant, which has no other form
        name = value.name
        wide = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
        ir.convenience.replace_all_uses_with(value, wide, replace_graph_outputs=True)
        value.name = free_name(f"{name}.rounded", self.names)
        self.insert_cast(node, value, wide)

    def round_output(self, node: ir.Node, value: ir.Value, dtype: ir.DataType) -> None:
        """Round an output to its real type; the rounded value keeps the name."""
        if not self.rounds:
            return
        name = value.name
        narrow = ir.Value(
            name=free_name(f"{name}.rounded", self.names),
            type=ir.TensorType(dtype),
            shape=value.shape,
        )
        wide = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
        ir.convenience.replace_all_uses_with(value, wide, replace_graph_outputs=True)
        value.name = free_name(f"{name}.exact", self.names)
        self.insert_cast(node, value, narrow)
        self.insert_cast(narrow.producer() or node, narrow, wide)

    def insert_cast(self, after: ir.Node, source: ir.Value, output: ir.Value) -> None:
        assert after.graph is not None
        cast = cast_node(source, output, self.names)
        cast.metadata_props.update(after.metadata_props)
        after.graph.insert_after(after, cast)

    def widen_input(self, value: ir.Value) -> None:
        """Accept an input in the contract's low-precision type, and widen it once."""
        graph = self.model.graph
        name = free_name(f"{value.name}.wide", self.names)
        wide = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
        ir.convenience.replace_all_uses_with(value, wide, replace_graph_outputs=True)
        graph.insert_before(graph[0], cast_node(value, wide, self.names))

    def narrow_output(self, index: int, dtype: ir.DataType | None) -> None:
        """Return an output in the contract's low-precision type; its values are already rounded."""
        graph = self.model.graph
        value = graph.outputs[index]
        assert dtype is not None
        output = ir.Value(name=value.name, type=ir.TensorType(dtype), shape=value.shape)
        value.name = free_name(f"{value.name}.{NAMES[ir.DataType.FLOAT]}", self.names)
        graph.append(cast_node(value, output, self.names))
        graph.outputs[index] = output
