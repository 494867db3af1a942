"""Finds the subject of an audit: a run, or the run that produced given bytes."""

import dataclasses
import re
from pathlib import Path

from convkit.host.audit.past_runs.run_folders import digests_of, is_run, run_folders
from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.home import Home
from convkit.host.record.provenance import FileDigest, origin_digests
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_selection import find_run
from convkit.host.store.digests import digest_file
from convkit.protocol.errors import ConvkitError, UnknownBytesError, UsageError

# Files that hold recipes, by their names.
_RECIPES = frozenset({".yaml", ".yml"})
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{8,64})", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """The bytes that an audit was asked about.

    `asked` is the name they were given by; `files` are the paths in the audited run's folder with
    this content, `target` is the target they belong to, and `runs` are all runs that have them,
    newest first, as recipe/id.
    """

    asked: str
    files: tuple[str, ...]
    target: str | None
    runs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LocatedRun:
    """The folder of the run to audit, and the artifact that led to it, if any."""

    folder: Path
    artifact: Artifact | None = None


def locate(name: str, home: Home) -> LocatedRun:
    """Return the run that a command line names, or the newest run that produced the bytes it names.

    A run: its folder, recipe/id, an id, `latest`, a recipe's name. Bytes: a file, a folder of
    files, or a SHA-256 (of a file or of an artifact, at least its first 8 digits). Raises
    UsageError if there is no such thing, and UnknownBytesError if no run produced the bytes.
    """
    given = Path(name)
    if is_run(given):
        return LocatedRun(given)
    if given.name in ("result.json", "provenance.json") and is_run(given.absolute().parent):
        return LocatedRun(given.absolute().parent)
    folders = run_folders(home)
    if named := _named(name, folders):
        return LocatedRun(named)
    if given.exists():
        _refuse_home(given)
        return _by_bytes(name, digests_of(given), _run_around(given), folders)
    if (match := _DIGEST.fullmatch(name)) is not None:
        return _by_digest(name, match[1].lower(), folders)
    return LocatedRun(find_run(name, home))


def _named(name: str, folders: list[Path]) -> Path | None:
    for folder in folders:
        if name in (folder.name, f"{folder.parent.name}/{folder.name}"):
            return folder
    if any(folder.parent.name == name for folder in folders):  # a recipe's name: its last run
        return next(folder for folder in folders if folder.parent.name == name)
    return folders[0] if name == "latest" and folders else None


def _refuse_home(path: Path) -> None:
    """Reject a folder that contains runs: it is not an artifact."""
    places = ("*/result.json", "*/*/result.json", "*/*/*/result.json")
    inside = [file for place in places for file in path.glob(place)] if path.is_dir() else []
    if inside:
        raise UsageError(
            f"{path}: a folder of runs; name one of them, such as {max(inside).parent}"
        )


def _run_around(path: Path) -> Path | None:
    """Return the run folder that contains a path."""
    return next((folder for folder in path.resolve().parents if is_run(folder)), None)


def _by_bytes(name: str, digests: set[str], around: Path | None, folders: list[Path]) -> LocatedRun:
    """Return the newest run with all these files. The run that contains them takes precedence,
    whether they are intact or not.
    """
    made = [
        folder
        for folder in folders
        if digests <= {entry.sha256 for entry in _known_files(folder).values()}
    ]
    if around is not None and around not in made:
        made = [around, *made]
    elif around is not None:
        made = [around, *(folder for folder in made if folder != around)]
    if not made:
        if Path(name).suffix in _RECIPES:
            raise UsageError(
                f"{name}: a recipe cannot be audited; name a run of it, or a file that it built"
            )
        shown = ", ".join(sorted(digest[:12] for digest in digests)[:3])
        raise UnknownBytesError(
            f"{name}: no run in this home produced these bytes (sha256 {shown}). They have changed"
            " since, or were built elsewhere: name that home with --home, or name a run."
        )
    return _located(name, made, digests)


def _by_digest(name: str, digest: str, folders: list[Path]) -> LocatedRun:
    """Return the newest run with a file or stage artifact that has this digest."""
    made = []
    digests: set[str] = set()
    for folder in folders:
        found = {
            entry.sha256
            for entry in recorded_files(folder).values()
            if entry.sha256.startswith(digest)
        }
        if found or any(artifact.startswith(digest) for artifact in _artifacts(folder)):
            made.append(folder)
            digests |= found
    if not made:
        raise UnknownBytesError(
            f"{name}: no run in this home has a file or an artifact with this digest"
        )
    return _located(name, made, digests)


def _located(name: str, made: list[Path], digests: set[str]) -> LocatedRun:
    files = tuple(path for path, entry in _known_files(made[0]).items() if entry.sha256 in digests)
    targets = {path.split("/")[1] for path in files if path.startswith("models/")}
    target = targets.pop() if len(targets) == 1 else None
    runs = tuple(f"{folder.parent.name}/{folder.name}" for folder in made)
    return LocatedRun(made[0], Artifact(name, files, target, runs))


def recorded_files(folder: Path) -> dict[str, FileDigest]:
    """Return a run's files as listed in its provenance; without one, its current models."""
    provenance, _ = readable_provenance(folder)
    if provenance is not None:
        return provenance.files
    models = [path for path in sorted((folder / "models").rglob("*")) if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): FileDigest(digest_file(path), path.stat().st_size)
        for path in models
    }


def _known_files(folder: Path) -> dict[str, FileDigest]:
    """Return a run's files, `origin.json` included: by it, a folder of files is that run's only."""
    provenance, _ = readable_provenance(folder)
    origins = origin_digests(folder, provenance) if provenance is not None else {}
    return recorded_files(folder) | origins


def _artifacts(folder: Path) -> list[str]:
    provenance, _ = readable_provenance(folder)
    if provenance is not None:
        return [stage.artifact for stage in provenance.stages.values() if stage.artifact]
    try:
        return [stage.artifact for stage in read_record(folder).stages if stage.artifact]
    except ConvkitError:
        return []  # a damaged run has no readable artifacts; `convkit runs` lists it as damaged
