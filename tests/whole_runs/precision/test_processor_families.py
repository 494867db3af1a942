"""Quantized targets on both families of processors, through runs in this environment: one family is
this machine's, the other is simulated.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from convkit.host.home import Home
from convkit.host.record.run_record import Verification
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.rejudging import rejudge
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.worker.graph.integer_products.processor_families import host_family

FAMILIES = ("exact", "saturating-pairs")


def write_model(folder: Path, largest: float) -> None:
    """Write two layers; weights of the first are of one sign and of similar size, up to `largest`
    of what saturates.
    """
    rng = np.random.default_rng(3)
    signs = np.sign(rng.normal(size=(1, 96)))
    first = (signs * (0.9 + 0.1 * rng.random((64, 96)))).astype(np.float32)
    if largest < 1:
        first[::2] *= np.float32(largest)
    second = (rng.normal(size=(96, 32)) / 10).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "up"], ["a"], name="up"),
            helper.make_node("Relu", ["a"], ["b"], name="act"),
            helper.make_node("MatMul", ["b", "down"], ["y"], name="down"),
        ],
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
        [numpy_helper.from_array(first, "up"), numpy_helper.from_array(second, "down")],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "m.onnx")


def write(folder: Path, targets: dict[str, object], largest: float = 1.0) -> Path:
    write_model(folder, largest)
    recipe = {
        "schema": 1,
        "name": "families",
        "model": {"onnx": "m.onnx"},
        "axes": {"batch": {"min": 1, "typical": 4, "max": 8}},
        "inputs": [
            {"name": "x", "dtype": "float32", "shape": ["batch", 64], "sample": {"uniform": [0, 1]}}
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 32]}],
        "verify": {"tolerance": {"nrmse": 0.05}},
        "targets": {
            name: {"runtime": "onnxruntime"} | target  # type: ignore[operator]
            for name, target in targets.items()
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(recipe)), sort_keys=False))  # no aliases
    return path


def options(recipe: Path, folder: Path) -> RunOptions:
    return RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)


EIGHT = {"reduce_range": False}  # what `auto` avoids where it hurts
DYNAMIC = {"precision": {"quantize": "dynamic-int8", **EIGHT}}
STATIC = {"precision": {"quantize": "static-int8", **EIGHT}}


@pytest.fixture(scope="module")
def saturating(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    folder = tmp_path_factory.mktemp("saturating")
    targets = {
        "dynamic": DYNAMIC,
        "static": STATIC,
        "elsewhere": STATIC | {"processors": "exact"},
        "there": STATIC | {"processors": "saturating-pairs"},
        "openvino": STATIC | {"runtime": "openvino"},
        "narrow": {"precision": {"quantize": "static-int8", "reduce_range": True}},
        "measured": {"precision": {"quantize": "static-int8"}},
        "measured-dynamic": {"precision": {"quantize": "dynamic-int8"}},
        "measured-openvino": {"runtime": "openvino", "precision": {"quantize": "static-int8"}},
        "measured-auto": {"precision": {"quantize": "dynamic-int8", "keep_float32": "auto"}},
    }
    return run_recipe(options(write(folder, targets), folder))


def of(outcome: RunOutcome, target: str) -> dict[str | None, Verification]:
    (report,) = (each for each in outcome.record.targets if each.name == target)
    return {each.family: each for each in report.verifications}


@pytest.mark.parametrize("target", ["dynamic", "static", "openvino"])
@pytest.mark.sampled(1)
def test_both_families_have_a_verdict_of_their_own(saturating: RunOutcome, target: str) -> None:
    found = of(saturating, target)
    assert tuple(found) == FAMILIES  # in this order on every machine
    assert found["exact"].status == "verified"
    assert found["saturating-pairs"].status == "failed"
    own = host_family()
    for family, verification in found.items():
        assert verification.evidence == ("device" if family == own else "simulated")
        assert len(verification.cases) >= 6
    assert len({verification.id for verification in found.values()}) == 2


@pytest.mark.parametrize("target", ["dynamic", "static", "openvino"])
def test_the_node_that_saturates_leads_with_a_remedy_that_was_tried(
    saturating: RunOutcome, target: str
) -> None:
    verification = of(saturating, target)["saturating-pairs"]
    leading = verification.leading
    assert leading is not None
    assert (leading.code, leading.severity) == ("Q105", "error")
    assert leading.evidence["nodes"][0]["weight"].startswith("up")
    assert 0.3 < leading.evidence["nodes"][0]["saturated_share"] < 0.9
    assert leading.evidence["error_saturating"] > 10 * leading.evidence["error_exact"]
    assert leading.evidence["proven"] is True
    assert leading.remedy is not None
    assert leading.remedy.proven
    assert leading.remedy.change == {f"targets.{target}.precision.reduce_range": True}
    tried = [list(trial["change"]) for trial in leading.evidence["tried"]]
    assert ["target.precision.reduce_range"] in tried
    # onnxruntime makes unsigned activations of signed ones on x86, so that they saturate, too.
    assert (["target.precision.symmetric"] in tried) == (target != "dynamic")
    exact = of(saturating, target)["exact"]
    assert not any(finding.code in ("Q105", "Q102") for finding in exact.findings)


def test_a_recipe_may_say_that_one_family_matters(saturating: RunOutcome) -> None:
    assert {name: each.status for name, each in of(saturating, "elsewhere").items()} == {
        "exact": "verified"
    }
    assert {name: each.status for name, each in of(saturating, "there").items()} == {
        "saturating-pairs": "failed"
    }


def test_products_that_saturate_nowhere_have_one_verdict(saturating: RunOutcome) -> None:
    (verification,) = of(saturating, "narrow").values()
    assert verification.family is None
    assert verification.families_agree
    assert (verification.status, verification.evidence) == ("verified", "device")


@pytest.mark.parametrize("target", [None, "dynamic", "openvino", "auto"])
def test_without_a_word_weights_have_the_bits_that_are_right_everywhere(
    saturating: RunOutcome, target: str | None
) -> None:
    name = "-".join(filter(None, ["measured", target]))
    (verification,) = of(saturating, name).values()
    assert (verification.status, verification.families_agree) == ("verified", True)
    (stage,) = (each for each in saturating.record.stages if each.id == f"precision:{name}")
    found = next(each for each in stage.findings if each.code == "Q112")
    assert found.severity == "note"
    assert found.evidence["error_saturating"] > 10 * found.evidence["error_exact"]
    assert found.evidence["error_seven_bits"] < found.evidence["error_saturating"] / 5


def test_a_record_is_judged_again_by_family(saturating: RunOutcome) -> None:
    again = rejudge(saturating.folder, None)
    before = [
        (each.family, each.status, each.headline)
        for target in saturating.record.targets
        for each in target.verifications
    ]
    after = [
        (each.family, each.status, each.headline)
        for target in again.targets
        for each in target.verifications
    ]
    assert after == before


def test_stages_that_fail_elsewhere_are_kept(saturating: RunOutcome) -> None:
    """Right on this machine and wrong on another is a result, not a failure to repeat."""
    folder = saturating.folder.parents[2]
    again = run_recipe(options(folder.parent / "recipe.yaml", folder.parent))
    assert again.up_to_date


@pytest.mark.thorough
def test_a_repair_is_right_on_both(tmp_path: Path) -> None:
    """And `auto`, for which no pattern is cheap enough, is offered seven bits as well."""
    auto = {"precision": {"quantize": "static-int8", "keep_float32": "auto", **EIGHT}}
    recipe = write(tmp_path, {"dynamic": DYNAMIC, "auto": auto})
    outcome = repair_recipe(options(recipe, tmp_path)).last
    assert outcome.record.status == "verified"
    for target in outcome.record.targets:
        assert all(each.family is None for each in target.verifications)


@pytest.mark.thorough
def test_saturation_that_cannot_be_computed_is_skipped(tmp_path: Path) -> None:
    """A quantized LSTM has its products inside: nothing is claimed about processors not at hand."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 64, 16), "r": (1, 64, 16), "b": (1, 128)}
    weights = [
        numpy_helper.from_array((rng.normal(size=shape) / 4).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(
        [
            helper.make_node("LSTM", ["x", "w", "r", "b"], ["h"], name="lstm", hidden_size=16),
            helper.make_node("Squeeze", ["h", "axis"], ["y"], name="one"),
        ],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", 2, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["steps", 2, 16])],
        [*weights, numpy_helper.from_array(np.array([1]), "axis")],
    )
    recipe = write(tmp_path, {"dynamic": DYNAMIC})
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    content = yaml.safe_load(recipe.read_text())
    content["axes"] = {"steps": {"min": 1, "typical": 4, "max": 8}}
    for tensor in (content["inputs"][0], content["outputs"][0]):
        tensor["shape"] = ["steps", 2, 16]
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    found = of(run_recipe(options(recipe, tmp_path)), "dynamic")
    assert found["exact"].status == "verified"
    if host_family() == "exact":
        assert found["saturating-pairs"].status == "skipped"
        assert "processors: exact" in found["saturating-pairs"].headline
    else:
        assert found["saturating-pairs"].evidence == "device"
