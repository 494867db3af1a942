"""Quantized targets through `convkit run` whole, in this environment: real exports, real
quantizers, real kernels.
"""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from test_low_precision import BERT, codes, found, run, write_recipe

from convkit.host.record.run_record import TargetReport
from convkit.host.run.run_options import RunOutcome

pytestmark = [pytest.mark.processors, pytest.mark.slow]  # whole runs

ORT = {"runtime": "onnxruntime"}
# These layers saturate on processors without VNNI: test_processor_families.py.
EXACT = ORT | {"processors": "exact"}


def operators(outcome: RunOutcome, target: str) -> Counter[str]:
    path = outcome.folder / "models" / target / "model.onnx"
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def by_target(outcome: RunOutcome) -> dict[str, TargetReport]:
    return {report.name: report for report in outcome.record.targets}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.thorough
def test_a_bert_in_every_kind_verifies_on_the_cpu_s_own_kernels(home: Path, tmp_path: Path) -> None:
    kinds: dict[str, Any] = {
        "dynamic": {"quantize": "dynamic-int8"},
        "static": {"quantize": "static-int8", "per_channel": True, "format": "qdq"},
        "int4": {"quantize": "int4-weights", "block_size": 16},
    }
    targets = {
        name: ORT | {"precision": precision, "tolerance": {"cosine": 0.99}}
        for name, precision in kinds.items()
    }
    outcome = run(write_recipe(tmp_path, "", None, **(BERT | {"targets": targets})), home)
    assert {report.status for report in outcome.record.targets} == {"verified"}
    for report in outcome.record.targets:
        assert "device" in {verification.evidence for verification in report.verifications}
        assert all(len(verification.cases) >= 6 for verification in report.verifications)
    assert operators(outcome, "dynamic")["MatMulInteger"] == 12
    assert operators(outcome, "static")["QuantizeLinear"] >= 8
    assert operators(outcome, "int4")["MatMulNBits"] == 12
    assert codes(outcome) == set()


SPOILT = """
import torch

class Layer(torch.nn.Module):
    def __init__(self, seed, spoilt):
        super().__init__()
        self.dense = torch.nn.Linear(32, 32)
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(32, 32, generator=generator) / 6
        if spoilt:
            weight[3, 5] = 100.0
        self.dense.weight.data = weight

    def forward(self, x):
        return torch.tanh(self.dense(x))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(i, i == 1) for i in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def build():
    return Net()
"""
ROWS: dict[str, Any] = {
    "inputs": [
        {"name": "x", "dtype": "float32", "shape": ["batch", 32], "sample": {"normal": [0, 1]}}
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 32]}],
}


def spoilt(folder: Path, precision: Any, **changes: Any) -> Path:
    targets = {"ort": EXACT | {"precision": precision}}
    return write_recipe(folder, SPOILT, precision, **(ROWS | {"targets": targets} | changes))


def test_the_module_that_costs_most_is_named_and_its_exception_verifies(
    home: Path, tmp_path: Path
) -> None:
    """One large weight in layer 1 takes the whole scale: Q102, and what it says to do does it."""
    per_tensor = {"quantize": "dynamic-int8", "per_channel": False}
    tolerance = {"verify": {"tolerance": {"cosine": 0.995}}}
    outcome = run(spoilt(tmp_path / "a", per_tensor, **tolerance), home)
    assert codes(outcome) == {"N101"}
    (finding,) = found(outcome, "Q102")
    assert (finding.severity, finding.place.module) == ("warning", "layers.1.dense")
    assert finding.evidence["modules"][0]["weight_db"] < 20
    assert finding.remedy is not None
    spared = {"quantize": "dynamic-int8", "per_channel": True}  # tried first: all stays quantized
    assert finding.remedy.change == {"targets.ort.precision": spared}
    precision = per_tensor | {"keep_float32": ["layers.1.dense"]}
    assert run(spoilt(tmp_path / "b", precision, **tolerance), home).record.status == "verified"


@pytest.mark.thorough
def test_auto_finds_it_and_the_build_and_the_verification_go_by_it(
    home: Path, tmp_path: Path
) -> None:
    precision = {"quantize": "dynamic-int8", "per_channel": False, "keep_float32": "auto"}
    outcome = run(spoilt(tmp_path, precision, verify={"tolerance": {"cosine": 0.995}}), home)
    assert outcome.record.status == "verified"
    (note,) = found(outcome, "N208")
    assert note.evidence["keep_float32"] == ["layers.1.dense"]
    assert operators(outcome, "ort")["MatMulInteger"] == 3


def test_nothing_to_quantize_is_an_error(home: Path, tmp_path: Path) -> None:
    precision = {"quantize": "int4-weights", "keep_float32": ["layers"]}
    outcome = run(spoilt(tmp_path, precision), home)
    assert codes(outcome) == {"Q101"}
    assert outcome.record.status == "failed"


@pytest.mark.thorough
def test_a_calibration_file_with_nan_or_another_shape_is_an_error(
    home: Path, tmp_path: Path
) -> None:
    tmp_path.mkdir(exist_ok=True)
    samples = np.random.default_rng(0).normal(size=(4, 2, 32)).astype(np.float32)
    np.savez(tmp_path / "good.npz", x=samples)
    samples[1, 0, 3] = np.nan
    np.savez(tmp_path / "bad.npz", x=samples)
    np.savez(tmp_path / "unfit.npz", x=samples[:, 0])
    targets = {
        name: (
            EXACT
            | {
                "precision": {
                    "quantize": "static-int8",
                    "calibration": {"method": "minmax", "file": f"{name}.npz"},
                },
                "tolerance": {"cosine": 0.9},
            }
        )
        for name in ("good", "bad", "unfit")
    }
    auto = copy.deepcopy(targets["good"]["precision"]) | {"keep_float32": "auto"}
    targets["searched"] = targets["good"] | {"precision": auto, "tolerance": {"cosine": 0.999}}
    outcome = run(spoilt(tmp_path, None, targets=targets), home)
    assert by_target(outcome)["searched"].status == "verified"
    assert not any(
        str(tmp_path).encode() in path.read_bytes() for path in home.rglob("precision.json")
    )
    assert by_target(outcome)["good"].status == "verified"
    assert by_target(outcome)["bad"].status == "failed"
    assert by_target(outcome)["unfit"].status == "broken"
    (unfit,) = found(outcome, "E412")
    assert "x has the shape [4, 32] in unfit.npz, and needs [samples, batch, 32]" in unfit.message
    assert found(outcome, "E204") == []
    assert {finding.code for finding in outcome.record.findings if finding.is_error} >= {"Q106"}
    assert "NaN" in found(outcome, "Q106")[0].message


def test_a_file_with_scales_on_the_wrong_axis_loads_runs_and_is_an_error(
    home: Path, tmp_path: Path
) -> None:
    """The weight is square, so ONNX's checker and onnxruntime find nothing; the original is not
    asked.
    """
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(32, 32)) * np.logspace(-1, 1, 32)).astype(np.float32)
    scales = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch,32] x) => (float[batch,32] y) {
            w = DequantizeLinear<axis=0>(W, s)
            y = MatMul(x, w)
        }""")
    numbers = np.round(weight / scales).astype(np.int8)
    weights = {"W": numbers, "s": scales}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(values, name) for name, values in weights.items()
    )
    onnx.save(model, tmp_path / "wrong.onnx")
    outcome = run(spoilt(tmp_path, "float32", model={"onnx": "wrong.onnx"}, export={}), home)
    assert codes(outcome) == {"Q104"}
    assert "scaled along axis 1" in found(outcome, "Q104")[0].message


PACKED = """
import torch

class QuantLinear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weights = torch.randint(-2**31, 2**31, (64, 256), generator=generator).int()
        self.register_buffer("qweight", weights)
        self.register_buffer("shifts", torch.arange(0, 32, 8, dtype=torch.int32).view(1, 4, 1))
        self.register_buffer("scales", torch.rand(256, generator=generator) / 1000)

    def forward(self, x):
        shifted = torch.bitwise_right_shift(self.qweight.unsqueeze(1), self.shifts)
        numbers = torch.bitwise_and(shifted, 255)
        return x @ ((numbers.reshape(256, 256) - 128).float() * self.scales)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = QuantLinear()

    def forward(self, x):
        return self.proj(x)

def build():
    return Net()
"""


@pytest.mark.thorough
def test_packed_weights_are_not_quantized_again(home: Path, tmp_path: Path) -> None:
    """int8 weights in int32, as GPTQ's layers keep them; smaller ones would be unpacked by the
    exporter.
    """
    wide = {
        "inputs": [ROWS["inputs"][0] | {"shape": ["batch", 256]}],
        "outputs": [ROWS["outputs"][0] | {"shape": ["batch", 256]}],
        "export": {"exporter": "torch", "opset": 18},
    }
    recipe = write_recipe(tmp_path, PACKED, {"quantize": "static-int8"}, **wide)
    outcome = run(recipe, home)
    assert codes(outcome) == {"Q103"}
    (finding,) = found(outcome, "Q103")
    assert finding.place.module == "proj"
    assert finding.evidence["weights"][0]["constant"] == "proj.qweight"
    assert finding.remedy is not None
    assert finding.remedy.change == {"targets.ort.precision": "float32"}
