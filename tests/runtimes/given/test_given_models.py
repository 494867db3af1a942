"""Files that somebody else built, verified against an original."""

import json

import numpy as np
import pytest
from given_models import NAMES, SAVE, save_onnx, save_package, save_tflite
from stage_requests import build_request

from convkit.host.home import Home
from convkit.host.recipe.keys.target_models import target_models
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.runtimes.given import build
from convkit.runtimes.given.options import GivenOptions
from convkit.runtimes.given.session import UnnamedError, open_given
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError


def contract(batch="batch", dtype="float32"):
    inputs = tuple(TensorSpec(name, dtype, (batch, 4)) for name in ("x", "y"))
    outputs = tuple(TensorSpec(name, "float32", (batch, 4)) for name in ("out", "total"))
    return Contract(inputs, outputs, (Axis("batch", 1, 2, 4),))


FEEDS = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "y": np.ones((2, 4), np.float32)}


@pytest.mark.parametrize(
    "suffix",
    [pytest.param(each, marks=pytest.mark.slow if each == ".mlpackage" else []) for each in SAVE],
)
def test_every_format_is_run_by_the_contract_s_names(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    SAVE[suffix](path)
    options = GivenOptions(suffix, NAMES if suffix == ".tflite" else {})
    session = open_given(path, options, contract())
    assert [spec.name for spec in session.contract().inputs] == ["x", "y"]
    assert [spec.name for spec in session.contract().outputs] == ["out", "total"]
    found = session.run({"y": FEEDS["y"], "x": FEEDS["x"]})
    assert np.allclose(found["out"], 3 * (FEEDS["x"] - FEEDS["y"]))
    assert np.allclose(found["total"], FEEDS["x"] + FEEDS["y"])


@pytest.mark.parametrize("suffix", SAVE)
def test_a_damaged_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"neither this nor that")
    with pytest.raises(ModelRefusedError):
        open_given(path, GivenOptions(suffix), contract())


def test_a_refusal_does_not_name_the_copy(tmp_path):
    given, output = tmp_path / "theirs.onnx", tmp_path / "artifact"
    given.write_bytes(b"neither this nor that")
    output.mkdir()
    options = GivenOptions(".onnx")
    request = build_request("", contract=contract(), options=options, given=(str(given),))
    _, (finding,) = build.run(request, Context(output))
    assert finding.code == "E205"
    assert "the given file" in finding.message
    assert str(output) not in finding.message + finding.evidence["message"]
    assert finding.remedy is not None
    assert "opset" not in finding.remedy.text  # the recipe's export does not reach the file
    assert "convert the model again" in finding.remedy.text


def test_tensors_without_a_name_are_listed(tmp_path):
    save_tflite(tmp_path / "model.tflite")
    names = {"y": "given_y:0", "total": "call:1"}
    with pytest.raises(UnnamedError) as caught:
        open_given(tmp_path / "model.tflite", GivenOptions(".tflite", names), contract())
    finding = caught.value.finding
    assert (finding.code, finding.place.tensor) == ("E320", "x")
    assert finding.evidence["missing"] == ["x", "out"]
    assert finding.remedy is not None
    proposed = {**names, "x": "given_x:0", "out": "call:0"}
    assert finding.remedy.change == {"target.names": proposed}
    assert "paired in order" not in finding.remedy.text
    assert open_given(tmp_path / "model.tflite", GivenOptions(".tflite", proposed), contract())


def test_tensors_of_one_shape_are_paired_in_the_file_s_order(tmp_path):
    save_tflite(tmp_path / "model.tflite")
    with pytest.raises(UnnamedError, match=r"no inputs 'x', 'y' .* and no outputs") as caught:
        open_given(tmp_path / "model.tflite", GivenOptions(".tflite", {}), contract())
    remedy = caught.value.finding.remedy
    assert remedy is not None
    assert "paired in order" in remedy.text
    (proposed,) = remedy.change.values()
    assert proposed.keys() == NAMES.keys()
    assert sorted(proposed.values()) == sorted(NAMES.values())


def test_what_a_tflite_model_does_not_take_is_an_error(tmp_path):
    save_tflite(tmp_path / "model.tflite")
    session = open_given(tmp_path / "model.tflite", GivenOptions(".tflite", NAMES), contract())
    with pytest.raises(RunFailedError, match=r"\[2, 3\]; the file has \[-1, 4\]"):
        session.run({**FEEDS, "x": FEEDS["x"][:, :3]})
    with pytest.raises(RunFailedError, match="float64; the file has float32"):
        session.run({**FEEDS, "x": FEEDS["x"].astype(np.float64)})
    assert session.run({name: each[:1] for name, each in FEEDS.items()})["out"].shape == (1, 4)


def recipe(folder, axes=None, /, **targets):
    tensors = {"dtype": "float32", "shape": ["batch", 4]}
    save_onnx(folder / "original.onnx")
    text = json.dumps(
        {
            "schema": 1,
            "name": "given",
            "model": {"onnx": "original.onnx"},
            "axes": axes or {"batch": {"min": 1, "typical": 2, "max": 4}},
            "inputs": [{"name": name, **tensors} for name in ("x", "y")],
            "outputs": [{"name": name, **tensors} for name in ("out", "total")],
            "targets": targets,
        }
    )
    (folder / "recipe.yaml").write_text(text)
    return folder / "recipe.yaml"


def run(path, home):
    options = RunOptions(recipe=path, home=Home(home), toolchain="host", track=False)
    return run_recipe(options)


@pytest.mark.thorough
def test_names_that_confuse_two_outputs_are_put_right_by_the_remedy(tmp_path):
    save_package(tmp_path / "theirs.mlpackage")
    axes = {"batch": {"min": 2, "typical": 2, "max": 2}}

    def audited(**names):
        theirs = {"runtime": "given", "file": "theirs.mlpackage", "names": names}
        (target,) = run(recipe(tmp_path, axes, theirs=theirs), tmp_path / "home").record.targets
        return target

    wrong = audited(out="total", total="out")
    (swapped,) = [each for each in wrong.verifications[0].findings if each.code == "C208"]
    assert swapped.remedy.change == {"targets.theirs.names": {"out": "out", "total": "total"}}
    right = audited(**swapped.remedy.change["targets.theirs.names"])
    assert right.status == "verified"  # the package has no weights: its folder for them is empty


def test_a_run_verifies_what_it_is_given_and_names_swapped_inputs(tmp_path):
    save_tflite(tmp_path / "right.tflite")
    save_tflite(tmp_path / "wrong.tflite", swapped=True)
    target = {"runtime": "given", "names": NAMES}
    path = recipe(
        tmp_path, right={**target, "file": "right.tflite"}, wrong={**target, "file": "wrong.tflite"}
    )
    record = run(path, tmp_path / "home").record
    right, wrong = record.targets
    assert right.verifications[0].status == "verified"
    assert wrong.verifications[0].status == "failed"
    assert {"C110"} <= {finding.code for finding in wrong.verifications[0].findings}
    # Another file under the same name is another build.
    save_tflite(tmp_path / "wrong.tflite")
    again = run(path, tmp_path / "home").record
    assert [each.verifications[0].status for each in again.targets] == ["verified", "verified"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"file": "model.pb"}, r"known formats: \.tflite"),
        ({"file": "a.tflite", "precision": "float16"}, "has its own precision"),
        ({}, "file"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(given, says):
    with pytest.raises(ValueError, match=says):
        target_models()["given"].model_validate({"runtime": "given", **given})


def test_an_ir_without_its_weights_is_missing_a_file(tmp_path):
    (tmp_path / "a.xml").write_text("<net/>")
    path = recipe(tmp_path, theirs={"runtime": "given", "file": "a.xml"})
    with pytest.raises(Exception, match=r"found no file 'a\.bin'"):
        load_recipe(path)
