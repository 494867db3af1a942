"""Runs an ONNX graph in an onnxruntime session, by name. Needs only onnxruntime, release 1.17 or
later, and numpy: no other library reads the model.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from convkit.protocol.contract import Contract, Dimension, DType, TensorSpec
from convkit.protocol.messages import Fallback
from convkit.worker.graph.session_values import needs_bits, run_session
from convkit.worker.original.contract_check import UNKNOWN_DIMENSION, UNKNOWN_RANK
from convkit.worker.process.denormal_mode import keep_denormals
from convkit.worker.runtime_interface.registered_operators import register_libraries
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

if TYPE_CHECKING:
    import onnxruntime

# onnxruntime's name of each element type, in `tensor(...)`.
ELEMENT_TYPES: dict[str, DType] = {
    "bool": "bool",
    "int4": "int4",
    "uint4": "uint4",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "uint16",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "float8e4m3fn": "float8e4m3fn",
    "float8e5m2": "float8e5m2",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
    "string": "string",
}
# What onnxruntime calls a list of maps, one per row, from class to probability.
_MAPS = re.compile(r"seq\(map\((int64|string),tensor\(float\)\)\)")


def open_graph(path: Path, *, optimized: bool = False) -> "GraphSession":
    """Open a graph on the CPU, as it is unless `optimized`; raises ModelRefusedError."""
    return GraphSession(open_model(str(path), optimized=optimized))


def open_model(
    model: str | bytes,
    *,
    optimized: bool = False,
    weights: Mapping[str, "onnxruntime.OrtValue"] | None = None,
) -> "onnxruntime.InferenceSession":
    """Return onnxruntime's session of a file's path, or of a model's bytes, on the CPU; raises
    ModelRefusedError. `weights` take the place of initializers, and must outlive the session.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    limit_threads(settings)
    # The first session of a process also sets the mode of the thread that opens it.
    settings.add_session_config_entry("session.set_denormal_as_zero", "0")
    keep_denormals()
    register_libraries(settings)
    for name, weight in (weights or {}).items():
        settings.add_initializer(name, weight)
    try:
        return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise ModelRefusedError(f"onnxruntime {onnxruntime.__version__}: {error}") from error


def limit_threads(settings: "onnxruntime.SessionOptions") -> None:
    """Limit a session to the worker's share of the processor.

    onnxruntime's own thread pool ignores OpenMP's variable, which specifies that share.
    """
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        settings.intra_op_num_threads = int(threads)
        settings.inter_op_num_threads = 1


class GraphSession:
    """A model that onnxruntime has loaded."""

    def __init__(self, session: "onnxruntime.InferenceSession") -> None:
        self._session = session
        self._as_bits = needs_bits(session)
        self.providers: tuple[str, ...] = tuple(session.get_providers())

    @property
    def raw(self) -> "onnxruntime.InferenceSession":
        """The session of onnxruntime."""
        return self._session

    def contract(self) -> Contract:
        """Return the contract as reported by the session; raises ModelRefusedError for values that
        are not tensors.
        """
        inputs = tuple(_spec(argument) for argument in self._session.get_inputs())
        return Contract(
            inputs, tuple(_spec(argument) for argument in self._session.get_outputs()), ()
        )

    def metadata(self) -> Mapping[str, str]:
        """Return the model's metadata."""
        return dict(self._session.get_modelmeta().custom_metadata_map)

    def run(
        self, feeds: Mapping[str, np.ndarray], wanted: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return every output by name, or the wanted ones; raises RunFailedError with
        onnxruntime's message.
        """
        import onnxruntime

        names = wanted or [argument.name for argument in self._session.get_outputs()]
        quiet = onnxruntime.RunOptions()
        quiet.log_severity_level = 4  # errors during a run are raised; the log would repeat them
        keep_denormals()
        try:
            values = run_session(self._session, names, feeds, quiet, as_bits=self._as_bits)
        except MemoryError:
            raise
        except Exception as error:
            raise RunFailedError(_explain_run_error(error, self._session)) from error
        finally:
            self._ran()
        return {name: as_array(value) for name, value in zip(names, values, strict=True)}

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the nodes that ran on a different provider than requested, in the first run."""
        return ()

    def _ran(self) -> None:
        """Do the work due after a run."""


def as_array(value: object) -> np.ndarray:
    """Return an output as an array: texts as numpy's own, a list of maps as a table with a row per
    map and a column per class, in ascending order.

    Raises RunFailedError for any other value that is not a tensor.
    """
    if isinstance(value, np.ndarray):
        return value.astype(str) if value.dtype.kind == "O" else value
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        rows = [[row[key] for key in sorted(row)] for row in value]
        return np.array(rows, dtype=np.float32)
    raise RunFailedError(f"an output is a {type(value).__name__}, not a tensor")


def element_type(argument: "onnxruntime.NodeArg") -> DType | None:
    """Return the element type of an input or output; None if it is not a tensor."""
    kind, _, rest = argument.type.partition("(")
    return ELEMENT_TYPES.get(rest.removesuffix(")")) if kind == "tensor" else None


def _spec(argument: "onnxruntime.NodeArg") -> TensorSpec:
    if _MAPS.fullmatch(argument.type):
        return TensorSpec(argument.name, "float32", (UNKNOWN_DIMENSION, UNKNOWN_DIMENSION))
    dtype = element_type(argument)
    if dtype is None:
        raise ModelRefusedError(
            f"{argument.name!r} is a {argument.type}; a contract holds tensors only"
        )
    return TensorSpec(argument.name, dtype, _shape(argument.shape))


def _shape(shape: list[Any]) -> tuple[Dimension, ...]:
    """Return a shape; onnxruntime states an empty one for a scalar and for an unknown shape."""
    if not shape:
        return UNKNOWN_RANK
    return tuple(
        size if isinstance(size, int | str) and size != "" else UNKNOWN_DIMENSION for size in shape
    )


def _explain_run_error(error: Exception, session: "onnxruntime.InferenceSession") -> str:
    message = str(error)
    if "Numpy type" in message:  # numpy has no bfloat16, int4 or float8
        arguments = (*session.get_inputs(), *session.get_outputs())
        foreign = [f"{a.name!r} ({a.type})" for a in arguments if not _has_numpy_type(a.type)]
        return (
            f"onnxruntime cannot exchange {', '.join(foreign)} with numpy; end the graph with a"
            " Cast to float32"
        )
    return message


def _has_numpy_type(kind: str) -> bool:
    return not any(element in kind for element in ("bfloat16", "int4)", "float8"))
