"""MLflow's history of nightly runs: synthetic run records in a real MLflow on sqlite."""

from pathlib import Path

import pytest
from synthetic import Simulation

from convkit.host.home import Home
from convkit.host.nightly.nightly_record import RecipeResult


@pytest.fixture(scope="module")
def fourth_night(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """Return a simulation that logs to MLflow: an accepted run, and three nightly runs since."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("simulation") / "tracked"
        made = Simulation.install(folder, patch, track=True)
        assert made.night().status == "green"
        assert made.accept().untracked is None
        for _ in range(3):
            assert made.night().faults == ()
    return made


@pytest.fixture
def tracked(
    fourth_night: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Simulation:
    return fourth_night.copied(tmp_path / "tracked", monkeypatch)


def history_faults(result: RecipeResult) -> list[str]:
    return [fault.message for fault in result.faults if fault.kind == "history"]


@pytest.mark.thorough
def test_the_baseline_is_an_alias(tracked: Simulation) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tracked.home.root}/mlflow.db")
    version = client.get_model_version_by_alias("small", "baseline")
    first = min(tracked.home.runs_of("small").glob("*/result.json")).parent
    assert version.tags["convkit.run"] == first.name


def test_a_deleted_history_is_a_fault_until_a_run_is_accepted(tracked: Simulation) -> None:
    tracked.move_home()
    for file in tracked.home.root.glob("mlflow.db*"):
        file.unlink()
    for logged in (3, 4):  # the run that is logged anew does not mend it
        (message,) = history_faults(tracked.night())
        assert f"3 of {logged} nightly runs that were logged are gone" in message
    tracked.accept("MLflow's disk broke")
    assert tracked.night().faults == ()


@pytest.mark.thorough
def test_a_deleted_experiment_is_a_fault(tracked: Simulation) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tracked.home.root}/mlflow.db")
    for entry in client.search_runs(["1"]):
        client.delete_run(entry.info.run_id)
    (message,) = history_faults(tracked.night())
    assert "3 of 3 nightly runs that were logged are gone" in message


def test_a_tracking_store_that_cannot_be_read_is_a_fault(tracked: Simulation) -> None:
    tracked.move_home()
    (tracked.home.root / "mlflow.db").write_bytes(b"no database")
    (message,) = history_faults(tracked.night())
    assert message.startswith("MLflow's history cannot be read")


@pytest.mark.thorough
def test_mlflow_remembers_a_baseline_that_was_deleted_with_its_home(tracked: Simulation) -> None:
    tracked.baseline_file.unlink()
    for file in tracked.home.runs_of("small").glob("*.accepted.json"):
        file.unlink()
    (fault,) = [each for each in tracked.night().faults if each.kind == "baseline"]
    assert "MLflow's alias baseline of small is run 20260101-021700-0001" in fault.message


@pytest.mark.thorough
def test_mlflow_alone_is_history_enough(tracked: Simulation) -> None:
    """Nightly runs whose files are gone from the home still count by what MLflow has of them."""
    import dataclasses
    import shutil

    tracked.changes["ort"] = lambda target: dataclasses.replace(target, size_bytes=800_000)
    for _ in range(5):
        assert tracked.night().status == "green"
    shutil.rmtree(tracked.home.root / "nights")
    tracked.changes.clear()
    (fault,) = tracked.night().faults
    assert fault.message.startswith("ort size_bytes 800000 -> 1000000 (+25 %) against the median")
    assert Home(tracked.home.root) == tracked.home
