"""What the tests of precision share: small graphs in ONNX's text syntax, strict checks, runs on
onnxruntime.
"""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def check_strictly(model: ir.Model) -> None:
    """Types must be consistent, and no Cast between float types may stand behind another."""
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    casts = [node for node in model.graph.all_nodes() if node.op_type == "Cast"]
    inserted = [node for node in casts if (node.name or "").startswith("cast.")]
    for cast in inserted:
        producer = cast.inputs[0].producer()
        behind_cast = (
            producer is not None and producer.op_type == "Cast" and cast.inputs[0].dtype in FLOATS
        )
        assert not behind_cast, f"{cast.name} stands behind {producer.name}"
    pairs = Counter((id(cast.inputs[0]), cast.outputs[0].dtype) for cast in inserted)
    assert all(count == 1 for count in pairs.values()), "a value is cast twice to one type"


@pytest.fixture
def lower():
    """Convert a text model, check the result strictly, return it."""

    def _lower(
        text: str | ir.Model, default: str = "float16", keep: tuple[str, ...] = (), **options
    ) -> ir.Model:
        model = prepare(ir.from_onnx_text(text) if isinstance(text, str) else text)
        lowered = convert(model, assign(model, PrecisionPlan(default, keep)), **options).model
        check_strictly(lowered)
        return lowered

    return _lower


@pytest.fixture
def run():
    """Run a model on onnxruntime's CPU; returns its outputs in order."""

    def _run(model: ir.Model, **feeds: np.ndarray) -> list[np.ndarray]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        serialized = ir.to_proto(model).SerializeToString()
        session = onnxruntime.InferenceSession(
            serialized, options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds)

    return _run
