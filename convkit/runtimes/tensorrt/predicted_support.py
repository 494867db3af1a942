"""What TensorRT's parser will say of a graph, where TensorRT is absent: TensorRT-RTX's is asked.

Both are built from the same sources, with two differences that are known: TensorRT-RTX has none of
TensorRT's plugins, and its releases have numbers of their own.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.runtimes.tensorrt.asked_parser import Refused, parse
from convkit.runtimes.tensorrt.library import MessageLog
from convkit.runtimes.tensorrt.parser_findings import refusal_findings, retyped_findings
from convkit.runtimes.tensorrt.parser_support import DOCUMENTED_RELEASE, PLUGIN, SUPPORTED
from convkit.worker.runtime_interface.registered_operators import in_use, is_custom


def predicted_by(library: ModuleType, graph: Path) -> Iterator[Finding]:
    """Yield E241 with the parser's answer and both releases, T105 for each refusal, T106 and T107
    for types that it changes.

    A refusal for want of a plugin is a warning if the documentation of TensorRT, which has plugins
    of its own, lists the operator.
    """
    parsed = parse(library, graph, MessageLog())
    who = f"TensorRT-RTX {library.__version__}'s parser, asked in TensorRT's place,"
    asked: dict[str, Json] = {
        "asked": f"TensorRT-RTX {library.__version__}",
        "onnx_parser": int(library.get_nv_onnx_parser_version()),
        "documented": f"TensorRT {DOCUMENTED_RELEASE}",
    }
    refused = [each for each in parsed.refused if not _comes_with_a_library(each)]
    answer = (
        f"accepts the graph (layers: {parsed.network.num_layers})"
        if not refused
        else f"refuses {len(refused)} of its nodes or inputs"
    )
    yield Finding("E241", f"TensorRT is absent: {who} {answer}", evidence=asked)
    for part in (True, False):
        group = [each for each in refused if _only_lacks_a_plugin(each) is part]
        for finding in refusal_findings(group, who, "T105", _remedy, asked):
            yield dataclasses.replace(finding, severity="warning") if part else finding
    yield from retyped_findings(parsed.retyped, who, asked)


def _comes_with_a_library(refused: Refused) -> bool:
    """Return True for an operator that a declared library of plugins may have: only TensorRT itself
    can load it.
    """
    domain, dot, _ = refused.origin.operator.rpartition(".")
    declared = any(each.runtime == "tensorrt" for each in in_use().libraries)
    return declared and bool(dot) and is_custom(domain)


def _only_lacks_a_plugin(refused: Refused) -> bool:
    return refused.lacks_plugin and refused.origin.operator in SUPPORTED


def _remedy(refused: Refused) -> str:
    domain, dot, _ = refused.origin.operator.rpartition(".")
    if dot and is_custom(domain):
        return f"For your own operator, {PLUGIN}"
    if _only_lacks_a_plugin(refused):
        return (
            f"TensorRT's documentation ({DOCUMENTED_RELEASE}) lists {refused.origin.operator}, and"
            " TensorRT brings plugins that TensorRT-RTX lacks: build on a machine with TensorRT to"
            " know."
        )
    return (
        "Export with a different opset or exporter, which may use other operators; change the"
        " model; or deploy it with onnxruntime. None of these was tried on this model."
    )
