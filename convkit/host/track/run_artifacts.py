"""A run's files in MLflow: copies, or large models by path and digest."""

import dataclasses
import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.store.durable_files import copy_file
from convkit.protocol.built_model_origin import ORIGIN_FILE
from convkit.protocol.errors import TrackingError

RUN_FILES = ("recipe.yaml", "result.json", "report.html", "provenance.json")
RUN_FOLDERS = ("logs", "locks")
PLACEMENTS = "models.json"

# Models up to this size are uploaded. Larger ones are not: uploading several GiB takes longer than
# verifying the model.
SMALL_MODEL_BYTES = 16 * 2**20
# The same for a folder on this machine, where a copy is fast, or shares its blocks with the
# original (a reflink). Never a hard link: an edit of one file would change the other.
LARGE_MODEL_BYTES = 512 * 2**20


@dataclasses.dataclass(frozen=True)
class Placed:
    """How a target's files reached MLflow, `copied` or `external`, with each file's digest."""

    target: str
    how: str
    path: str
    digests: dict[str, str]


def log_run_files(client: Any, run_id: str, folder: Path) -> None:  # noqa: ANN401 - MLflow's client
    """Copy the run's result files, logs and tool versions."""
    for name in RUN_FILES:
        if (folder / name).is_file():
            client.log_artifact(run_id, str(folder / name))
    for name in RUN_FOLDERS:
        if (folder / name).is_dir():
            client.log_artifacts(run_id, str(folder / name), name)


def place_models(
    client: Any,  # noqa: ANN401 - MLflow's client
    run_id: str,
    artifact_folder: Path | None,
    record: RunRecord,
    folder: Path,
) -> list[Placed]:
    """Add every target's files to the run's artifacts.

    `artifact_folder` is the run's artifact folder if it is on this machine, else None.
    """
    return [
        _place(client, run_id, artifact_folder, target, folder)
        for target in record.targets
        if _present(target, folder)
    ]


def _present(target: TargetReport, folder: Path) -> list[str]:
    """Return the target's files that still exist, and the file that says which run built them."""
    for file in target.files:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts:
            raise TrackingError(f"{folder / 'result.json'}: {file!r} is outside the run's folder")
    files = [file for file in target.files if (folder / file).is_file()]
    origin = f"models/{target.name}/{ORIGIN_FILE}"
    return [*files, origin] if files and (folder / origin).is_file() else files


def _place(
    client: Any,  # noqa: ANN401 - MLflow's client
    run_id: str,
    artifact_folder: Path | None,
    target: TargetReport,
    folder: Path,
) -> Placed:
    files = _present(target, folder)
    place = str(folder / PurePosixPath(files[0]).parent)
    size = sum((folder / file).stat().st_size for file in files)
    digests = {file: _digest(folder / file) for file in files}
    if (
        artifact_folder is not None
        and size <= LARGE_MODEL_BYTES
        and _copy(files, folder, artifact_folder)
    ):
        return Placed(target.name, "copied", place, digests)
    if artifact_folder is None and size <= SMALL_MODEL_BYTES:
        for file in files:
            client.log_artifact(run_id, str(folder / file), str(PurePosixPath(file).parent))
        return Placed(target.name, "copied", place, digests)
    return Placed(target.name, "external", place, digests)


def _copy(files: list[str], folder: Path, artifact_folder: Path) -> bool:
    """Copy the files into the artifact folder, replacing those of an earlier logging. Return False
    if there is not enough space, in which case none are left there.
    """
    try:
        for file in files:
            destination = artifact_folder / file
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.unlink(missing_ok=True)
            copy_file(folder / file, destination)
    except OSError:
        for file in files:
            (artifact_folder / file).unlink(missing_ok=True)
        return False
    return True


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def local_folder(artifact_uri: str) -> Path | None:
    """Return an artifact URI's folder on this machine; None for any other kind of storage."""
    parts = urlsplit(artifact_uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return Path(artifact_uri) if artifact_uri.startswith("/") else None


def log_placements(client: Any, run_id: str, placed: list[Placed]) -> None:  # noqa: ANN401 - MLflow's client
    """Write where each target's files are, and their digests, as `models.json`."""
    if placed:
        places = {
            one.target: {"how": one.how, "path": one.path, "digests": one.digests} for one in placed
        }
        client.log_text(run_id, json.dumps(places, indent=2), PLACEMENTS)
