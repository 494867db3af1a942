from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from small_models import feeds, gptq, layers, parsed, write

from convkit.protocol.messages import Quantization
from convkit.worker.precision.quantization.packed_weights import packed_findings, packed_weights
from convkit.worker.precision.quantization.quantize import quantize_file


def test_a_gptq_layer_is_named_with_its_module() -> None:
    (weight,) = packed_weights(ir.from_proto(gptq()))
    assert (weight.constant, weight.dtype, weight.shape) == ("qweight", "int32", (4, 64))
    assert (weight.operator, weight.module) == ("MatMul", "layers.0.proj")


def test_int8_packed_into_int32_by_arithmetic() -> None:
    """Without shifts: the older exporter divides by powers of two."""
    model = parsed(
        """g (float[n,16] x) => (float[n,32] y) {
            q = Div(packed, power)
            low = Mod(q, base)
            f = Cast<to=1>(low)
            w = Mul(f, scale)
            t = Transpose(w)
            y = MatMul(x, t)
        }""",
        {
            "packed": np.arange(32 * 16, dtype=np.int32).reshape(32, 16),
            "power": np.array(256, np.int32),
            "base": np.array(256, np.int32),
            "scale": np.ones((32, 1), np.float32),
        },
        {"y": "proj"},
    )
    (finding,) = packed_findings(ir.from_proto(model))
    assert (finding.code, finding.severity, finding.place.module) == ("Q103", "error", "proj")
    assert finding.remedy is not None
    assert finding.remedy.change == {"target.precision": "float32"}


@pytest.mark.parametrize("kind", ["dynamic-int8", "static-int8", "int4-weights"])
def test_a_quantized_model_is_not_quantized_again(tmp_path: Path, kind) -> None:
    once = tmp_path / "once.onnx"
    assert not [
        f
        for f in quantize_file(write(layers(), tmp_path), once, Quantization(kind), feeds())
        if f.is_error
    ]
    (finding,) = quantize_file(once, tmp_path / "twice.onnx", Quantization(kind), feeds())
    assert finding.code == "Q103"
    assert "2 weights" in finding.message


def test_float_weights_indices_and_shapes_are_not_packed() -> None:
    """A table of indices selects rows; a float layer has integer shapes; a mask of integers depends
    on an input.
    """
    model = parsed(
        """g (float[n,32] x, int64[32,32] m) => (float[n,32] y) {
            looked = Gather(W, order)
            flat = Reshape(looked, shape)
            given = Cast<to=1>(m)
            masked = Mul(flat, given)
            y = MatMul(x, masked)
        }""",
        {
            "W": np.ones((32, 32), np.float32),
            "order": np.arange(32, dtype=np.int64),
            "shape": np.array([32, 32], np.int64),
        },
    )
    assert packed_weights(ir.from_proto(model)) == ()
    assert packed_findings(ir.from_proto(layers())) == []


def test_a_table_of_places_is_no_weight() -> None:
    """The bias of each pair of positions, picked from a table by their distance."""
    model = parsed(
        """g (float[n,16] x) => (float[n,16] y) {
            bias = Gather<axis=0>(table, distances)
            y = Einsum<equation="nk,qk->nq">(x, bias)
        }""",
        {
            "table": np.ones(31, np.float32),
            "distances": np.arange(16)[:, None] - np.arange(16)[None] + 15,
        },
    )
    assert packed_findings(ir.from_proto(model)) == []


def test_coordinates_are_no_weight() -> None:
    """The rows and columns of a picture, by which its center of mass is computed."""
    rows, columns = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
    model = parsed(
        """g (float[n,256] x) => (float[n,2] y) {
            both = Concat<axis=0>(rows, columns)
            fractions = Cast<to=1>(both)
            flat = Reshape(fractions, shape)
            y = Einsum<equation="nk,ck->nc">(x, flat)
        }""",
        {"rows": rows[None], "columns": columns[None], "shape": np.array([2, 256])},
    )
    assert packed_findings(ir.from_proto(model)) == []
