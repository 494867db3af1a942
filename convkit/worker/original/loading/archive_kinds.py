"""Tells the archives that torch writes apart, without loading them."""

import zipfile
from pathlib import Path
from typing import Literal

from convkit.worker.job_context import StageFailedError

ArchiveKind = Literal["torchscript", "exported", "saved", "unknown"]

_WHAT: dict[ArchiveKind, str] = {
    "torchscript": "it is a TorchScript archive: write model.torchscript, or name it .pt",
    "exported": "it is an archive of torch.export: write model.exported, or name it .pt2",
    "saved": (
        "it is what torch.save writes (weights, or a pickled module): write model.factory, with a"
        " function that builds the module and loads the weights"
    ),
    "unknown": "it is damaged, or in another format",
}


def archive_kind(path: Path) -> ArchiveKind:
    """Return what wrote an archive, by the names of its members."""
    try:
        with zipfile.ZipFile(path) as archive:
            # Every member is below one folder, which is named after the file.
            names = {name.partition("/")[2] for name in archive.namelist()}
            flat = set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return "unknown"
    if "constants.pkl" in names:
        return "torchscript"
    # The second is how releases before 2.8 wrote them.
    if "archive_format" in names or {"serialized_exported_program.json"} & (names | flat):
        return "exported"
    return "saved" if "data.pkl" in names else "unknown"


def unreadable(key: ArchiveKind, path: Path, error: Exception | None) -> StageFailedError:
    """Return the error for a file that is not the archive that `model.<key>` promises."""
    found = archive_kind(path)
    what = _WHAT["unknown" if found == key else found]
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
    text = f"model.{key}: {path.name} cannot be loaded: {what}"
    if lines and found in (key, "unknown"):
        text += f"; torch says: {lines[0].partition('. ')[0]}"
    return StageFailedError(text)
