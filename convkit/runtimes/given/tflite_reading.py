"""Reads a TFLite model, and every tensor of one run."""

import types
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convkit.runtimes.given.tflite_as_graph import TRANSLATIONS
from convkit.worker.cause.other_formats.source_model import SourceModel
from convkit.worker.cause.other_formats.source_operation import SourceStep
from convkit.worker.cause.other_formats.translated_model import TranslatedGraph, translate

# TFLite's number for an argument that is not given.
_ABSENT = -1


def read_tflite(
    path: Path, feeds: Mapping[str, np.ndarray], outputs: Collection[str]
) -> TranslatedGraph | None:
    """Translate a model for one case; None for a quantized one, or one with several subgraphs.

    `feeds` and `outputs` are by the names that LiteRT's session uses. Raises as that does.
    """
    from ai_edge_litert import schema_py_generated as schema

    from convkit.runtimes.given.litert import LiteRTSession

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes(), 0))
    if len(model.subgraphs) != 1:
        return None
    graph = model.subgraphs[0]
    # LiteRT's own temporary tensors follow the model's.
    session = LiteRTSession(path, {*feeds, *outputs}, keep=True)
    kept = session.tensors(feeds)
    values = {index: kept[index] for index in range(len(graph.tensors)) if index in kept}
    if any(values[i].dtype.kind in "iu" and values[i].itemsize == 1 for i in values):
        return None
    names = _names(graph) | session.names
    kinds = {
        number: name
        for name, number in vars(schema.BuiltinOperator).items()
        if not name.startswith("_")
    }
    made = {int(each) for op in graph.operators for each in op.outputs}
    inputs = {int(each) for each in graph.inputs}
    steps = [_step(op, model, kinds, names) for op in graph.operators]
    constants = {names[i]: values[i] for i in values if i not in made | inputs}
    found = {names[i]: values[i] for i in values if i in made}
    fed = {name: np.asarray(array) for name, array in feeds.items()}
    source = SourceModel(
        steps,
        tuple(names[int(each)] for each in graph.inputs),
        tuple(names[int(each)] for each in graph.outputs),
        constants,
        found | fed,
    )
    return translate(source, TRANSLATIONS)


def _names(graph: Any) -> dict[int, str]:  # noqa: ANN401 - generated code
    """Return a separate name for every tensor."""
    names: dict[int, str] = {}
    for index, tensor in enumerate(graph.tensors):
        name = tensor.name.decode() if isinstance(tensor.name, bytes) else str(tensor.name)
        names[index] = name if name and name not in names.values() else f"{name}#{index}"
    return names


def _step(op: Any, model: Any, kinds: Mapping[int, str], names: Mapping[int, str]) -> SourceStep:  # noqa: ANN401
    code = model.operatorCodes[op.opcodeIndex]
    kind = kinds.get(max(code.builtinCode, code.deprecatedBuiltinCode), "CUSTOM")
    options = op.builtinOptions
    settings = {} if options is None else {
        name: value
        for name, value in vars(options).items()
        if not isinstance(value, types.FunctionType)
    }  # fmt: skip
    arguments = {
        f"x{place}": names[int(each)]
        for place, each in enumerate(op.inputs)
        if int(each) != _ABSENT
    }
    results = tuple(names[int(each)] for each in op.outputs)
    return SourceStep(kind, results, arguments, settings, of_sizes=kind == "SHAPE")
