"""A file that the runtime's optimizer refuses: what makes it load is tried, and then offered."""

from pathlib import Path

import onnx
import pytest
import yaml

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

pytest.importorskip("onnxruntime")

# onnxruntime 1.31 drops the Cast to the type that the value has, and looks for its result later.
REFUSED = """
    <ir_version: 10, opset_import: ["" : 18]>
    agraph (float[batch, 4] x) => (float[batch, 4] y)
        <float[4] weight = {1.0, 2.0, 3.0, 4.0}, float one = {1.0},
         float[4] ones = {1.0, 1.0, 1.0, 1.0}> {
        sum = Add(x, weight)
        mid = Cast<to = 1>(sum)
        ratio = Div(one, ones)
        y = Mul(ratio, mid)
    }
"""
RECIPE = {
    "schema": 1,
    "name": "refused",
    "model": {"onnx": "refused.onnx"},
    "axes": {"batch": {"min": 1, "typical": 1, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
    "verify": {"tolerance": {"max_abs": 1e-4}},
    "targets": {"cpu": {"runtime": "onnxruntime"}},
}


@pytest.mark.thorough
def test_a_refused_file_is_tried_at_lower_levels(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(REFUSED), tmp_path / "refused.onnx")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    options = RunOptions(recipe, Home(tmp_path / "home"), toolchain="host", track=False)
    (target,) = run_recipe(options).record.targets
    leading = target.leading
    assert leading is not None
    assert (leading.code, leading.evidence["owner"]) == ("E205", "fusion")
    assert leading.remedy is not None
    assert leading.remedy.proven
    assert leading.remedy.change == {"targets.cpu.optimization": "none"}
    experiments = leading.evidence["experiments"]
    assert isinstance(experiments, list)
    outcomes = {each["what"]: each["outcome"] for each in experiments if isinstance(each, dict)}
    assert outcomes == {
        "optimization: extended": "wrong",
        "optimization: basic": "wrong",
        "optimization: none": "right",
    }


# OpenVINO 2026 samples pictures alone, and the build ends without a model.
VOLUMES = """
    <ir_version: 10, opset_import: ["" : 20]>
    agraph (float[batch, 1, 2, 2, 2] x, float[batch, 2, 2, 2, 3] grid)
        => (float[batch, 1, 2, 2, 2] y) {
        twice = Add(x, x)
        y = GridSample(twice, grid)
    }
"""


@pytest.mark.thorough
def test_a_run_whose_build_is_refused_ends_with_the_smallest_part(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    onnx.save(onnx.parser.parse_model(VOLUMES), tmp_path / "refused.onnx")
    given = [
        {"name": "x", "dtype": "float32", "shape": ["batch", 1, 2, 2, 2]},
        {"name": "grid", "dtype": "float32", "shape": ["batch", 2, 2, 2, 3]},
    ]
    changes = {
        "inputs": given,
        "outputs": [{**given[0], "name": "y", "shape": ["batch", 1, 2, 2, 2]}],
    }
    verify = {"tolerance": {"max_abs": 1e-4}, "ladder": "quick"}
    targets = {"targets": {"vino": {"runtime": "openvino"}}, "verify": verify}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE | changes | targets, sort_keys=False))
    options = RunOptions(recipe, Home(tmp_path / "home"), toolchain="host", track=False)
    run = run_recipe(options)
    (target,) = run.record.targets
    assert (target.status, target.leading and target.leading.code) == ("failed", "E205")
    assert target.leading is not None
    assert target.leading.evidence["smallest_part"] == ["GridSample"]
    assert (run.folder / "result.json").is_file()
