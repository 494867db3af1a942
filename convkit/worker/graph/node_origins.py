"""Records where a node came from: keeps its module path and source line, removes everything else
that exporters write.
"""

import ast
from collections.abc import Iterator

import onnx_ir

from convkit.worker.original.source_lines import source_line

MODULE_KEY = "convkit.module"
SOURCE_KEY = "convkit.source"

_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_TRACE_KEY = "pkg.torch.onnx.stack_trace"


def tidy_metadata(
    model: onnx_ir.Model, *, wrapper: str, root: str | None, keep_model_metadata: bool = False
) -> None:
    """Reduce each node's metadata to its module path (`encoder.layer.0.attention.self`) and source
    line.

    `wrapper` is the attribute of the exported module that contained the model ("" for none), `root`
    the folder of the model's own source files. Absolute paths, stack traces, exporter versions and
    the like are removed, so that the same model produces the same bytes anywhere.
    `keep_model_metadata` keeps the model's own entries and producer, which are the author's.
    """
    for node in _nodes(model):
        module = _module_path(node, wrapper)
        source = source_line(node.metadata_props.get(_TRACE_KEY, ""), root)
        # An earlier export by convkit already recorded it in the model's own terms.
        module = node.metadata_props.get(MODULE_KEY, "") or module
        source = node.metadata_props.get(SOURCE_KEY, "") or source
        node.metadata_props.clear()
        node.doc_string = None
        if module:
            node.metadata_props[MODULE_KEY] = module
        if source:
            node.metadata_props[SOURCE_KEY] = source
        for value in node.outputs:
            _clear(value)
    for graph in (model.graph, *model.graph.subgraphs()):
        graph.metadata_props.clear()
        graph.doc_string = None
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values()):
            _clear(value)
    if keep_model_metadata:
        return
    model.metadata_props.clear()
    model.doc_string = None
    model.producer_name = "convkit"
    model.producer_version = None


def _clear(value: onnx_ir.Value) -> None:
    value.metadata_props.clear()
    value.doc_string = None


def _nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def _module_path(node: onnx_ir.Node, wrapper: str) -> str:
    """Read the dynamo exporter's scopes, or else TorchScript's node name; "" if there is
    neither.
    """
    if scopes := node.metadata_props.get(_SCOPES_KEY):
        try:
            names = ast.literal_eval(scopes)
        except (ValueError, SyntaxError):
            return ""
        # The last one names the node itself; tracing helpers that are not modules start with an
        # underscore.
        path = str(names[-2]) if isinstance(names, list) and len(names) > 1 else ""
        return "" if path.startswith("_empty_nn_module") else _without_wrapper(path, wrapper)
    name = node.name or ""
    if name.startswith("/"):
        return _without_wrapper(".".join(name.split("/")[1:-1]), wrapper)
    return ""


def _without_wrapper(path: str, wrapper: str) -> str:
    if not wrapper:
        return path
    return "" if path == wrapper else path.removeprefix(f"{wrapper}.")
