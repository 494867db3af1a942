"""Turns graphs that compute in float16 or bfloat16 into float32 graphs.

Quantizers, the search for a precision, and lowering to another half-precision type start from
float32. Every float16 or bfloat16 number is a float32 number, so weights keep their values; what
differs is that results are no longer rounded.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.constant_rounding import IR_DTYPES
from convkit.worker.precision.simulation.simulated_graph import widen

_LOW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def load_float32(source: Path, wanted: DType | None = None) -> tuple[ir.Model, bool]:
    """Load a model as `prepare` does, widened to float32 if it computes in float16 or bfloat16; say
    whether it was.

    With `wanted`, a low-precision type, a model in that type alone stays as it is. Inputs and
    outputs keep their types. Weights are widened one by one when they are read. Raises
    UntypedValueError.
    """
    return in_float32(prepare(load_model(source)), wanted)


def in_float32(model: ir.Model, wanted: DType | None = None) -> tuple[ir.Model, bool]:
    """As `load_float32`, for a prepared model."""
    other = _LOW - ({IR_DTYPES[wanted]} if wanted is not None else frozenset())
    is_low = any(value.dtype in other for node in model.graph.all_nodes() for value in node.outputs)
    return (widen(model), True) if is_low else (model, False)


@contextlib.contextmanager
def float32_file(source: Path, wanted: DType | None = None) -> Iterator[Path]:
    """Provide a model's file, or a temporary one of the widened model; see `load_float32`."""
    model, widened = load_float32(source, wanted)
    if not widened:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="convkit-float32-") as folder:
        path = Path(folder) / source.name
        save_model(model, path)
        yield path
