"""MLflow itself loads an accepted run's model: the very bytes that were verified."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from past_runs import make_run

from convkit.host.home import Home
from convkit.host.nightly.accept_command import accept_run
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.run_options import RunOutcome
from convkit.host.track.registered_models import registered_source, source_in
from convkit.host.track.run_tracker import prepare
from convkit.protocol.built_model_origin import checked_origin
from convkit.protocol.errors import RecipeError, TrackingError, UsageError


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    home = tmp_path_factory.mktemp("accepted") / "home"
    outcome = make_run(home, track=True)
    assert accept_run(outcome.folder, Home(home)).untracked is None
    return outcome


@pytest.fixture
def mlflow(accepted: RunOutcome, monkeypatch: pytest.MonkeyPatch):
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{accepted.folder.parents[2]}/mlflow.db")
    yield mlflow
    # MLflow also sets MLFLOW_TRACKING_URI, and `get_tracking_uri` would have named a database in
    # the current folder: later runs would log there.
    mlflow.set_tracking_uri(None)
    assert "MLFLOW_TRACKING_URI" not in os.environ


# MLflow warns about its own type hints when it is imported.
@pytest.mark.filterwarnings("ignore:.*type hint.*:UserWarning")
def test_pyfunc_and_onnx_load_the_baseline_by_its_alias(accepted: RunOutcome, mlflow) -> None:
    import onnxruntime

    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    file = accepted.folder / "models/ort/model.onnx"
    expected = onnxruntime.InferenceSession(file).run(None, {"x": rows})[0]
    loaded = mlflow.pyfunc.load_model("models:/small@baseline")
    np.testing.assert_array_equal(loaded.predict({"x": rows})["y"], expected)
    assert loaded.metadata.signature.inputs.inputs[0].shape == (-1, 4)
    with pytest.raises(mlflow.exceptions.MlflowException):
        loaded.predict({"x": rows.astype(np.float64).astype(str)})
    digest = hashlib.sha256((accepted.folder / "provenance.json").read_bytes()).hexdigest()
    assert loaded.metadata.metadata["convkit_run"] == accepted.record.id
    assert loaded.metadata.metadata["convkit_provenance"] == f"sha256:{digest}"
    graph = mlflow.onnx.load_model("models:/small@baseline")
    assert [each.name for each in graph.graph.input] == ["x"]
    kept = Path(mlflow.artifacts.download_artifacts("models:/small@baseline")) / "model.onnx"
    assert kept.read_bytes() == file.read_bytes()
    origin = checked_origin(kept)
    assert origin is not None
    assert (origin.run, origin.provenance) == (accepted.record.id, digest)


def test_the_tags_identify_what_was_accepted(accepted: RunOutcome, tmp_path: Path) -> None:
    folder = accepted.folder
    client = prepare(None, folder.parents[2]).client
    version = client.get_model_version_by_alias("small", "baseline")
    run = client.get_run(version.run_id)
    digest = hashlib.sha256((folder / "provenance.json").read_bytes()).hexdigest()
    model = hashlib.sha256((folder / "models/ort/model.onnx").read_bytes()).hexdigest()
    for tags in (version.tags, run.data.tags):
        assert tags["convkit.provenance"] == f"sha256:{digest}"
        assert len(tags["convkit.commit"]) == 40
    kept = client.download_artifacts(run.info.run_id, "models.json", str(tmp_path))
    digests = json.loads(Path(kept).read_text())["ort"]["digests"]
    assert digests["models/ort/model.onnx"] == f"sha256:{model}"
    (source,) = run.inputs.model_inputs
    assert client.get_logged_model(source.model_id).tags["convkit.digest"]
    assert {each.dataset.name for each in run.inputs.dataset_inputs} >= {"small cases"}


RECIPE = """\
schema: 1
name: again
model: {model}
tools: {{python: "3.11", onnxruntime: "==1.31.*"}}
inputs: [{{name: x, dtype: float32, shape: [2, 4]}}]
outputs: [{{name: y, dtype: float32, shape: [2, 3]}}]
verify: {{tolerance: {{max_abs: 1.0e-4}}}}
targets: {{ort: {{runtime: onnxruntime, precision: float32}}}}
"""


def registered(model: str, folder: Path) -> str | None:
    file = folder / "again.yaml"
    file.write_text(RECIPE.format(model=model))
    registered_source.cache_clear()
    return load_recipe(file).recipe.model.onnx


def test_a_recipe_takes_its_model_from_the_registry(
    accepted: RunOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVKIT_HOME", str(accepted.folder.parents[2]))
    built = (accepted.folder / "models/ort/model.onnx").read_bytes()
    for address in ("models:/small@baseline", "models:/small/1"):
        file = registered(address, tmp_path)
        assert file is not None
        assert Path(file).read_bytes() == built
    with pytest.raises(TrackingError, match="nightly"):
        registered("models:/small@nightly", tmp_path)
    with pytest.raises(RecipeError, match=r"models:/NAME@ALIAS or models:/NAME/VERSION"):
        registered("models:/small", tmp_path)
    monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "empty"))
    with pytest.raises(UsageError, match=r"no MLflow database at .*empty"):
        registered("models:/small@baseline", tmp_path)
    assert not (tmp_path / "empty").exists()


def test_a_registered_model_of_another_kind_is_refused_with_a_way_out(tmp_path: Path) -> None:
    flavors = {"pytorch": {}, "python_function": {}}
    (tmp_path / "MLmodel").write_text(json.dumps({"flavors": flavors}))
    with pytest.raises(UsageError, match=r"this one has pytorch\. Load it in a factory"):
        source_in(tmp_path, "models:/net@best")
    (tmp_path / "MLmodel").write_text(json.dumps({"flavors": {"transformers": {}}}))
    assert source_in(tmp_path, "models:/net@best") == {"path": str(tmp_path / "model")}
    (tmp_path / "MLmodel").write_text("[")
    with pytest.raises(TrackingError, match="no readable MLmodel"):
        source_in(tmp_path, "models:/net@best")
