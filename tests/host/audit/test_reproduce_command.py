"""Reproducing past runs: real runs of a tiny model in this environment, each with one change."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from past_runs import MODEL, copy_home, make_run

from convkit.host.audit.past_runs.later_records import reproductions_of
from convkit.host.audit.reproduce_command import ReproductionReport, reproduce
from convkit.host.home import Home, home_around
from convkit.host.store.digests import write_json
from convkit.protocol.errors import UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one run, and return the folder that holds its recipe and its home."""
    folder = tmp_path_factory.mktemp("made")
    make_run(folder / "home")
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """Return the folder of a run of this test's own: a copy, which may be damaged."""
    shutil.copytree(made / "recipes", tmp_path / "recipes")
    return copy_home(made / "home", tmp_path / "home")


def again(run: Path) -> ReproductionReport:
    """Make a run again from the recipe's files beside its home."""
    home = home_around(run)
    return reproduce(run, Home(home), files=home.parent / "recipes")


def change_model(folder: Path, change) -> None:
    """Change the run's own built model, as if an earlier tool had written another one."""
    file = folder / "models" / "ort" / "model.onnx"
    model = onnx.load(file)
    change(model)
    file.unlink()
    onnx.save(model, file)


def nudge(by: float):
    def change(model: onnx.ModelProto) -> None:
        (weight,) = [
            tensor
            for tensor in model.graph.initializer
            if tensor.name.endswith("weight") or len(tensor.dims) == 2
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


@pytest.mark.thorough
def test_a_run_comes_out_as_it_was_under_other_surroundings(run: Path) -> None:
    report = again(run)
    assert [(each.target, each.likeness) for each in report.artifacts] == [("ort", "BIT_IDENTICAL")]
    assert report.reproduced
    assert "hash seed 4711" in report.varied
    (kept,) = reproductions_of(run)
    assert (kept.run, kept.worst, kept.artifacts) == (
        run.name,
        "BIT_IDENTICAL",
        {"ort": "BIT_IDENTICAL"},
    )
    assert list((home_around(run) / "scratch").iterdir()) == []


def test_serialisation_alone_is_no_difference(run: Path) -> None:
    change_model(run, lambda model: setattr(model.graph, "doc_string", "written by somebody"))
    assert again(run).worst == "CANONICAL_IDENTICAL"


def test_a_weight_within_rounding_is_structural_and_named(run: Path) -> None:
    change_model(run, nudge(4e-7))
    (artifact,) = again(run).artifacts
    assert artifact.likeness == "STRUCTURAL"
    assert any("initializer" in line and "weight" in line for line in artifact.where)


@pytest.mark.parametrize(
    ("change", "told"),
    [(nudge(0.5), "initializer"), (change_metadata, "metadata owner"), (replace_node, "Sigmoid")],
    ids=["weight", "metadata", "node"],
)
@pytest.mark.sampled(2)
def test_what_differs_is_located_and_held_against_the_original(
    run: Path, change, told: str
) -> None:
    change_model(run, change)
    (artifact,) = again(run).artifacts
    assert (
        artifact.likeness == "NUMERIC_OK"
    )  # what is built now holds its tolerance; the old one was another
    assert any(told in line for line in artifact.where), artifact.where


def test_another_model_is_drift_with_its_cause(run: Path) -> None:
    (home_around(run).parent / "recipes" / "model.py").write_text(
        MODEL.replace("torch.tanh(", "2.0 * torch.tanh(")
    )
    (artifact,) = again(run).artifacts
    assert artifact.likeness == "DRIFTED"
    assert any("source model.py:build" in line for line in artifact.why)


def test_another_tool_is_named_beside_a_difference(run: Path) -> None:
    change_model(run, nudge(0.5))
    record = json.loads((run / "result.json").read_text())
    for stage in record["stages"]:
        stage["versions"] = {
            name: "0.1" if name == "torch" else v for name, v in stage["versions"].items()
        }
    (run / "result.json").unlink()
    write_json(run / "result.json", record)
    (artifact,) = again(run).artifacts
    assert artifact.likeness == "NUMERIC_OK"
    assert any(line.startswith("torch 0.1, now 2.") for line in artifact.why), artifact.why


def test_a_model_that_no_longer_builds(run: Path) -> None:
    (home_around(run).parent / "recipes" / "model.py").write_text(
        "def build():\n    raise RuntimeError('gone')\n"
    )
    assert again(run).worst == "BUILD_FAILED"


def test_files_that_are_gone_leave_nothing_to_say(run: Path) -> None:
    (home_around(run).parent / "recipes" / "model.py").unlink()
    report = again(run)
    assert report.worst == "UNVERIFIABLE"
    assert not report.reproduced


@pytest.mark.thorough
def test_files_are_looked_for_where_they_were(tmp_path: Path) -> None:
    outcome = make_run(tmp_path / "home")
    assert reproduce(outcome.folder, Home(tmp_path / "home")).worst == "BIT_IDENTICAL"
    shutil.rmtree(tmp_path / "recipes")
    with pytest.raises(UsageError, match="--files"):
        reproduce(outcome.folder, Home(tmp_path / "home"))


def record_elsewhere(run: Path, max_abs_times: float = 1.0, **host: str) -> None:
    """Rewrite a run's record, by hand, as if another processor had recorded it."""
    record = json.loads((run / "result.json").read_text())
    record["host"] |= {"processor_features": "x86_64 some other processor"} | host
    for verification in record["targets"][0]["verifications"]:
        for case in verification["cases"]:
            for output in case["outputs"]:
                output["metrics"]["max_abs"] *= max_abs_times
    (run / "result.json").unlink()
    write_json(run / "result.json", record)


def test_a_record_of_another_processor_made_by_hand_is_equal_within_rounding(run: Path) -> None:
    change_model(run, nudge(3e-6))  # more than STRUCTURAL allows
    record_elsewhere(run, 1.3)
    report = again(run)
    (artifact,) = report.artifacts
    assert (artifact.likeness, report.elsewhere) == ("WITHIN_ROUNDING", True)
    assert report.reproduced
    assert any("processor_features" in line for line in artifact.why)
    (kept,) = reproductions_of(run)
    assert kept.host["processor_features"] != "x86_64 some other processor"


def test_the_same_record_of_this_processor_is_not(run: Path) -> None:
    change_model(run, nudge(3e-6))
    report = again(run)
    assert (report.worst, report.elsewhere) == ("NUMERIC_OK", False)


@pytest.mark.thorough
def test_figures_further_apart_than_rounding_are_not(run: Path) -> None:
    change_model(run, nudge(3e-6))
    record_elsewhere(run, 1000.0)
    assert again(run).worst == "NUMERIC_OK"


@pytest.mark.thorough
def test_another_model_is_drift_on_another_processor_too(run: Path) -> None:
    record_elsewhere(run)
    (home_around(run).parent / "recipes" / "model.py").write_text(
        MODEL.replace("torch.tanh(", "2.0 * torch.tanh(")
    )
    assert again(run).worst == "DRIFTED"


@pytest.mark.thorough
def test_a_record_of_an_earlier_release_is_still_reproduced(run: Path) -> None:
    record = json.loads((run / "result.json").read_text())
    del record["host"]["processor_features"], record["host"]["cores"]
    del record["host"]["integer_kernels"]
    (run / "result.json").unlink()
    write_json(run / "result.json", record)
    assert again(run).worst == "BIT_IDENTICAL"
