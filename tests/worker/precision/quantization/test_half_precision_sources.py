"""Graphs that compute in bfloat16 or float16: they are widened before they are quantized."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import feeds, layers, write

from convkit.protocol.messages import LowPrecision, Quantization
from convkit.worker.building.lowered_files import lower_file
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert_file
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan
from convkit.worker.precision.quantization import switched_quantization
from convkit.worker.precision.quantization.module_sensitivity import sensitivity
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.switched_quantization import TooLargeError
from convkit.worker.precision.simulation.float32_graph import load_float32
from convkit.worker.precision.simulation.simulated_graph import simulate_file
from convkit.worker.precision.tensor_statistics import open_session

KINDS = ["dynamic-int8", "static-int8", "int4-weights"]
TYPES = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}


@pytest.fixture(params=["bfloat16", "float16"])
def low(request, tmp_path: Path) -> tuple[Path, str]:
    """Return a file whose every value, inputs and outputs too, is of a half-precision type."""
    dtype = request.param
    half = tmp_path / "converted.onnx"
    model = prepare(load_model(write(layers(), tmp_path, "float32.onnx")))
    convert_file(model, half, PrecisionPlan(dtype))
    made = load_model(half)
    (tmp_path / "low").mkdir()
    path = tmp_path / "low" / "model.onnx"
    ir.save(without_border_casts(made), path, external_data="model.onnx.data")
    return path, dtype


def without_border_casts(model: ir.Model) -> ir.Model:
    graph = model.graph
    for node in [node for node in graph if node.op_type == "Cast"]:
        source, result = node.inputs[0], node.outputs[0]
        low, high = (result, source) if source.is_graph_input() else (source, result)
        if source.is_graph_input():
            source.dtype = result.dtype
            ir.convenience.replace_all_uses_with(result, source)
        else:
            graph.outputs[list(graph.outputs).index(high)] = low
            low.name = high.name
            high.name = f"{high.name}.was"
        graph.remove(node, safe=True)
    return model


def run(path: Path, dtype: str, case: dict[str, np.ndarray]) -> np.ndarray:
    given = {name: values.astype(NUMPY[dtype]) for name, values in case.items()}
    (found,) = run_outputs(open_session(path, None, 1), ["y"], given)
    return found.view(NUMPY[dtype]).astype(np.float32)


NUMPY = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_quantized_as_its_float32_twin(low, tmp_path: Path, kind: str) -> None:
    source, dtype = low
    given = [{"x": case["x"].astype(NUMPY[dtype])} for case in feeds()]
    made = tmp_path / "low" / "quantized.onnx"
    findings = quantize_file(source, made, Quantization(kind), given)
    (widened,) = [each for each in findings if each.code == "Q110"]
    assert widened.evidence == {"types": [dtype]}
    assert f"computes in {dtype};" in widened.message

    built = onnx.load(made)
    assert built.graph.input[0].type.tensor_type.elem_type == TYPES[dtype]
    assert built.graph.output[0].type.tensor_type.elem_type == TYPES[dtype]
    model, _ = load_float32(source)
    float32 = tmp_path / "float32-twin.onnx"
    ir.save(model, float32)
    case = feeds(count=1, seed=9)[0]
    wanted = run(float32, dtype, case)
    assert 0.001 < relative(run(made, dtype, case), wanted) < 0.2
    # The weights are those of the twin, to the last bit.
    twin = tmp_path / "twin.onnx"
    quantize_file(float32, twin, Quantization(kind), given)
    stored = [
        {each.name: onnx.numpy_helper.to_array(each).tobytes() for each in file.graph.initializer}
        for file in (built, onnx.load(twin))
    ]
    assert stored[0] == stored[1]


def test_a_graph_in_float32_is_not_widened(tmp_path: Path) -> None:
    model, widened = load_float32(write(layers(), tmp_path))
    assert not widened
    assert all(value.dtype == ir.DataType.FLOAT for node in model.graph for value in node.outputs)


def test_nothing_to_quantize_leaves_a_graph_that_runs(low, tmp_path: Path) -> None:
    source, dtype = low
    made = tmp_path / "low" / "kept.onnx"
    kept = Quantization("int4-weights").keeping(("block.*",))
    findings = quantize_file(source, made, kept)
    assert [each.code for each in findings if each.code != "Q105"] == ["Q110", "Q101"]
    assert np.isfinite(run(made, dtype, feeds(count=1)[0])).all()


@pytest.mark.parametrize("wanted", ["float16", "bfloat16"])
def test_it_is_lowered_to_the_wanted_type(low, tmp_path: Path, wanted) -> None:
    source, dtype = low
    made = tmp_path / "low" / "lowered.onnx"
    findings = lower_file(source, made, LowPrecision(wanted, ()))
    assert findings == []
    types = {
        value.dtype
        for node in load_model(made).graph
        if node.op_type != "Cast"
        for value in node.outputs
    }
    assert types == {ir.DataType[wanted.upper()]}
    simulated = tmp_path / "low" / "simulated.onnx"
    simulate_file(made, simulated)
    model, _ = load_float32(source)
    ir.save(model, tmp_path / "float32-twin.onnx")
    case = feeds(count=1, seed=9)[0]
    error = relative(run(simulated, dtype, case), run(tmp_path / "float32-twin.onnx", dtype, case))
    assert error < 0.02


def test_modules_are_compared_in_float32(low, tmp_path: Path) -> None:
    source, dtype = low
    made = tmp_path / "low" / "quantized.onnx"
    quantize_file(source, made, Quantization("int4-weights"))
    given = [{"x": case["x"].astype(NUMPY[dtype])} for case in feeds(count=1)]
    found = sensitivity(source, made, given)
    assert {row.module for row in found.modules} == {"block.0.dense", "block.1.dense"}
    assert all(0.001 < row.output_error < 0.3 for row in found.modules)


def test_modules_of_models_beyond_the_memory_are_not_compared(tmp_path: Path, monkeypatch) -> None:
    source = write(layers(), tmp_path)
    made = tmp_path / "quantized.onnx"
    quantize_file(source, made, Quantization("int4-weights"))
    assert sensitivity(source, made, feeds(count=1)).modules
    monkeypatch.setattr(switched_quantization, "available_memory", lambda: 1000)
    with pytest.raises(TooLargeError, match=r"needs [\d,]+ bytes; 1,000 are free for memory"):
        sensitivity(source, made, feeds(count=1))
