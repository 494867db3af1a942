"""What modules cost: on a model in which it is known which one costs most."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import feeds, layers, parsed, write

from convkit.protocol.messages import Quantization
from convkit.protocol.module_naming import general_path
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.precision.quantization.module_sensitivity import (
    relative_error,
    sensitivity,
    sensitivity_finding,
)
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.quantized_weights import (
    quantized_weights,
    signal_to_noise,
)
from convkit.worker.precision.quantization.saturating_modules import family_outputs
from convkit.worker.precision.quantization.switched_quantization import SwitchedModel

pytestmark = pytest.mark.processors

KINDS = [
    Quantization("dynamic-int8"),
    Quantization("static-int8"),
    Quantization("static-int8", format="operators"),
    Quantization("int4-weights"),
    Quantization("int4-weights", format="qdq"),
]
IDS = ["dynamic", "static", "static-operators", "int4", "int4-qdq"]


def both(
    folder: Path, quantization: Quantization, model: onnx.ModelProto | None = None
) -> tuple[Path, Path]:
    source, made = (
        write(model if model is not None else layers(), folder, external=True),
        folder / "made.onnx",
    )
    assert not [one for one in quantize_file(source, made, quantization, feeds()) if one.is_error]
    return source, made


def run(model: Path, feed) -> dict[str, np.ndarray]:
    """Return the outputs on a processor with exact products, whatever this one is."""
    ((_, outputs),) = family_outputs(model, {"case": feed}, ("exact",))
    return outputs


@pytest.mark.parametrize("quantization", KINDS, ids=IDS)
def test_all_off_is_float32_and_all_on_is_the_quantized_model(tmp_path: Path, quantization) -> None:
    source, made = both(tmp_path, quantization)
    (case,) = feeds(count=1, seed=8)
    with SwitchedModel(source, made) as model:
        assert model.modules == ("block.0.dense", "block.1.dense")
        np.testing.assert_allclose(
            model.run(case, ())["y"], run(source, case)["y"], rtol=1e-5, atol=1e-5
        )
        on = model.run(case, model.modules)["y"]
        # Fused kernels may round the other way now and then; a step is a 255th of the range.
        assert signal_to_noise(run(made, case)["y"], on) > 35
        one = [
            relative_error(model.run(case, ()), model.run(case, (name,))) for name in model.modules
        ]
    assert all(0 < error < 0.3 for error in one)


def test_one_switched_on_is_the_model_with_the_others_kept(tmp_path: Path) -> None:
    source, made = both(tmp_path, Quantization("dynamic-int8"))
    quantize_file(source, tmp_path / "partly.onnx", Quantization("dynamic-int8", ("block.0",)))
    (case,) = feeds(count=1, seed=8)
    with SwitchedModel(source, made) as model:
        found = model.run(case, ("block.1.dense",))
    np.testing.assert_allclose(
        found["y"], run(tmp_path / "partly.onnx", case)["y"], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("quantization", KINDS, ids=IDS)
def test_weights_are_known_whatever_operator_uses_them(tmp_path: Path, quantization) -> None:
    source, made = both(tmp_path, quantization)
    found = {weight.name.split("_")[0]: weight for weight in quantized_weights(load_model(made))}
    assert set(found) == {"W1", "W2"}
    constants = {
        one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(source).graph.initializer
    }
    for name, weight in found.items():
        expected = 15 if quantization.quantize == "int4-weights" else 35
        assert expected < signal_to_noise(constants[name], weight.values) < 60
    assert found["W2"].module == "block.1.dense"


@pytest.mark.parametrize("quantization", [KINDS[0], KINDS[1]], ids=IDS[:2])
def test_the_module_with_an_outlier_costs_most(tmp_path: Path, quantization) -> None:
    """One row of inputs a thousand times larger than the others leaves those hardly a step."""
    rng = np.random.default_rng(0)
    first = np.eye(32, dtype=np.float32)
    first[0, 0] = 1000
    last = rng.normal(size=(32, 32)).astype(np.float32)
    last[0] = 0  # what is large does not matter to the output, but to the scale
    model = parsed(
        "g (float[n,32] x) => (float[n,32] y) { a = MatMul(x, A) b = MatMul(a, B) y = Add(b, a) }",
        {"A": first, "B": last},
        {"a": "layer.0.first", "b": "layer.1.last"},
    )
    source, made = both(tmp_path, quantization, model)
    found = sensitivity(source, made, feeds(count=2))
    table = {row.module: row for row in found.modules}
    assert set(table) == {"layer.0.first", "layer.1.last"}
    assert table["layer.1.last"].result_db < 15 < table["layer.0.first"].result_db
    assert sum(row.share for row in found.modules) == pytest.approx(1)
    finding = sensitivity_finding(found, quantization, "typical")
    assert finding is not None
    assert (finding.code, finding.severity) == ("Q102", "warning")
    assert finding.place.module == found.modules[0].module
    assert [row["module"] for row in finding.evidence["modules"]] == [
        row.module for row in found.modules
    ]
    assert finding.remedy is not None
    assert finding.remedy.change == {
        "target.precision.keep_float32": [general_path(found.modules[0].module)]
    }


def test_errors_of_modules_add_up_to_the_wholes(tmp_path: Path) -> None:
    """As independent errors do, by their squares: what is said of shares rests on it."""
    source, made = both(tmp_path, Quantization("int4-weights"))
    found = sensitivity(source, made, feeds(count=2, seed=11))
    assert sum(row.output_error**2 for row in found.modules) ** 0.5 == pytest.approx(
        found.output_error, rel=0.2
    )


def test_a_model_that_is_not_quantized_has_no_table(tmp_path: Path) -> None:
    source = write(layers(), tmp_path)
    found = sensitivity(source, source, feeds(count=1))
    assert found.modules == ()
    assert found.output_error == 0
    assert sensitivity_finding(found, Quantization("dynamic-int8")) is None


def test_nan_is_the_largest_error() -> None:
    x = np.ones(3, np.float32)
    nan = relative_error({"a": x, "b": x}, {"a": x * np.nan, "b": x + 1})
    assert np.isnan(nan)
    assert relative_error({"a": x}, {"a": x}) == 0


def test_another_number_of_rows_is_an_error_as_large_as_the_output():
    rows = np.ones((4, 3), np.float32)
    assert relative_error({"a": rows}, {"a": rows[:2]}) == 1
