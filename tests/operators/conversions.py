"""Conversions of a sample, and what their runtimes compute."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from coreml_modules import converted, evaluated, saved
from exporting_modules import export_graph

from convkit.runtimes.openvino.ir import read_graph
from convkit.worker.runtime_interface.distinct_operators import read_operators
from operators.samples import Sample, Tensors

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Tensors], Arrays]


class Unconverted(Exception):
    """A conversion or a runtime refused; the text is its own."""


def convert(sample: Sample, runtimes: Sequence[str], folder: Path) -> Iterator[tuple[str, Run]]:
    """Return each runtime with its converted sample; what refuses raises when it is run."""
    graph = folder / "model.onnx"
    if {"onnxruntime", "openvino"} & set(runtimes):
        try:
            export_graph(sample.module, tuple(sample.runs[0][0].values()), folder)
        except Exception as error:  # noqa: BLE001 - a refusal is a result
            yield "exported", _refusing(error)
            runtimes = [each for each in runtimes if each == "coreml"]
    for runtime in runtimes:
        try:
            run = _OPENERS[runtime](sample, graph)
        except Exception as error:  # noqa: BLE001
            run = _refusing(error)
        yield runtime, run


def _refusing(error: Exception) -> Run:
    def run(inputs: Tensors) -> Arrays:
        raise Unconverted(str(error).strip() or type(error).__name__) from error

    return run


def _onnxruntime(sample: Sample, graph: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(graph, options)
    names, known = list(sample.runs[0][1]), {each.name for each in session.get_inputs()}

    def run(inputs: Tensors) -> Arrays:
        given = {name: each.numpy() for name, each in inputs.items() if name in known}
        return dict(zip(names, session.run(names, given), strict=True))

    return run


def _openvino(sample: Sample, graph: Path) -> Run:
    model = read_graph(graph, read_operators(graph))
    hints = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    for result, expected in zip(model.outputs, sample.runs[0][1].values(), strict=True):
        # What `convkit.runtimes.openvino.build` answers by building from the module.
        if result.partial_shape.rank.is_static and len(result.partial_shape) != expected.dim():
            raise Unconverted("OpenVINO reads the graph with another rank")
    compiled = openvino.Core().compile_model(model, "CPU", hints)
    known = set().union(*(each.names for each in compiled.inputs))

    def run(inputs: Tensors) -> Arrays:
        found = compiled({name: each.numpy() for name, each in inputs.items() if name in known})
        return {name: found[name] for name in sample.runs[0][1]}

    return run


def _coreml(sample: Sample, graph: Path) -> Run:
    program = saved(converted(sample.module, sample.runs[0][0]), graph.parent)
    return lambda inputs: evaluated(program, inputs)


_OPENERS: Mapping[str, Callable[[Sample, Path], Run]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "coreml": _coreml,
}
RUNTIMES = tuple(_OPENERS)


def differs(run: Run, inputs: Tensors, expected: Tensors) -> str:
    """Say where a runtime's outputs differ from torch's by more than 1e-4 of a value and 1e-5
    of the largest (or of 10); empty if nowhere. Raises Unconverted.
    """
    try:
        found = run(inputs)
    except Unconverted:
        raise
    except Exception as error:
        raise Unconverted(str(error).strip()) from error
    for name, tensor in expected.items():
        with contextlib.suppress(StopIteration):
            return next(_differences(name, found[name], tensor.numpy()))
    return ""


def _differences(name: str, found: np.ndarray, expected: np.ndarray) -> Iterator[str]:
    if expected.ndim == 0 and found.size == 1:  # Core ML has no scalars
        found = found.reshape(())
    if found.shape != expected.shape:
        yield f"{name} is {list(found.shape)} in place of {list(expected.shape)}"
        return
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(10.0, float(finite.max(initial=0.0)))
    close = np.isclose(found, expected, rtol=1e-4, atol=1e-5 * scale, equal_nan=True)
    if not close.all():
        place = tuple(map(int, np.argwhere(~close)[0]))
        share = f"{(~close).sum()} of {close.size}"
        yield f"{name}: {share}, at {list(place)} {found[place]:.6g} for {expected[place]:.6g}"
