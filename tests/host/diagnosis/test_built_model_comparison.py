"""Comparing two built artifacts from the host: by digest, or in a real worker here."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from convkit.host.diagnosis import built_model_comparison
from convkit.host.diagnosis.built_model_comparison import compare_artifacts, worst_likeness
from convkit.host.home import Home
from convkit.protocol.errors import ModelFileError, ToolchainError
from convkit.protocol.messages import CompareResult, FileComparison


def artifact(folder: Path, weight: float = 1.0, doc: str = "") -> Path:
    node = onnx.helper.make_node("Mul", ["x", "w"], ["y"], "scale", doc_string=doc)
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in "xy"
    ]
    initializer = numpy_helper.from_array(np.array([weight, 2, 4], np.float32), "w")
    graph = onnx.helper.make_graph([node], "g", [values[0]], [values[1]], [initializer])
    folder.mkdir()
    onnx.save(onnx.helper.make_model(graph), folder / "model.onnx")
    (folder / "contract.json").write_text("{}")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def no_worker(*_: object, **__: object) -> None:
    raise AssertionError("a worker was started")


def test_equal_bytes_need_no_worker(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_model_comparison, "run_worker", no_worker)
    result = compare_artifacts(artifact(tmp_path / "a"), artifact(tmp_path / "b"), home, "isolated")
    assert result.files == tuple(
        FileComparison(name, "BIT_IDENTICAL") for name in ("contract.json", "model.onnx")
    )
    assert worst_likeness(result) == "BIT_IDENTICAL"
    single = compare_artifacts(
        tmp_path / "a" / "contract.json", tmp_path / "b" / "contract.json", home, "isolated"
    )
    assert single.files == (FileComparison("contract.json", "BIT_IDENTICAL"),)


def test_a_worker_tells_how_models_differ(tmp_path: Path, home: Home) -> None:
    first = artifact(tmp_path / "first")
    messages: list[str] = []
    noted = compare_artifacts(
        first, artifact(tmp_path / "noted", doc="x"), home, "host", progress=messages.append
    )
    assert worst_likeness(noted) == "CANONICAL_IDENTICAL"
    assert messages == ["comparing contract.json", "comparing model.onnx"]
    nudged = artifact(tmp_path / "nudged", 1 + 2e-6)
    assert worst_likeness(compare_artifacts(first, nudged, home, "host")) == "STRUCTURAL"
    beyond = compare_artifacts(first, nudged, home, "host", epsilon=1e-7)
    assert worst_likeness(beyond) == "DIFFERENT"
    (file,) = (file for file in beyond.files if file.differences)
    assert (file.name, file.differences[0].place) == ("model.onnx", "w")


def test_a_single_graph_is_compared_with_the_weights_beside_it(tmp_path: Path, home: Home) -> None:
    files = []
    for name, weight in (("first", 1.0), ("second", 2.0)):
        file = artifact(tmp_path / name, weight) / "model.onnx"
        onnx.save(
            onnx.load(file), file, save_as_external_data=True, location="weights", size_threshold=0
        )
        files.append(file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert worst_likeness(compare_artifacts(*files, home, "host")) == "DIFFERENT"
    assert worst_likeness(compare_artifacts(files[0], files[0], home, "host")) == "BIT_IDENTICAL"


def test_a_nan_travels_to_the_host(tmp_path: Path, home: Home) -> None:
    result = compare_artifacts(
        artifact(tmp_path / "a"), artifact(tmp_path / "b", np.nan), home, "host"
    )
    (difference,) = next(file.differences for file in result.files if file.name == "model.onnx")
    assert (difference.first, difference.second) == ("1", "nan")
    assert worst_likeness(result) == "DIFFERENT"


def test_a_package_is_compared_by_its_program(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mil_programs import mb, mil_program, save_program

    for name, alpha in (("first", 0.25), ("second", 0.5)):
        program = mil_program(
            lambda a, alpha=alpha: mb.leaky_relu(x=a, alpha=alpha, name="y"),
            {"a": ((2, 3), "fp32")},
        )
        (tmp_path / name).mkdir()
        save_program(program, tmp_path / name / "model.mlpackage")
    result = compare_artifacts(tmp_path / "first", tmp_path / "second", home, "host")
    (file,) = result.files
    assert (file.name, file.likeness) == ("model.mlpackage", "DIFFERENT")
    assert [(each.first, each.second) for each in file.differences] == [("0.25", "0.5")]
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    monkeypatch.setattr(built_model_comparison, "run_worker", no_worker)
    copied = compare_artifacts(tmp_path / "first", tmp_path / "copy", home, "isolated")
    assert copied.files == (FileComparison("model.mlpackage", "BIT_IDENTICAL"),)


def test_what_is_not_there_is_an_error(tmp_path: Path, home: Home) -> None:
    first = artifact(tmp_path / "first")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFileError, match="no such file or folder"):
        compare_artifacts(first, tmp_path / "absent", home, "host")
    with pytest.raises(ModelFileError, match="the folder is empty"):
        compare_artifacts(tmp_path / "empty", first, home, "host")
    with pytest.raises(ModelFileError, match="one is a file and one a folder"):
        compare_artifacts(first / "model.onnx", first, home, "host")


def test_an_environment_that_cannot_be_made_is_an_error_with_a_stand_in_for_uv(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object) -> None:
        raise ToolchainError("no network")

    monkeypatch.setattr(built_model_comparison, "resolve", offline)
    with pytest.raises(ToolchainError, match="no network"):
        compare_artifacts(artifact(tmp_path / "a"), artifact(tmp_path / "b", 2.0), home, "isolated")


@pytest.mark.parametrize(
    ("likenesses", "worst"),
    [
        ((), "DIFFERENT"),  # nothing was compared
        (("BIT_IDENTICAL",), "BIT_IDENTICAL"),
        (("STRUCTURAL", "BIT_IDENTICAL", "CANONICAL_IDENTICAL"), "STRUCTURAL"),
        (("CANONICAL_IDENTICAL", "DIFFERENT"), "DIFFERENT"),
        (("BIT_IDENTICAL", "MISSING"), "DIFFERENT"),
        (("BIT_IDENTICAL", "EXTRA"), "DIFFERENT"),
    ],
)
def test_the_worst_likeness(likenesses: tuple, worst: str) -> None:
    assert (
        worst_likeness(CompareResult(tuple(FileComparison("f", each) for each in likenesses)))
        == worst
    )
