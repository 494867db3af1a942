"""Compares the meaning of two ONNX models.

These do not count as differences: the order of fields, initializers and metadata; the location of
an initializer's bytes; a different topological order of the same graph; doc strings; the producer's
version; exporters' notes in metadata (see `onnx_nodes.metadata`). Everything else counts, including
the names of nodes and values.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir

from convkit.protocol.comparison.difference_listing import Listing, both, message_text, named_pairs
from convkit.protocol.messages import DifferenceKind
from convkit.worker.comparison.onnx_file import OnnxFile, open_onnx, type_name
from convkit.worker.comparison.onnx_nodes import (
    described,
    domain,
    in_order,
    label,
    metadata,
    module,
    paired,
    wiring,
)
from convkit.worker.comparison.weights import compare_weights
from convkit.worker.job_context import StageFailedError

# Fields that are compared explicitly or ignored; all others are compared as they are.
_MODEL = frozenset(
    {"graph", "opset_import", "metadata_props", "producer_version", "doc_string", "functions"}
)
_GRAPH = frozenset(
    {"node", "initializer", "input", "output", "value_info", "doc_string", "metadata_props"}
)
_FUNCTION = frozenset(
    {"node", "opset_import", "value_info", "doc_string", "metadata_props", "attribute_proto"}
)
_NODE = frozenset(
    {
        "input",
        "output",
        "name",
        "op_type",
        "domain",
        "overload",
        "attribute",
        "doc_string",
        "metadata_props",
    }
)
_VALUE = frozenset({"name", "type", "doc_string", "metadata_props"})


def compare_onnx(first: Path, second: Path, epsilon: float) -> Listing:
    """Compare two ONNX files. If one cannot be read, the difference has kind `file`."""
    listing = Listing()
    try:
        _Models(open_onnx(first), open_onnx(second), epsilon, listing).compare()
    except StageFailedError as error:
        listing.add("file", "", detail=f"cannot be compared: {error}")
    return listing


class _Models:
    """Two models being compared. Places in nested graphs begin with `node.attribute/`."""

    def __init__(self, first: OnnxFile, second: OnnxFile, epsilon: float, listing: Listing) -> None:
        self._files = first, second
        self._epsilon = epsilon
        self._listing = listing

    def compare(self) -> None:
        """List every difference."""
        first, second = (file.model for file in self._files)
        self._other_fields("", first, second, _MODEL)
        self._opsets("", first.opset_import, second.opset_import)
        self._listing.compare_texts(
            "", metadata(first.metadata_props), metadata(second.metadata_props)
        )
        self._graphs("", first.graph, second.graph)
        named = [
            ((_function_name(each), each) for each in model.functions) for model in (first, second)
        ]
        for name, own, other in named_pairs(*named):
            if own is None or other is None:
                self._listing.add(
                    "function", name, "" if own is None else name, "" if other is None else name
                )
            else:
                self._functions(f"{name}/", own, other)

    def _opsets(self, place: str, first: Iterable[Any], second: Iterable[Any]) -> None:
        versions = [
            ((domain(each.domain) or "ai.onnx", str(each.version)) for each in own)
            for own in (first, second)
        ]
        for name, own, other in named_pairs(*versions):
            self._listing.compare("opset", f"{place}{name}", own or "", other or "")

    def _graphs(self, place: str, first: onnx.GraphProto, second: onnx.GraphProto) -> None:
        self._other_fields(place, first, second, _GRAPH)
        self._listing.compare_texts(
            place, metadata(first.metadata_props), metadata(second.metadata_props)
        )
        self._interface("input", place, first.input, second.input)
        self._interface("output", place, first.output, second.output)
        # Some writers repeat the types of initializers, which are compared as tensors.
        stored = {each.name for graph in (first, second) for each in graph.initializer}
        values = [
            [each for each in graph.value_info if each.name not in stored]
            for graph in (first, second)
        ]
        self._values(place, *values)
        named = [((each.name, each) for each in graph.initializer) for graph in (first, second)]
        for name, own, other in named_pairs(*named):
            self._tensors("initializer", f"{place}{name}", own, other)
        self._nodes(place, first.node, second.node)

    def _functions(self, place: str, first: onnx.FunctionProto, second: onnx.FunctionProto) -> None:
        self._other_fields(place, first, second, _FUNCTION, kind="function")
        self._opsets(place, first.opset_import, second.opset_import)
        self._listing.compare_texts(
            place, metadata(first.metadata_props), metadata(second.metadata_props)
        )
        self._values(place, first.value_info, second.value_info)
        self._attributes(place, first.attribute_proto, second.attribute_proto)
        self._nodes(place, first.node, second.node)

    def _interface(
        self, kind: DifferenceKind, place: str, first: Sequence[Any], second: Sequence[Any]
    ) -> None:
        """Compare inputs or outputs by name, renamed ones by position, and their order."""
        names = [[each.name for each in side] for side in (first, second)]
        own, other = ({each.name: each for each in side} for side in (first, second))
        renamed = {
            a: b
            for a, b in zip(*names, strict=False)
            if a not in other and b not in own and len(first) == len(second)
        }
        for a, b in renamed.items():
            self._listing.add(
                kind, f"{place}{a}", f"{a}: {_type_text(own[a])}", f"{b}: {_type_text(other[b])}"
            )
        for name, a, b in named_pairs(own.items(), other.items()):
            if name in renamed or name in renamed.values():
                continue
            self._value(kind, f"{place}{name}", a, b)
        if names[0] != names[1] and set(names[0]) == set(names[1]):
            self._listing.add(kind, f"{place}order", ", ".join(names[0]), ", ".join(names[1]))

    def _values(self, place: str, first: Iterable[Any], second: Iterable[Any]) -> None:
        named = [((each.name, each) for each in side) for side in (first, second)]
        for name, own, other in named_pairs(*named):
            self._value("value", f"{place}{name}", own, other)

    def _value(
        self,
        kind: DifferenceKind,
        place: str,
        first: Any | None,  # noqa: ANN401 - a protobuf message
        second: Any | None,  # noqa: ANN401
    ) -> None:
        if first is None or second is None:
            self._listing.add(kind, place, *both(first, second, _type_text))
            return
        self._listing.compare_texts(
            place, metadata(first.metadata_props), metadata(second.metadata_props)
        )
        self._listing.compare(kind, place, _type_text(first), _type_text(second))
        self._other_fields(f"{place}.", first, second, _VALUE)

    def _nodes(
        self, place: str, first: Sequence[onnx.NodeProto], second: Sequence[onnx.NodeProto]
    ) -> None:
        for own, other in paired(first, second):
            if own is None or other is None:
                node = own if other is None else other
                assert node is not None
                self._listing.add(
                    "node", f"{place}{label(node)}", *both(own, other, described), module(node)
                )
            else:
                self._node(f"{place}{label(own)}", own, other)
        self._listing.compare("node", f"{place}order", *both(first, second, _order_text))

    def _node(self, place: str, first: onnx.NodeProto, second: onnx.NodeProto) -> None:
        remark = module(first)
        if wiring(first) != wiring(second):
            self._listing.add("node", place, described(first), described(second), remark)
        self._listing.compare("node", f"{place}: name", first.name, second.name, remark)
        self._listing.compare_texts(
            place, metadata(first.metadata_props), metadata(second.metadata_props), remark
        )
        self._attributes(f"{place}.", first.attribute, second.attribute, remark)
        self._other_fields(f"{place}.", first, second, _NODE)

    def _attributes(
        self, place: str, first: Iterable[Any], second: Iterable[Any], remark: str = ""
    ) -> None:
        named = [((each.name, each) for each in side) for side in (first, second)]
        for name, own, other in named_pairs(*named):
            where = f"{place}{name}"
            if (
                own is None
                or other is None
                or own.type != other.type
                or own.ref_attr_name != other.ref_attr_name
            ):
                self._listing.add("attribute", where, *both(own, other, _attribute_text), remark)
            else:
                self._attribute(where, own, other, remark)

    def _attribute(self, place: str, first: Any, second: Any, remark: str) -> None:  # noqa: ANN401
        tensors = [
            (each.t,) if each.HasField("t") else tuple(each.tensors) for each in (first, second)
        ]
        graphs = [
            (each.g,) if each.HasField("g") else tuple(each.graphs) for each in (first, second)
        ]
        if len(tensors[0]) != len(tensors[1]) or len(graphs[0]) != len(graphs[1]):
            self._listing.add(
                "attribute", place, _attribute_text(first), _attribute_text(second), remark
            )
            return
        for own, other in zip(*tensors, strict=True):
            self._tensors("attribute", place, own, other, remark)
        for index, (own, other) in enumerate(zip(*graphs, strict=True)):
            self._graphs(f"{place}[{index}]/" if len(graphs[0]) > 1 else f"{place}/", own, other)
        if not tensors[0] and not graphs[0]:
            self._listing.compare(
                "attribute", place, _attribute_text(first), _attribute_text(second), remark
            )

    def _tensors(
        self,
        kind: DifferenceKind,
        place: str,
        first: onnx.TensorProto | None,
        second: onnx.TensorProto | None,
        remark: str = "",
    ) -> None:
        types = both(first, second, _tensor_text)
        if first is None or second is None or types[0] != types[1]:
            self._listing.add(kind, place, *types, remark)
            return
        if first.data_type == onnx.TensorProto.STRING:
            self._listing.compare(kind, place, *both(first, second, _strings_text), remark)
            return
        own, other = (
            file.weight(each) for file, each in zip(self._files, (first, second), strict=True)
        )
        gap = compare_weights(own, other, self._epsilon)
        if gap is not None:
            detail = "; ".join(part for part in (remark, gap.detail) if part)
            self._listing.add(kind, place, gap.first, gap.second, detail, within=gap.within)
        self._listing.compare_texts(
            place, metadata(first.metadata_props), metadata(second.metadata_props)
        )

    def _other_fields(
        self,
        place: str,
        first: Any,  # noqa: ANN401 - any protocol buffer
        second: Any,  # noqa: ANN401
        known: frozenset[str],
        kind: DifferenceKind = "model",
    ) -> None:
        own, other = (_fields(each, known) for each in (first, second))
        for name, a, b in named_pairs(own.items(), other.items()):
            self._listing.compare(kind, f"{place}{name}", a or "", b or "")


def _fields(message: Any, known: frozenset[str]) -> Mapping[str, str]:  # noqa: ANN401
    return {
        field.name: str(value) for field, value in message.ListFields() if field.name not in known
    }


def _function_name(function: onnx.FunctionProto) -> str:
    return f"{domain(function.domain)}::{function.name}" + (
        f":{function.overload}" if function.overload else ""
    )


def _type_text(value: onnx.ValueInfoProto) -> str:
    """Format a value's complete type as one line."""
    kind = value.type
    # Denotations of dimensions and values are rare, so they are shown in the format's own text
    # form.
    denoted = bool(kind.denotation) or any(dim.denotation for dim in kind.tensor_type.shape.dim)
    if kind.WhichOneof("value") == "tensor_type" and not denoted:
        return _element_name(kind.tensor_type.elem_type) + _shape_text(kind.tensor_type)
    return message_text(kind)


def _shape_text(tensor: Any) -> str:  # noqa: ANN401
    if not tensor.HasField("shape"):
        return " of any shape"
    return f"[{', '.join(map(_size_text, tensor.shape.dim))}]"


def _size_text(dim: Any) -> str:  # noqa: ANN401
    if dim.HasField("dim_value"):
        return str(dim.dim_value)
    # An axis named 3 differs from an axis of size 3.
    return (
        (dim.dim_param if dim.dim_param.isidentifier() else repr(dim.dim_param))
        if dim.dim_param
        else "?"
    )


def _tensor_text(tensor: onnx.TensorProto) -> str:
    return f"{_element_name(tensor.data_type)}[{', '.join(map(str, tensor.dims))}]"


def _strings_text(tensor: onnx.TensorProto) -> str:
    return repr(list(tensor.string_data))


def _order_text(nodes: Sequence[onnx.NodeProto]) -> str:
    return "in order" if in_order(nodes) else "a value is used before it is computed"


def _element_name(code: int) -> str:
    try:
        return type_name(onnx_ir.DataType(code))
    except ValueError:  # newer than this onnx-ir, or damaged
        return f"type {code}"


def _attribute_text(attribute: onnx.AttributeProto) -> str:
    """Format an attribute's value so that distinct values have distinct texts; tensors and graphs
    are summarized.
    """
    if attribute.ref_attr_name:
        return f"the function's {attribute.ref_attr_name}"
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    match kind:
        case "FLOAT" | "INT" | "STRING" | "FLOATS" | "INTS" | "STRINGS":
            value = onnx.helper.get_attribute_value(attribute)
            return repr(value if isinstance(value, int | float | bytes) else list(value))
        case "TENSOR":
            return _tensor_text(attribute.t)
        case "GRAPH":
            return f"a graph of {len(attribute.g.node)} nodes"
        case "TENSORS":
            return ", ".join(map(_tensor_text, attribute.tensors))
        case "GRAPHS":
            return f"{len(attribute.graphs)} graphs"
        case _:
            return f"{kind}: {message_text(attribute)}"
