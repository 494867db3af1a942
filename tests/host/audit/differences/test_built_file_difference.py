"""`convkit diff` names what differs inside built models."""

import shutil
from pathlib import Path

import pytest
from past_runs import MODEL, make_run
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.differences import built_file_difference
from convkit.host.audit.differences.built_file_difference import (
    Comparing,
    describe_built,
    difference_text,
)
from convkit.host.audit.differences.run_difference import compare_runs
from convkit.host.home import Home
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import ToolchainError
from convkit.protocol.messages import Difference

MODEL_FILE = "models/ort/model.onnx"


def test_a_node_and_a_weight_are_named(tmp_path: Path, finished: RunOutcome) -> None:
    home = tmp_path / "home"
    other = make_run(home, MODEL.replace("tanh", "sigmoid"))
    comparing = Comparing(Home(home), "host")
    built = {
        file.path: file for file in compare_runs(finished.folder, other.folder, comparing).built
    }
    assert built[MODEL_FILE].likeness == "DIFFERENT"
    assert any("Tanh(" in line and "Sigmoid(" in line for line in built[MODEL_FILE].description)
    seeded = make_run(home, model={"factory": {"call": "model.py:build", "seed": 4}})
    built = {
        file.path: file for file in compare_runs(finished.folder, seeded.folder, comparing).built
    }
    weights = built[MODEL_FILE]
    assert any(
        line.startswith("initializer scale.") and "elements differ" in line
        for line in weights.description
    )
    arguments = [
        "diff",
        str(finished.folder),
        str(seeded.folder),
        "--home",
        str(home),
        "--toolchain",
        "host",
    ]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert "initializer scale." in done.stdout
    assert "comparing model.onnx" in done.stderr


def test_bytes_are_told_where_there_is_no_environment_with_a_stand_in_for_uv(
    tmp_path: Path, finished: RunOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise ToolchainError("no network")

    other = Path(shutil.copytree(finished.folder, tmp_path / "other"))
    model = (other / MODEL_FILE).read_bytes()
    (other / MODEL_FILE).unlink()
    (other / MODEL_FILE).write_bytes(model + b"more")
    monkeypatch.setattr(built_file_difference, "compare_artifacts", offline)
    found = describe_built(finished.folder, other, [MODEL_FILE], Comparing(Home(tmp_path)))[
        MODEL_FILE
    ]
    assert found.likeness is None
    assert "+4 bytes" in found.lines[0]
    assert found.lines[-1] == "only bytes were compared: no network"
    assert len(describe_built(finished.folder, other, [MODEL_FILE], None)[MODEL_FILE].lines) == 2


def test_a_file_that_only_one_run_has(tmp_path: Path, finished: RunOutcome) -> None:
    other = Path(shutil.copytree(finished.folder, tmp_path / "other"))
    (other / "models/ort/operators.json").unlink()
    (other / "models/ort/extra.txt").write_text("x")
    names = ["models/ort/operators.json", "models/ort/extra.txt", "models/gone/model.onnx"]
    found = describe_built(finished.folder, other, names, Comparing(Home(tmp_path), "host"))
    assert [found[name].likeness for name in names] == ["MISSING", "EXTRA", None]
    assert found[names[0]].lines == ("only the first run has it",)
    assert found[names[2]].lines == ()


def test_a_package_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mil_programs import mb, mil_program, save_program

    for name, alpha in (("a", 0.25), ("b", 0.5)):
        folder = tmp_path / name / "models" / "phone"
        folder.mkdir(parents=True)
        program = mil_program(
            lambda x, alpha=alpha: mb.leaky_relu(x=x, alpha=alpha, name="y"),
            {"x": ((2, 3), "fp32")},
        )
        save_program(program, folder / "model.mlpackage")
    inside = "models/phone/model.mlpackage"
    names = [f"{inside}/Data/com.apple.CoreML/model.mlmodel", f"{inside}/Manifest.json"]
    found = describe_built(
        tmp_path / "a", tmp_path / "b", names, Comparing(Home(tmp_path / "home"), "host")
    )
    assert any("0.25 -> 0.5" in line for line in found[names[0]].lines)
    assert found[names[1]].lines == (f"different content (DIFFERENT); see {names[0]}",)


def test_differences_as_lines() -> None:
    assert difference_text(Difference("more", "", detail="3 more")) == "3 more"
    assert (
        difference_text(Difference("node", "n", "", "Add(a, b) -> c"))
        == "node n: (absent) -> Add(a, b) -> c"
    )
    assert (
        difference_text(Difference("file", "", "1 bytes", "2 bytes", "why"))
        == "file: 1 bytes -> 2 bytes (why)"
    )


def test_a_tensor_is_named_if_only_the_weights_file_changed(tmp_path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folders = []
    for name, value in (("first", 1.0), ("second", 2.0)):
        folder = tmp_path / name
        (folder / "models" / "ort").mkdir(parents=True)
        weight = numpy_helper.from_array(np.full((64, 64), value, np.float32), "scale.weight")
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "scale.weight"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
            [weight],
        )
        onnx.save_model(
            helper.make_model(graph),
            folder / MODEL_FILE,
            save_as_external_data=True,
            location="model.onnx.data",
        )
        folders.append(folder)
    assert (folders[0] / MODEL_FILE).read_bytes() == (folders[1] / MODEL_FILE).read_bytes()
    weights = f"{MODEL_FILE}.data"
    told = describe_built(*folders, [weights], Comparing(Home(tmp_path / "home"), "host"))
    assert any(line.startswith("initializer scale.weight") for line in told[weights].lines)
