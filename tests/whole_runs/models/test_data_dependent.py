"""Outputs whose number of rows depends on the data, through `convkit run` whole: masks, NonZero and
heads that end in ONNX's NonMaxSuppression.
"""

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml
from test_low_precision import built, codes, found, run, write_recipe
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.recipe.reading.loading import load_recipe

# Detections are kept whose best class has a probability over a half.
HEAD = """
import torch

class Head(torch.nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold
        self.boxes = torch.nn.Linear(8, 4)
        self.classes = torch.nn.Linear(8, 3)

    def forward(self, x):
        scores, classes = self.classes(x).sigmoid().max(-1)
        keep = scores > self.threshold
        return {"boxes": self.boxes(x)[keep], "scores": scores[keep], "classes": classes[keep]}

def build(threshold=0.6):
    return Head(threshold)
"""
NONZERO = """
import torch

class Places(torch.nn.Module):
    def forward(self, x):
        return {"places": torch.nonzero(x > 1.0)}

def build():
    return Places()
"""
AXES = {"queries": {"min": 4, "typical": 20, "max": 40}}
BOXES = [
    {"name": "boxes", "dtype": "float32", "shape": ["detections", 4]},
    {"name": "scores", "dtype": "float32", "shape": ["detections"]},
    {"name": "classes", "dtype": "int64", "shape": ["detections"]},
]
INPUT = {"name": "x", "dtype": "float32", "shape": ["queries", 8]}
TOLERANCE = {"tolerance": {"max_abs": 1e-4}}


def head_recipe(folder: Path, **changes: Any) -> Path:
    match = {"scores": "scores", "threshold": 0.6}
    axes = {**AXES, "detections": {"from": "data", "max": 40, "match": match}}
    settings: dict[str, Any] = {
        "export": {"exporter": "torch", "opset": 18},
        "axes": axes,
        "inputs": [INPUT],
        "outputs": BOXES,
        "verify": TOLERANCE,
    }
    return write_recipe(folder, HEAD, "float32", **(settings | changes))


def rows_of(outcome: Any) -> list[Any]:
    return [
        output.metrics.rows
        for target in outcome.record.targets
        for verification in target.verifications
        for case in verification.cases
        for output in case.outputs
        if output.output == "scores"
    ]


def test_what_a_mask_keeps_is_verified(tmp_path: Path) -> None:
    runtimes = {"ort": {"runtime": "onnxruntime"}, "openvino": {"runtime": "openvino"}}
    outcome = run(head_recipe(tmp_path, targets=runtimes), tmp_path / "home")
    assert outcome.record.status == "verified", outcome.record.findings
    assert outcome.record.findings == ()
    rows = rows_of(outcome)
    assert len({each.reference for each in rows}) > 2  # the count does change
    assert all(each.is_complete for each in rows)


@pytest.mark.thorough
def test_a_threshold_that_lets_nothing_through_proves_nothing(tmp_path: Path) -> None:
    model = {"factory": {"call": "model.py:build", "seed": 3, "arguments": {"threshold": 2.0}}}
    outcome = run(head_recipe(tmp_path, model=model), tmp_path / "home")
    assert (outcome.record.status, outcome.record.exit_code) == ("failed", 1)
    assert outcome.record.targets[0].headline.startswith("N104")
    assert {each.reference for each in rows_of(outcome)} == {0}


@pytest.mark.thorough
def test_another_threshold_in_the_converted_model_is_found(tmp_path: Path) -> None:
    exported = run(head_recipe(tmp_path / "stricter"), tmp_path / "home")
    onnx.save(built(exported), tmp_path / "head.onnx")
    recipe = head_recipe(
        tmp_path,
        model={"onnx": "head.onnx"},
        original={
            "factory": {"call": "model.py:build", "seed": 3, "arguments": {"threshold": 0.5}}
        },
    )
    outcome = run(recipe, tmp_path / "home")
    assert outcome.record.status == "failed"
    assert "N105" in codes(outcome)
    (finding,) = found(outcome, "N105")
    assert "is missing, with score 0.5" in finding.message
    (cause,) = found(outcome, "N405")
    assert "is 0.6 and should be 0.5" in cause.message


@pytest.mark.thorough
def test_places_that_are_not_zero_are_verified(tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path,
        NONZERO,
        "float32",
        export={"exporter": "torch", "opset": 18},
        axes={**AXES, "hits": {"from": "data", "max": 320}},
        inputs=[INPUT],
        outputs=[{"name": "places", "dtype": "int64", "shape": ["hits", 2]}],
        verify={"tolerance": {"max_abs": 0}},
    )
    outcome = run(recipe, tmp_path / "home")
    assert outcome.record.status == "verified", outcome.record.findings


NMS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,queries,4] corners, float[1,3,queries] logits) => (
    float[kept,4] boxes, float[kept] scores, int64[kept] classes
) {
    probabilities = Sigmoid(logits)
    most = Constant<value_ints=[20]>()
    overlap = Constant<value_floats=[0.5]>()
    threshold = Constant<value_floats=[0.6]>()
    selected = NonMaxSuppression(corners, probabilities, most, overlap, threshold)
    two = Constant<value_int=2>()
    one = Constant<value_int=1>()
    place = Gather<axis=1>(selected, two)
    classes = Gather<axis=1>(selected, one)
    front = Constant<value_ints=[0]>()
    every = Squeeze(corners, front)
    boxes = Gather(every, place)
    table = Squeeze(probabilities, front)
    last = Constant<value_ints=[1]>()
    row = Unsqueeze(classes, last)
    column = Unsqueeze(place, last)
    pair = Concat<axis=1>(row, column)
    scores = GatherND(table, pair)
}"""


@pytest.mark.thorough
def test_a_drafted_recipe_of_a_head_with_suppression_is_verified(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NMS), tmp_path / "head.onnx")
    written = CliRunner().invoke(
        app, ["init", str(tmp_path / "head.onnx"), "--output", str(tmp_path / "head.yaml")]
    )
    assert written.exit_code == 0, written.output
    axis = load_recipe(tmp_path / "head.yaml").recipe.axes["rows"]
    assert axis.model_dump(by_alias=True, exclude_unset=True) == {
        "from": "data",
        "max": axis.max,
        "match": {"boxes": "boxes", "scores": "scores"},
    }
    content = yaml.safe_load((tmp_path / "head.yaml").read_text())
    del content["tools"]
    (tmp_path / "head.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    outcome = run(tmp_path / "head.yaml", tmp_path / "home")
    assert outcome.record.status == "verified", outcome.record.findings
