"""Quantizes an exported ONNX file and returns the findings."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Quantization
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import all_names
from convkit.worker.graph.lint.onnx_checker import check_types
from convkit.worker.graph.rewriting.opset_conversion import changes_meaning
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.constant_rounding import NAMES
from convkit.worker.precision.pattern_findings import unmatched_findings
from convkit.worker.precision.quantization.calibration_data import (
    UnusableRange,
    doubtful_ranges,
    feeds_from_file,
    range_findings,
)
from convkit.worker.precision.quantization.channel_equalization import (
    equalized_file,
    equalized_finding,
    equalizing_exponents,
)
from convkit.worker.precision.quantization.node_selection import (
    INTEGER_TO_INTEGER,
    Selected,
    Selection,
    quantized_operators,
    select,
)
from convkit.worker.precision.quantization.packed_weights import packed_findings
from convkit.worker.precision.quantization.preparation import (
    gemm_to_matmul,
    is_plain_gemm,
    prepare_model,
    return_weights,
    save_prepared,
    save_without_weights,
    unfold_weight,
    weight,
)
from convkit.worker.precision.quantization.quantizers import (
    INT4_IR_VERSION,
    INT4_OPSET,
    least_opset,
    run_quantizer,
)
from convkit.worker.precision.quantization.restoration import restore, save, unround
from convkit.worker.precision.quantization.scales_and_zero_points import check_dequantization

Feeds = Mapping[str, np.ndarray]

# The domain of onnxruntime's own operators.
_CONTRIB = "com.microsoft"

QUANTIZED_OPERATORS = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeLinear",
        "GatherBlockQuantized",
        "MatMulInteger",
        "MatMulNBits",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)


def quantize_file(
    source: Path,
    destination: Path,
    quantization: Quantization,
    calibration_feeds: Iterable[Feeds] | None = None,
) -> list[Finding]:
    """Write the quantized model, with weights in `<name>.data`; inputs, outputs, metadata and
    module paths are preserved.

    The same source, options and feeds produce the same bytes. `calibration_feeds` are read only for
    static-int8 and equalization, and not if there is a calibration file. If the findings contain an
    error that leaves nothing to quantize, the file is the source graph (Q103), widened to float32
    if need be (Q101). Raises StageFailedError if the quantizer cannot process the graph, or if
    there is no calibration data.
    """
    if quantization.equalize:
        plain = dataclasses.replace(quantization, equalize=False)
        given = list(calibration_feeds or ())  # read twice
        with equalized_source(source, quantization, given) as (even, finding):
            return [*quantize_file(even, destination, plain, given), finding]
    original = load_model(source)
    findings = packed_findings(original)
    if findings:
        save(original, destination)
        return findings
    model, widened = prepare_model(source)
    if widened:
        findings.append(_widened(original))
    selection = select(model, quantization)
    findings += unmatched_findings(selection.unmatched)
    feeds: list[Feeds] = []
    unusable: tuple[UnusableRange, ...] = ()
    if quantization.quantize == "static-int8" and selection.chosen:
        feeds += _feeds(quantization, original, calibration_feeds)
        if not feeds:
            raise StageFailedError("static-int8 needs cases to calibrate with, and there are none")
        unusable = doubtful_ranges(source, selection, feeds)
        findings += range_findings(unusable, quantization)
        lost = {one.node for one in unusable if one.excluded}
        chosen = tuple(one for one in selection.chosen if one.node.name not in lost)
        selection = dataclasses.replace(selection, chosen=chosen)
    if not selection.chosen:
        save(model if widened else original, destination)
        return [*findings, _nothing(selection, quantization)]
    findings += _write(model, original, destination, quantization, selection, feeds)
    return findings


@contextlib.contextmanager
def equalized_source(
    source: Path, quantization: Quantization, calibration_feeds: Iterable[Feeds] | None
) -> Iterator[tuple[Path, Finding]]:
    """Provide a graph whose channels are alike as far as they can be, and Q113, which says so;
    valid inside the block. If no channels can, it is the same file.
    """
    feeds = _feeds(quantization, load_model(source), calibration_feeds)
    exponents = equalizing_exponents(source, quantization, feeds)
    with equalized_file(source, exponents) as even:
        yield even, equalized_finding(exponents)


def _feeds(
    quantization: Quantization, model: ir.Model, given: Iterable[Feeds] | None
) -> list[Feeds]:
    if (file := quantization.calibrated.file) is not None:
        return list(feeds_from_file(Path(file), model.graph.inputs))
    return list(given or ())


def _write(
    model: ir.Model,
    original: ir.Model,
    destination: Path,
    quantization: Quantization,
    selection: Selection,
    feeds: Sequence[Feeds],
) -> list[Finding]:
    raised = raise_opset(model, least_opset(quantization))
    if least_opset(quantization) == INT4_OPSET:
        model.ir_version = max(model.ir_version, INT4_IR_VERSION)
    chosen = _in_form(model, quantization, selection.chosen)
    if quantization.quantize == "dynamic-int8":
        _write_products_out(model)
    exclude = [
        node.name or ""
        for node in model.graph.all_nodes()
        if node.op_type in quantized_operators(quantization.quantize)
        and node not in {*chosen, *selection.between}
    ]
    with tempfile.TemporaryDirectory(prefix="quantizing-", dir=destination.parent) as name:
        folder = Path(name)
        by_weight = quantization.quantize == "int4-weights"
        prepared = (save_without_weights if by_weight else save_prepared)(model, folder)
        quantized_file = folder / "quantized.onnx"
        run_quantizer(prepared, quantized_file, quantization, exclude, feeds)
        quantized = load_model(quantized_file)
        return_weights(quantized, prepared)
        if any(node.domain == _CONTRIB for node in quantized.graph.all_nodes()):
            # The quantizer forgets it if only the bodies of nodes have such operators.
            quantized.opset_imports.setdefault(_CONTRIB, 1)
        if quantization.quantize == "static-int8" and quantization.uses_qdq:
            unround(quantized, model, {node.name or "" for node in chosen}, INTEGER_TO_INTEGER)
        restore(quantized, model, original)
        save(quantized, destination)
    check_types(destination)
    findings = check_dequantization(load_model(destination), model)
    if not any(is_quantized_operator(node) for node in quantized.graph.all_nodes()):
        findings.append(_nothing(selection, quantization))
    if raised is not None:
        findings.append(_opset_raised(raised, least_opset(quantization)))
    return findings


def _in_form(
    model: ir.Model, quantization: Quantization, chosen: Sequence[Selected]
) -> set[ir.Node]:
    """Convert the chosen nodes to the form that the quantizer supports; return the converted
    nodes.
    """
    names = all_names(model)
    formed = set()
    for selected in chosen:
        node = selected.node
        if node.op_type == "Gemm" and quantization.quantize != "static-int8":
            node = gemm_to_matmul(node, names)
        elif node.op_type == "MatMul":
            unfold_weight(node, names)
        formed.add(node)
    return formed


def _write_products_out(model: ir.Model) -> None:
    """Convert every Gemm that is left: onnxruntime does so itself before it quantizes, and keeps
    the shapes of the weights that it transposes.
    """
    names = all_names(model)
    for node in list(model.graph.all_nodes()):
        is_constant = node.op_type == "Gemm" and weight(node.inputs[1]) is not None
        if is_constant and is_plain_gemm(node):
            gemm_to_matmul(node, names)


def is_quantized_operator(node: ir.Node) -> bool:
    """Return True if a node consumes or produces quantized values."""
    return node.op_type in QUANTIZED_OPERATORS or (
        node.domain == _CONTRIB and node.op_type.startswith("QLinear")
    )


def _nothing(selection: Selection, quantization: Quantization) -> Finding:
    """Return Q101, with the reason."""
    kind = quantization.quantize
    change: dict[str, Json] = {}
    if selection.possible:
        why = f"keep_float32 covers all {selection.possible} nodes that could be quantized"
        remedy = "Narrow keep_float32, or set precision: float32."
    else:
        operators = ", ".join(quantized_operators(kind))
        why = f"the graph has no node with weights that {kind} supports ({operators})"
        remedy = "Set precision: float32."
        if kind != "static-int8":
            remedy = "Set quantize: static-int8 for convolutions, or precision: float32."
        if kind == "dynamic-int8":
            change = {"target.precision.quantize": "static-int8"}
    return Finding(
        "Q101",
        f"nothing was quantized: {why}",
        Place(),
        {
            "quantize": kind,
            "possible": selection.possible,
            "keep_float32": list(quantization.patterns),
        },
        Remedy(remedy, change),
    )


def _widened(exported: ir.Model) -> Finding:
    """Return Q110, with the types that the exported graph computes in."""
    found = {value.dtype for node in exported.graph.all_nodes() for value in node.outputs}
    types = sorted(name for dtype, name in NAMES.items() if dtype in found and name != "float32")
    return Finding(
        "Q110",
        f"the exported graph computes in {' and '.join(types) or 'half precision'}; what is not"
        " quantized now computes in float32, with the same weights",
        Place(),
        {"types": list(types)},
    )


def _opset_raised(before: int, after: int) -> Finding:
    return Finding(
        "Q107",
        f"the opset was raised from {before} to {after}, which the quantized types need; every"
        " operator of the graph means the same in both",
        Place(),
        {"before": before, "after": after},
    )


def raise_opset(model: ir.Model, opset: int) -> int | None:
    """Raise the default opset to at least `opset`; return the previous one if it was lower,
    otherwise None.

    Raises StageFailedError if an operator of the graph differs in the later opset.
    """
    before = model.opset_imports.get("", opset)
    if before >= opset:
        return None
    changed = sorted(
        {node.op_type for node in model.graph.all_nodes() if changes_meaning(node, before, opset)}
    )
    if changed:
        raise StageFailedError(
            f"the quantizer needs opset {opset}, and {', '.join(changed)} changed since the graph's"
            f" opset {before}; export with export.opset: {opset}"
        )
    model.opset_imports[""] = opset
    return before
