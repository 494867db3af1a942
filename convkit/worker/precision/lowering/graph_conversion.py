"""Rewrites a float32 graph, in one pass, into a strongly typed mixed-precision graph.

Every node computes in its assigned type. A value keeps its producer's type; a consumer that needs
another gets a Cast, placed right behind the producer and shared by all consumers of that type,
including those in subgraphs. Constants get no Cast: they are stored in each type they are used in.
The result of a Cast in the original graph is cast afresh from its source to the type each consumer
needs, so that no two Casts are adjacent. The graph's inputs and outputs keep their types.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path

import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_traversal import (
    add_constant,
    all_names,
    all_values,
    attribute_graphs,
    cast_node,
    constant_tensor,
    free_name,
    set_dtype,
)
from convkit.worker.graph.lint.onnx_checker import check_types
from convkit.worker.graph.node_modules import EXPORTER_SCOPES_KEY
from convkit.worker.graph.node_origins import MODULE_KEY
from convkit.worker.precision.constant_rounding import IR_DTYPES, NAMES, convert_tensor
from convkit.worker.precision.lowering.operator_rules import operator_rule
from convkit.worker.precision.lowering.precision_plan import (
    Assignment,
    PrecisionPlan,
    TypeChoice,
    assign,
)

# Operators with an attribute for their output type: the attribute's name.
TYPED_BY_ATTRIBUTE: dict[str, str] = {
    "Bernoulli": "dtype",
    "BlackmanWindow": "output_datatype",
    "EyeLike": "dtype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "RandomNormal": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniform": "dtype",
    "RandomUniformLike": "dtype",
    "SequenceEmpty": "dtype",
}
# A Cast at a border has the metadata that locates it in the model.
_PLACE_KEYS = (MODULE_KEY, EXPORTER_SCOPES_KEY)


@dataclasses.dataclass(frozen=True)
class GraphConversion:
    """The rewritten model; the Casts it inserted; the constants (by their original names) it stored
    in a low type.
    """

    model: ir.Model
    casts: int
    constants: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FileConversion:
    """A conversion written to a file: its assignment, including unmatched patterns, and the
    counts.
    """

    assignment: Assignment
    conversion: GraphConversion


def convert(
    model: ir.Model, assignment: Assignment, *, saturate: bool | Collection[str] = False
) -> GraphConversion:
    """Rewrite a prepared model according to its assignment, without changing the model itself.

    Constants beyond the type's range become infinite, as in a runtime's Cast (`scan_constants`
    reports them). With `saturate`, they, or those that it names, become its largest finite value.
    Weights are read and rounded one by one when the result is saved.
    """
    copy = model.clone()
    pairs = zip(model.graph.all_nodes(), copy.graph.all_nodes(), strict=True)
    choices = {
        ours: assignment.choices[theirs] for theirs, ours in pairs if theirs in assignment.choices
    }
    rewriter = _Rewriter(copy, choices, saturate=saturate)
    rewriter.run()
    return GraphConversion(copy, rewriter.casts_inserted, tuple(rewriter.converted_constants))


def convert_file(
    model: ir.Model, destination: Path, plan: PrecisionPlan, *, saturate: bool = False
) -> FileConversion:
    """Convert a prepared model and write it, with weights next to it in `<name>.data`; strictly
    check the result's types.

    Raises onnx.checker.ValidationError or onnx.shape_inference.InferenceError if the result is not
    well typed.
    """
    assignment = assign(model, plan)
    conversion = convert(model, assignment, saturate=saturate)
    save_model(conversion.model, destination)
    check_types(destination)
    return FileConversion(assignment, conversion)


class _Rewriter:
    """The state of one pass: the values that were float32, the casts and stored types so far, free
    names.
    """

    def __init__(
        self,
        model: ir.Model,
        choices: dict[ir.Node, TypeChoice],
        *,
        saturate: bool | Collection[str],
    ) -> None:
        self.model = model
        self.choices = choices
        self.saturate = saturate
        self.casts_inserted = 0
        self.converted_constants: dict[str, None] = {}
        self.in_type: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self.names = all_names(model)
        # Values already in a low-precision type were chosen deliberately, and stay.
        self.was_float32 = {
            value for value in all_values(model) if value.dtype == ir.DataType.FLOAT
        }

    def run(self) -> None:
        self.rewrite_graph(self.model.graph)
        self.restore_outputs()
        self.remove_unused()

    def rewrite_graph(self, graph: ir.Graph) -> None:
        for node in list(graph):
            choice = self.choices.get(node)
            low = choice.dtype if choice is not None and choice.dtype != "float32" else None
            self.rewrite_node(node, low)

    def rewrite_node(self, node: ir.Node, low: DType | None) -> None:
        if node.op_type == "CastLike" and node.domain == "":
            cast_like_to_cast(node)
        if node.domain == "" and node.op_type in ("Constant", "Cast"):
            return  # provided to each consumer in the type it needs
        if low is None:
            needs_in, needs_out = ("float32",) * len(node.inputs), ("float32",) * len(node.outputs)
            if node.domain == "" and node.op_type in ("Shape", "Size"):
                needs_in = ("any",)
        else:
            rule = operator_rule(node, self.model.opset_imports, low)
            needs_in, needs_out = rule.inputs, rule.outputs
        for index, (value, need) in enumerate(zip(node.inputs, needs_in, strict=True)):
            if value is not None and value in self.was_float32 and need != "any":
                wanted = low if need == "low" and low is not None else "float32"
                node.replace_input_with(index, self.as_type(value, wanted))
        for attribute in list(node.attributes.values()):
            for body in attribute_graphs(attribute):
                self.rewrite_body(body, low)
        for value, need in zip(node.outputs, needs_out, strict=True):
            if low is not None and need == "low" and value in self.was_float32:
                self.type_output(node, value, low)

    def rewrite_body(self, body: ir.Graph, low: DType | None) -> None:
        """Rewrite the body of an If, Loop or Scan: its inputs and outputs have the outer node's
        type.
        """
        outer: DType = low or "float32"
        for value in body.inputs:
            if value in self.was_float32:
                set_dtype(value, IR_DTYPES[outer])
        self.rewrite_graph(body)
        for index, value in enumerate(body.outputs):
            if value in self.was_float32:
                given = self.as_type(value, outer)
                if given is not value and (given.graph is not body or given.producer() is None):
                    given = self.append_identity(
                        body, given
                    )  # a body returns only values of its own nodes
                body.outputs[index] = given

    def type_output(self, node: ir.Node, value: ir.Value, low: DType) -> None:
        set_dtype(value, IR_DTYPES[low])
        if node.domain != "":
            return
        if node.op_type == "ConstantOfShape":
            fill = node.attributes.get("value")
            name = f"{value.name}.fill"
            tensor = (
                fill.as_tensor() if fill is not None else ir.tensor([0.0], dtype=ir.DataType.FLOAT)
            )
            converted = convert_tensor(tensor, low, name, saturate=self.saturates(value))
            node.attributes["value"] = ir.AttrTensor("value", converted)
        elif (attribute := TYPED_BY_ATTRIBUTE.get(node.op_type)) is not None:
            node.attributes[attribute] = ir.AttrInt64(attribute, int(IR_DTYPES[low]))

    def as_type(self, value: ir.Value, dtype: DType) -> ir.Value:
        """Return a value in a type: itself, its stored copy, or a shared Cast."""
        wanted = IR_DTYPES[dtype]
        if value.dtype == wanted:
            return value
        if (value, wanted) not in self.in_type:
            self.in_type[value, wanted] = self.make_in_type(value, dtype)
        return self.in_type[value, wanted]

    def make_in_type(self, value: ir.Value, dtype: DType) -> ir.Value:
        wanted = IR_DTYPES[dtype]
        producer = value.producer()
        if (tensor := constant_tensor(value)) is not None:
            return self.store(value, tensor, dtype)
        if producer is not None and producer.op_type == "Cast" and producer.domain == "":
            source = producer.inputs[0]
            assert source is not None
            if source in self.was_float32:
                return self.as_type(source, dtype)
            if source.dtype == wanted:
                return source
            return self.insert_cast(
                source, wanted, free_name(f"{value.name}.{dtype}", self.names), after=value
            )
        return self.insert_cast(
            value, wanted, free_name(f"{value.name}.{dtype}", self.names), after=value
        )

    def saturates(self, value: ir.Value) -> bool:
        if isinstance(self.saturate, bool):
            return self.saturate
        return value.name in self.saturate

    def store(self, value: ir.Value, tensor: ir.TensorProtocol, dtype: DType) -> ir.Value:
        name = free_name(f"{value.name}.{dtype}", self.names)
        assert value.graph is not None
        converted = convert_tensor(tensor, dtype, name, saturate=self.saturates(value))
        stored = add_constant(value.graph, name, converted)
        stored.metadata_props.update(value.metadata_props)
        self.converted_constants[value.name or ""] = None
        return stored

    def insert_cast(
        self, source: ir.Value, to: ir.DataType, name: str, *, after: ir.Value
    ) -> ir.Value:
        """Cast `source`, right behind the producer of `after`."""
        producer, graph = after.producer(), after.graph
        assert graph is not None
        output = ir.Value(name=name, type=ir.TensorType(to), shape=after.shape)
        cast = cast_node(source, output, self.names)
        if producer is not None:
            cast.metadata_props.update(
                {key: text for key, text in producer.metadata_props.items() if key in _PLACE_KEYS}
            )
            graph.insert_after(producer, cast)
        else:
            graph.insert_before(graph[0], cast)
        self.casts_inserted += 1
        return output

    def append_identity(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        output = ir.Value(
            name=free_name(f"{value.name}.out", self.names), type=value.type, shape=value.shape
        )
        graph.append(
            ir.Node(
                "",
                "Identity",
                [value],
                outputs=[output],
                name=free_name(f"identity.{output.name}", self.names),
            )
        )
        return output

    def restore_outputs(self) -> None:
        """Restore the types and names of the graph's outputs."""
        outputs = self.model.graph.outputs
        for value in dict.fromkeys(outputs):
            if value not in self.was_float32 or value.dtype == ir.DataType.FLOAT:
                continue
            name, low = value.name, NAMES[value.dtype]
            restored = self.as_type(value, "float32")
            value.name = free_name(f"{name}.{low}", self.names)
            restored.name = name
            restored.metadata_props.update(value.metadata_props)
            for index, output in enumerate(outputs):
                if output is value:
                    outputs[index] = restored

    def remove_unused(self) -> None:
        """Remove originals that every consumer now gets in another type; the only remaining copy of
        a weight takes its name.
        """
        for graph in self.model.graphs():
            for node in reversed(list(graph)):
                if node.domain == "" and node.op_type in ("Constant", "Cast"):
                    output = node.outputs[0]
                    if (
                        not output.uses()
                        and not output.is_graph_output()
                        and output in self.was_float32
                    ):
                        graph.remove(node, safe=True)
        for (value, _), stored in self.in_type.items():
            graph = value.graph
            if (
                graph is None
                or not value.is_initializer()
                or value.uses()
                or value.is_graph_output()
            ):
                continue
            if value.name in graph.initializers and stored.is_initializer():
                name = value.name
                del graph.initializers[name]
                del graph.initializers[stored.name]
                stored.name = name
                graph.register_initializer(stored)


def cast_like_to_cast(node: ir.Node) -> None:
    """Replace a CastLike, whose type comes from its second input, by a Cast: that input may change
    its type.
    """
    target = node.outputs[0].dtype
    assert target is not None
    node.resize_inputs(1)
    node.op_type = "Cast"
    node.attributes["to"] = ir.AttrInt64("to", int(target))
