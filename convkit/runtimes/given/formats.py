"""The formats of given models: what they consist of, what opens them. Imports nothing heavy: the
command line reads it, too.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from convkit.runtimes.given.file_damage import ir_damage, package_damage, tflite_damage
from convkit.worker.runtime_interface.sessions import RuntimeSession

if TYPE_CHECKING:
    import numpy as np

    from convkit.worker.cause.other_formats.translated_model import TranslatedGraph

# Opens a model; among a tensor's several names, it uses the wanted ones.
Open = Callable[[Path, Collection[str]], RuntimeSession]
# Reads a model as a graph in one case, on inputs in the file's own names and types, with outputs of
# the wanted names; None if it cannot be translated.
Read = Callable[[Path, "Mapping[str, np.ndarray]", Collection[str]], "TranslatedGraph | None"]


@dataclasses.dataclass(frozen=True)
class Format:
    """A format. `packages` open it, the runtime's first. `companion` is the suffix of a file with
    the weights that lies beside it. `evidence` says whether its own runtime runs it here.
    `ordered`: callers can bind tensors by position, so that the order counts. `read`, if any, opens
    its inside to the search for causes. `damage` says what is visibly
    wrong with a file, if anything.
    """

    name: str
    packages: tuple[str, ...]
    open: Open
    read: Read | None = None
    evidence: Literal["device", "simulated"] = "device"
    companion: str | None = None
    ordered: bool = True
    damage: Callable[[Path], str | None] | None = None


def _litert(path: Path, wanted: Collection[str]) -> RuntimeSession:
    from convkit.runtimes.given.litert import LiteRTSession

    return LiteRTSession(path, wanted)


def _openvino(path: Path, wanted: Collection[str]) -> RuntimeSession:
    from convkit.runtimes.openvino import session
    from convkit.runtimes.openvino.options import OpenVINOOptions

    return session.open(path, "cpu", OpenVINOOptions(), wanted)


def _coreml(path: Path, wanted: Collection[str]) -> RuntimeSession:
    del wanted
    from convkit.runtimes.coreml.session import EvaluatedProgram
    from convkit.worker.mil.program_errors import UnsupportedOperation
    from convkit.worker.runtime_interface.sessions import ModelRefusedError

    try:
        return EvaluatedProgram(path)
    except UnsupportedOperation as error:
        operations = ", ".join(error.operations)
        raise ModelRefusedError(f"the evaluator does not support {operations}") from error


def _onnx(path: Path, wanted: Collection[str]) -> RuntimeSession:
    del wanted
    from convkit.runtimes.onnxruntime import session
    from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions

    return session.open(path, "cpu", OnnxRuntimeOptions())


def _read_onnx(
    path: Path, feeds: "Mapping[str, np.ndarray]", wanted: Collection[str]
) -> "TranslatedGraph":
    del feeds, wanted
    from convkit.worker.cause.graphs.runnable_graph import read_graph
    from convkit.worker.cause.other_formats.translated_model import TranslatedGraph

    return TranslatedGraph(read_graph(path), {}, ())


def _read_tflite(
    path: Path, feeds: "Mapping[str, np.ndarray]", wanted: Collection[str]
) -> "TranslatedGraph | None":
    from convkit.runtimes.given.tflite_reading import read_tflite

    return read_tflite(path, feeds, wanted)


def _read_program(
    path: Path, feeds: "Mapping[str, np.ndarray]", wanted: Collection[str]
) -> "TranslatedGraph | None":
    del wanted
    from convkit.runtimes.coreml.as_graph.translation import as_graph
    from convkit.runtimes.coreml.packages.tensor_names import load_named
    from convkit.worker.mil.program_errors import EvaluationError

    try:
        return as_graph(load_named(path), feeds)
    except EvaluationError:  # it does not run in this case: there is nothing to compare
        return None


def _read_ir(
    path: Path, feeds: "Mapping[str, np.ndarray]", wanted: Collection[str]
) -> "TranslatedGraph | None":
    from convkit.runtimes.openvino.as_graph.translation import as_graph
    from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

    try:
        return as_graph(path, feeds, wanted)
    except (ModelRefusedError, RunFailedError):  # not in this case, or not with every value exposed
        return None


# By the suffix of the file or folder.
FORMATS: dict[str, Format] = {
    ".tflite": Format(
        "a TFLite model", ("ai-edge-litert", "numpy"), _litert, _read_tflite, damage=tflite_damage
    ),
    ".xml": Format(
        "an OpenVINO IR",
        ("openvino", "numpy"),
        _openvino,
        _read_ir,
        companion=".bin",
        damage=ir_damage,
    ),
    ".mlpackage": Format(
        "an ML program",
        ("coremltools", "torch", "numpy"),
        _coreml,
        _read_program,
        evidence="simulated",
        ordered=False,
        damage=package_damage,
    ),
    ".onnx": Format("an ONNX file", ("onnxruntime", "numpy"), _onnx, _read_onnx),
}


def files_of(file: str) -> tuple[str, ...]:
    """Return the files that a given model consists of, as written in a recipe."""
    path = PurePosixPath(file)
    given = FORMATS.get(path.suffix)
    if given is None or given.companion is None:
        return (file,)
    return file, str(path.with_suffix(given.companion))
