"""Past runs made again: real runs of a tiny model in this environment, each changed in one thing."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from past_runs import MODEL, copy_home, make_run

from convkit.audit.reproduce import ReproductionReport, reproduce
from convkit.audit.reproductions import reproductions_of
from convkit.home import Home
from convkit.store.digests import write_json


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def again(home: Path, folder: Path, **options: object) -> ReproductionReport:
    return reproduce(folder, Home(home), **options)  # type: ignore[arg-type]


def change_model(folder: Path, change) -> None:
    """Change the run's own built model, as if an earlier tool had written another one."""
    file = folder / "models" / "ort" / "model.onnx"
    model = onnx.load(file)
    change(model)
    file.unlink()  # the store's object is a hard link to it
    onnx.save(model, file)


def nudge(by: float):
    def change(model: onnx.ModelProto) -> None:
        (weight,) = [
            tensor for tensor in model.graph.initializer if tensor.name.endswith("weight") or len(tensor.dims) == 2
        ]
        values = numpy_helper.to_array(weight).copy()
        values.flat[5] += by * np.abs(values).max()
        weight.CopyFrom(numpy_helper.from_array(values, weight.name))

    return change


def change_metadata(model: onnx.ModelProto) -> None:
    entry = model.metadata_props.add()
    entry.key, entry.value = "owner", "somebody"


def replace_node(model: onnx.ModelProto) -> None:
    (node,) = [node for node in model.graph.node if node.op_type == "Tanh"]
    node.op_type = "Sigmoid"


def test_a_run_comes_out_as_it_was_under_other_surroundings(home: Path) -> None:
    outcome = make_run(home)
    report = again(home, outcome.folder)
    assert [(each.target, each.likeness) for each in report.artifacts] == [("ort", "BIT_IDENTICAL")]
    assert report.reproduced
    assert "hash seed 4711" in report.varied
    (kept,) = reproductions_of(outcome.folder)
    assert (kept.run, kept.worst, kept.artifacts) == (outcome.record.id, "BIT_IDENTICAL", {"ort": "BIT_IDENTICAL"})
    assert list((home / "scratch").iterdir()) == []


def test_serialisation_alone_is_no_difference(home: Path) -> None:
    outcome = make_run(home)
    change_model(outcome.folder, lambda model: setattr(model.graph, "doc_string", "written by somebody"))
    assert again(home, outcome.folder).worst == "CANONICAL_IDENTICAL"


def test_a_weight_within_rounding_is_structural_and_named(home: Path) -> None:
    outcome = make_run(home)
    change_model(outcome.folder, nudge(4e-7))
    (artifact,) = again(home, outcome.folder).artifacts
    assert artifact.likeness == "STRUCTURAL"
    assert any("initializer" in line and "weight" in line for line in artifact.where)


@pytest.mark.parametrize(
    ("change", "told"),
    [(nudge(0.5), "initializer"), (change_metadata, "metadata owner"), (replace_node, "Sigmoid")],
    ids=["weight", "metadata", "node"],
)
def test_what_differs_is_located_and_held_against_the_original(home: Path, change, told: str) -> None:
    outcome = make_run(home)
    change_model(outcome.folder, change)
    (artifact,) = again(home, outcome.folder).artifacts
    assert artifact.likeness == "NUMERIC_OK"  # what is built now holds its tolerance; the old one was another
    assert any(told in line for line in artifact.where), artifact.where


def test_another_model_is_drift_with_its_cause(home: Path) -> None:
    outcome = make_run(home)
    (home.parent / "recipes" / "model.py").write_text(MODEL.replace("torch.tanh(", "2.0 * torch.tanh("))
    (artifact,) = again(home, outcome.folder).artifacts
    assert artifact.likeness == "DRIFTED"
    assert any("source model.py:build" in line for line in artifact.why)


def test_another_tool_is_named_beside_a_difference(home: Path, tmp_path: Path) -> None:
    outcome = make_run(home)
    change_model(outcome.folder, nudge(0.5))
    record = json.loads((outcome.folder / "result.json").read_text())
    for stage in record["stages"]:
        stage["versions"] = {name: "0.1" if name == "torch" else v for name, v in stage["versions"].items()}
    (outcome.folder / "result.json").unlink()
    write_json(outcome.folder / "result.json", record)
    (artifact,) = again(home, outcome.folder).artifacts
    assert any(line.startswith("torch 0.1, now 2.") for line in artifact.why), artifact.why


def test_a_model_that_no_longer_builds(home: Path) -> None:
    outcome = make_run(home)
    (home.parent / "recipes" / "model.py").write_text("def build():\n    raise RuntimeError('gone')\n")
    assert again(home, outcome.folder).worst == "BUILD_FAILED"


def test_files_that_are_gone_leave_nothing_to_say(home: Path) -> None:
    outcome = make_run(home)
    (home.parent / "recipes" / "model.py").unlink()
    report = again(home, outcome.folder)
    assert report.worst == "UNVERIFIABLE"
    assert not report.reproduced
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.py").write_text(MODEL)
    assert again(home, outcome.folder, files=elsewhere).worst == "BIT_IDENTICAL"


def test_a_copied_home_reproduces_as_well(home: Path, tmp_path: Path) -> None:
    make_run(home)
    copy = copy_home(home, tmp_path / "copy")
    assert again(tmp_path / "copy", copy).worst == "BIT_IDENTICAL"
