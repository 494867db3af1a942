"""Restores what the quantizer dropped from a graph: metadata, module paths, names and shapes of
inputs and outputs.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import onnx_ir as ir

from convkit.worker.graph.graph_files import save_model

# Added to models by the quantizers.
_FOREIGN_METADATA = frozenset({"onnx.infer"})


def restore(quantized: ir.Model, prepared: ir.Model, source: ir.Model) -> None:
    """Restore metadata, module paths, and the contract's inputs and outputs in place; sort the
    weights by name.
    """
    quantized.metadata_props.clear()
    quantized.metadata_props.update(
        {key: text for key, text in source.metadata_props.items() if key not in _FOREIGN_METADATA}
    )
    quantized.producer_name, quantized.producer_version = (
        source.producer_name,
        source.producer_version,
    )
    quantized.doc_string, quantized.domain = source.doc_string, source.domain
    quantized.graph.name, quantized.graph.doc_string = source.graph.name, source.graph.doc_string
    _restore_border(quantized, source)
    _restore_nodes(quantized, prepared)
    weights = sorted(quantized.graph.initializers.values(), key=lambda value: value.name or "")
    quantized.graph.initializers.clear()
    for value in weights:
        quantized.graph.initializers.add(value)


def unround(
    quantized: ir.Model, prepared: ir.Model, chosen: Collection[str], rounding: Collection[str]
) -> None:
    """Restore the float32 values for nodes kept in float32, where a QDQ graph rounds them for other
    consumers.

    The quantizer puts one QuantizeLinear and DequantizeLinear behind a tensor for all its
    consumers, so a residual stream is rounded wherever a product reads it. `chosen` are the names
    of the quantized nodes. `rounding` are operators that work on integers only once they are fused:
    they need the rounded values, and behind them no float32 value exists.
    """
    values = {value.name: value for node in quantized.graph for value in node.outputs}
    values |= {value.name: value for value in quantized.graph.inputs}
    before = {node.name: node for node in prepared.graph}
    for node in quantized.graph:
        twin = before.get(node.name)
        if twin is None or node.name in chosen or node.op_type in rounding:
            continue
        for index, (value, original) in enumerate(zip(node.inputs, twin.inputs, strict=True)):
            if value is None or original is None or value.name == original.name:
                continue
            float32 = values.get(original.name)
            producer = float32.producer() if float32 is not None else None
            if float32 is not None and (producer is None or producer.op_type not in rounding):
                node.replace_input_with(index, float32)


def save(model: ir.Model, destination: Path) -> None:
    """Write a model, with its weights in `<name>.data` next to it."""
    save_model(model, destination)


def _restore_border(quantized: ir.Model, source: ir.Model) -> None:
    for ours, theirs in (
        (quantized.graph.inputs, source.graph.inputs),
        (quantized.graph.outputs, source.graph.outputs),
    ):
        by_name = {value.name: value for value in ours}
        names = [value.name for value in theirs]
        assert sorted(map(str, by_name)) == sorted(map(str, names)), (
            "the quantizer changed inputs or outputs"
        )
        ours.clear()
        ours.extend(by_name[name] for name in names)
        for value, original in zip(ours, theirs, strict=True):
            assert value.dtype == original.dtype, f"the quantizer changed the type of {value.name}"
            value.shape, value.type = original.shape, original.type


def _restore_nodes(quantized: ir.Model, prepared: ir.Model) -> None:
    """Give each node the metadata of the node it came from.

    A node added by the quantizer inherits from the node whose output it produces, else from the
    first node it feeds (a weight's DequantizeLinear), else from the node that feeds it.
    """
    by_node = {node.name: node for node in prepared.graph.all_nodes()}
    by_output = {value.name: node for node in prepared.graph.all_nodes() for value in node.outputs}
    nodes = list(quantized.graph.all_nodes())
    origin: dict[ir.Node, Mapping[str, str]] = {}
    for node in quantized.graph.all_nodes():
        known = by_node.get(node.name) or next(
            (by_output[v.name] for v in node.outputs if v.name in by_output), None
        )
        if known is not None:
            origin[node] = known.metadata_props
    for node in reversed(nodes):
        consumers = [
            use.node for value in node.outputs for use in value.uses() if use.node in origin
        ]
        if node not in origin and consumers:
            # The order of uses varies from run to run.
            origin[node] = (
                origin[min(consumers, key=nodes.index)]
                if len(consumers) > 1
                else origin[consumers[0]]
            )
    for node in nodes:
        producers = [value.producer() for value in node.inputs if value is not None]
        for producer in producers:
            if node not in origin and producer in origin:
                origin[node] = origin[producer]
    for node in quantized.graph.all_nodes():
        node.metadata_props.clear()
        node.metadata_props.update(origin.get(node, {}))
