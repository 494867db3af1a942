"""TensorRT targets where there is no device: everything up to the engine is done, and what it says
is not proof.
"""

from pathlib import Path
from typing import Any, ClassVar

import onnx
import pytest
import yaml
from test_low_precision import OVERFLOWING, codes, evidence, found, run, write_recipe
from test_shipped_models import changed

from convkit.host.facts import absent_devices
from convkit.host.facts.absent_devices import absent_parts
from convkit.host.home import Home
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_options import RunOptions
from convkit.host.toolchain.device_detection import Presence, find_device

pytestmark = pytest.mark.skipif(
    find_device("cuda").there, reason="this machine has a device: see tests/gpu"
)

HARMLESS = OVERFLOWING.replace("60000.0", "0.5")
DETERMINANT = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        scaled = torch.eye(4) * x.unsqueeze(-1)
        return x * torch.linalg.det(scaled).unsqueeze(-1)

def build():
    return Net()
"""


def recipe(folder: Path, code: str, precision: Any, **changes: Any) -> Path:
    targets = {"trt": {"runtime": "tensorrt", "precision": precision}}
    return write_recipe(folder, code, precision, **({"targets": targets} | changes))


def test_in_float32_the_graph_holds_and_the_target_is_skipped_with_the_command_to_go_on(
    tmp_path: Path,
) -> None:
    path = recipe(tmp_path, HARMLESS, "float32")
    outcome = run(path, tmp_path / "home")
    (target,) = outcome.record.targets
    assert (target.status, outcome.record.exit_code) == ("skipped", 0)
    assert evidence(outcome) == "simulated"
    assert target.headline.startswith("no engine was built: this machine has no cuda device (")
    assert "its graph passes in simulation: " in target.headline
    (finding,) = found(outcome, "E101")
    assert finding.severity == "warning"
    assert finding.remedy is not None
    assert finding.remedy.text.endswith(f"{path.name} --only trt")
    assert {"models/trt/model.onnx", "models/trt/bindings.hpp"} <= set(target.files)
    again = run(path, tmp_path / "home")
    assert again.up_to_date
    assert again.record.targets[0].status == "skipped"


@pytest.mark.thorough
def test_an_overflow_in_float16_is_foreseen_and_fails(tmp_path: Path) -> None:
    outcome = run(recipe(tmp_path, OVERFLOWING, "float16"), tmp_path / "home")
    (target,) = outcome.record.targets
    assert (target.status, outcome.record.exit_code) == ("failed", 1)
    assert target.headline.startswith("N202")
    assert target.headline.endswith("(foreseen: nothing was built for the device)")


@pytest.mark.thorough
def test_what_stays_in_float32_is_worked_out_without_a_device(tmp_path: Path) -> None:
    path = recipe(tmp_path, OVERFLOWING, {"default": "float16", "keep_float32": "auto"})
    (target,) = run(path, tmp_path / "home").record.targets
    assert target.status == "skipped"
    assert target.plan is not None
    assert target.precision == "float16, float32: blocks.*"


@pytest.mark.slow
@pytest.mark.processors
@pytest.mark.thorough
def test_int8_is_quantized_symmetrically_as_the_parser_demands(tmp_path: Path) -> None:
    path = recipe(
        tmp_path, HARMLESS, {"quantize": "static-int8"}, verify={"tolerance": {"cosine": 0.9}}
    )
    outcome = run(path, tmp_path / "home")
    assert outcome.record.targets[0].status == "skipped"
    assert "T107" not in codes(outcome)
    graph = onnx.load(outcome.folder / "models" / "trt" / "model.onnx")
    points = {
        name
        for node in graph.graph.node
        if node.op_type == "QuantizeLinear"
        for name in node.input[2:3]
    }
    values = [tensor for tensor in graph.graph.initializer if tensor.name in points]
    assert values
    assert all(not onnx.numpy_helper.to_array(value).any() for value in values)
    assert {value.data_type for value in values} == {onnx.TensorProto.INT8}


@pytest.mark.thorough
def test_an_operator_without_a_layer_fails_the_target_alone(tmp_path: Path) -> None:
    targets = {"trt": {"runtime": "tensorrt"}, "ort": {"runtime": "onnxruntime"}}
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
    path = recipe(tmp_path, DETERMINANT, "float32", targets=targets, outputs=outputs)
    outcome = run(path, tmp_path / "home")
    status = {target.name: target.status for target in outcome.record.targets}
    assert status == {"trt": "failed", "ort": "verified"}
    (finding,) = found(outcome, "T105")
    assert "Det" in finding.message


def test_a_machine_with_a_device_and_no_library_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        absent_devices, "find_device", lambda _: Presence(there=True, detail="one, for this test")
    )
    loaded = load_recipe(recipe(tmp_path, HARMLESS, "float32"))
    told = absent_parts(loaded.recipe, Home(tmp_path / "home"), "host", may_resolve=True)
    assert told == {"tensorrt": "this environment has no tensorrt"}


@pytest.mark.slow
@pytest.mark.thorough
def test_superglue_in_float16_is_foreseen_to_overflow_and_repaired_before_any_engine(
    tmp_path: Path,
) -> None:
    target = {"runtime": "tensorrt", "precision": "float16", "tolerance": {"cosine": 0.999}}
    path = changed(tmp_path, "superglue", targets={"trt": target})
    options = RunOptions(path, Home(tmp_path / "home"), toolchain="host", track=False)
    repaired = repair_recipe(options, _Silent, lambda _: None)
    assert repaired.first.targets[0].headline.startswith("N202")
    assert repaired.last.record.targets[0].status == "skipped"
    assert "pair_scores" in repaired.last.record.targets[0].precision


class _Silent:
    def __enter__(self) -> Any:
        from convkit.host.processes.progress_events import SilentListener

        return SilentListener()

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.slow
class TestBertBaseChinese:
    SMALL: ClassVar = {
        "vocab_size": 21128,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }

    def small(self, folder: Path, **changes: Any) -> Path:
        overrides = self.SMALL | {
            "intermediate_size": 64,
            "num_labels": 2,
            "initializer_range": 0.5,
        }
        config = {"architecture": "bert", "seed": 0, "overrides": overrides}
        model = {"config": config, "task": "text-classification", "attn_implementation": "eager"}
        return changed(folder, "bert-base-chinese", **({"model": model} | changes))

    @pytest.mark.thorough
    def test_its_targets_hold(self, tmp_path: Path) -> None:
        outcome = run(self.small(tmp_path), tmp_path / "home")
        status = {target.name: target.status for target in outcome.record.targets}
        assert status == {"ort-cpu": "verified", "trt-float32": "skipped", "trt-float16": "skipped"}

    @pytest.mark.thorough
    def test_crossed_bindings_are_caught_and_both_orders_named(self, tmp_path: Path) -> None:
        sound = run(self.small(tmp_path), tmp_path / "home")
        graph = onnx.load(sound.folder / "models" / "ort-cpu" / "model.onnx")
        names = {"attention_mask": "token_type_ids", "token_type_ids": "attention_mask"}
        for node in graph.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
        del graph.metadata_props[:]
        folder = tmp_path / "crossed"
        model = yaml.safe_load(self.small(folder).read_text())["model"]
        path = self.small(
            folder,
            model={"onnx": "crossed.onnx"},
            original=model,
            targets={"ort-cpu": {"runtime": "onnxruntime"}, "trt": {"runtime": "tensorrt"}},
        )
        onnx.save(graph, folder / "crossed.onnx")
        outcome = run(path, tmp_path / "home")
        assert {target.status for target in outcome.record.targets} == {"failed"}
        orders = (
            "Declared order: input_ids, attention_mask, token_type_ids. The model behaves as:"
            " input_ids, token_type_ids, attention_mask"
        )
        for target in outcome.record.targets:
            assert target.headline.startswith("C110")
            assert (
                "inputs are swapped in the graph: 'attention_mask' and 'token_type_ids'"
                in target.headline
            )
            told = [finding.message for each in target.verifications for finding in each.findings]
            assert any(orders in message for message in told)
        assert orders in (outcome.folder / "report.html").read_text(encoding="utf-8")
