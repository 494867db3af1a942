"""Makes a run's models in MLflow loadable by MLflow, and finds the one that an alias refers to."""

from pathlib import PurePosixPath
from typing import Any

from convkit.record.model import RunRecord
from convkit.track.artifacts import Placed
from convkit.track.flavors import FILE_NAME, description, loadable


def describe_models(
    client: Any,  # noqa: ANN401 - MLflow's client
    run_id: str,
    record: RunRecord,
    placed: list[Placed],
    provenance: str,
) -> None:
    """Write MLflow's description beside each copied ONNX file."""
    import mlflow  # noqa: PLC0415 - takes over a second

    copied = {one.target for one in placed if one.how == "copied"}
    for target in record.targets:
        file = loadable(target)
        if file is not None and target.name in copied:
            text = description(record, target, run_id, mlflow.__version__, provenance)
            client.log_text(run_id, text, str(PurePosixPath(file).parent / FILE_NAME))


def loadable_folder(client: Any, run_id: str, record: RunRecord) -> str | None:  # noqa: ANN401 - MLflow's client
    """Return the folder of the first target that MLflow can load, inside a run's artifacts."""
    for target in record.targets:
        if (file := loadable(target)) is None:
            continue
        folder = PurePosixPath(file).parent
        found = {each.path for each in client.list_artifacts(run_id, str(folder))}
        if str(folder / FILE_NAME) in found:
            return str(folder)
    return None
