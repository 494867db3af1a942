"""A file that draws random numbers: the node is named, and with fixed numbers in their place the
file can be converted and verified, in low precision and by other runtimes, too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from small_runs import run

import convkit
from convkit.host.draft.init_command import Drafting, draft
from convkit.host.home import Home
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_summary import located_findings
from convkit.protocol.errors import RecipeError

# A voice: noise of two kinds, as loud as an input says.
NOISY = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,8] x, float[2] scales) => (float[n,8] y) {
    hidden = MatMul(x, weight)
    noise = RandomNormalLike(hidden)
    zero = Constant<value_ints=[0]>()
    loud = Gather(scales, zero)
    added = Mul(noise, loud)
    chosen = Add(hidden, added)
    gate = RandomUniform<shape=[8]>()
    y = Mul(chosen, gate)
}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(NOISY)
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(model, tmp_path / "voice.onnx")
    return tmp_path / "voice.onnx"


def recipe(file: Path, **model: Any) -> Path:
    tensor = {"dtype": "float32"}
    content = {
        "schema": 1,
        "name": "voice",
        "model": {"onnx": file.name, **model},
        "axes": {"n": {"min": 1, "typical": 2, "max": 4}},
        "inputs": [
            {"name": "x", "shape": ["n", 8], **tensor},
            {"name": "scales", "shape": [2], **tensor, "sample": {"uniform": [0, 1]}},
        ],
        "outputs": [{"name": "y", "shape": ["n", 8], **tensor}],
        "targets": {
            "ort": {"runtime": "onnxruntime"},
            "half": {
                "runtime": "onnxruntime",
                "precision": "float16",
                "tolerance": {"max_abs": 0.05, "cosine": 0.999},
            },
            "openvino": {"runtime": "openvino"},
        },
        "tools": {"python": "3.11", "onnxruntime": "==1.31.*", "openvino": "==2026.*"},
    }
    path = file.with_name("recipe.yaml")
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_fixed_numbers_make_it_comparable(file: Path, tmp_path: Path) -> None:
    outcome = run(recipe(file, random="fixed"), tmp_path / "home")
    assert {target.name: target.status for target in outcome.record.targets} == {
        "ort": "verified",
        "half": "verified",
        "openvino": "verified",
    }
    session = convkit.load(outcome.folder / "models" / "ort")
    feeds = {"x": np.ones((2, 8), np.float32), "scales": np.ones(2, np.float32)}
    first, second = (session(**feeds)["y"] for _ in range(2))
    assert np.array_equal(first, second)


def test_without_them_the_node_and_the_remedy_are_named(file: Path, tmp_path: Path) -> None:
    outcome = run(recipe(file), tmp_path / "home", only=("ort",))
    (target,) = outcome.record.targets
    assert target.status == "failed"
    assert target.leading is not None
    finding = target.leading
    assert finding.code == "N303"
    assert "RandomNormalLike noise draws random values, and 1 more" in finding.message
    assert finding.remedy is not None
    assert finding.remedy.change == {"model.random": "fixed"}
    # The reference warns of it, too, which is not said again.
    found = [each.finding for each in located_findings(outcome.record)]
    assert [each.severity for each in found if each.code == "N303"] == ["error"]


def test_a_draft_asks_for_them(file: Path, tmp_path: Path) -> None:
    drafting = Drafting(str(file), tmp_path / "drafted.yaml")
    text = draft(drafting, Home(tmp_path / "home"), lambda _: None, toolchain="host")
    assert yaml.safe_load(text)["model"] == {"onnx": "voice.onnx", "random": "fixed"}
    assert "Rounding alone" not in text


def test_other_sources_have_no_such_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("schema: 1\nname: a\nmodel: { path: model, random: fixed }\n")
    with pytest.raises(RecipeError, match=r"model\.random: does not apply to a model from path"):
        load_recipe(path)
