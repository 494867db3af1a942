"""Detects modifications of a run: checks its folder against its provenance, and the store against
its digests.
"""

import dataclasses
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from convkit.host.home import home_around
from convkit.host.record.provenance import (
    FILE_NAME,
    FileDigest,
    Provenance,
    origin_digests,
    read_provenance,
)
from convkit.host.record.run_record import RunRecord
from convkit.host.store.digests import digest_file, digest_json
from convkit.host.store.store import Store
from convkit.host.store.store_verification import record_damage
from convkit.protocol.errors import ProvenanceError, StoreError

# intact: every file was digested again and is unchanged · broken: a file has changed · unproven: no
# damage was found, but some files could not be checked (runs without provenance.json).
IntegrityStatus = Literal["intact", "broken", "unproven"]


@dataclasses.dataclass(frozen=True)
class FileProblem:
    """A file that has changed; `path` is relative to the run's folder or the home (`store/...`)."""

    path: str
    problem: Literal["changed", "missing", "extra", "unreadable"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" + (f" ({self.detail})" if self.detail else "")


@dataclasses.dataclass(frozen=True)
class FolderCheck:
    """The result of digesting a run's folder again.

    `basis` names what it was compared with. `checked` and `size` count the compared files and
    bytes; `unproven` are the files without a recorded digest.
    """

    basis: str
    checked: int = 0
    size: int = 0
    problems: tuple[FileProblem, ...] = ()
    unproven: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class StoreCheck:
    """The result of digesting the store's copy of a run's artifacts again. `absent` are artifacts
    that it no longer has.
    """

    place: str | None
    objects: int = 0
    artifacts: int = 0
    absent: tuple[str, ...] = ()
    problems: tuple[FileProblem, ...] = ()


class Digester:
    """Digests files. Hard links to one file, which earlier releases created, are read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def file(self, path: Path) -> FileDigest:
        """Return a file's digest and size; raises OSError, also if it is not a regular file."""
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a plain file")
        inode = (status.st_dev, status.st_ino)
        if inode not in self._known:
            self._known[inode] = digest_file(path)
        return FileDigest(self._known[inode], status.st_size)


def readable_provenance(folder: Path) -> tuple[Provenance | None, FileProblem | None]:
    """Return a run's provenance, or the problem with it; neither if the file does not exist."""
    if not os.path.lexists(folder / FILE_NAME):
        return None, None
    try:
        return read_provenance(folder), None
    except ProvenanceError as error:
        return None, FileProblem(
            FILE_NAME, "changed", str(error).removeprefix(f"{folder / FILE_NAME}: ")
        )


def check_folder(
    folder: Path,
    record: RunRecord | None,
    provenance: Provenance | None,
    store: Store | None,
    digester: Digester,
) -> FolderCheck:
    """Digest a run's folder again and compare it with its provenance or, without one, with the
    store's manifests.
    """
    present, problems = _walk(folder)
    expected: Mapping[str, FileDigest]
    if provenance is not None:
        present.discard(FILE_NAME)
        expected, basis = provenance.files | origin_digests(folder, provenance), FILE_NAME
        problems += [
            FileProblem(name, "extra", "the run did not write it")
            for name in present - set(expected)
        ]
        unproven: set[str] = set()
    else:
        expected, basis = _manifests(record, store) if record is not None else ({}, "nothing")
        unproven = present - set(expected)
        if record is not None and record.provenance and FILE_NAME not in present:
            problems.append(
                FileProblem(
                    FILE_NAME, "missing", "the run wrote one; without it nothing can be proven"
                )
            )
        problems += _recipe_problem(folder, record, present)
    size = 0
    for name, entry in expected.items():
        problem = (
            _compare(folder / name, name, entry, digester)
            if name in present
            else FileProblem(name, "missing")
        )
        if problem is not None and all(known.path != name for known in problems):
            problems.append(problem)
        size += entry.size
    return FolderCheck(basis, len(expected), size, _sorted(problems), tuple(sorted(unproven)))


def check_store(
    artifacts: Iterable[str], keys: Iterable[str], store: Store | None, digester: Digester
) -> StoreCheck:
    """Digest the store's copies of artifacts and of the records under stage keys again. Missing
    items are not damage: stores get pruned.
    """
    if store is None:
        return StoreCheck(None)
    problems = [
        FileProblem(f"store/stages/{key}.json", "changed", damage)
        for key in dict.fromkeys(keys)
        if (damage := record_damage(store.root, key)) is not None
    ]
    absent: list[str] = []
    objects: set[str] = set()
    names = list(dict.fromkeys(artifacts))
    for artifact in names:
        manifest = f"store/artifacts/{artifact}.json"
        if not (store.root / "artifacts" / f"{artifact}.json").exists():
            absent.append(artifact)
            continue
        entries = _manifest(artifact, store)
        if entries is None:
            problems.append(
                FileProblem(
                    manifest, "changed", "its content does not match the digest in its name"
                )
            )
            continue
        for name, entry in entries.items():
            if entry.sha256 in objects:
                continue
            objects.add(entry.sha256)
            place = store.object(entry.sha256)
            shown = f"store/{place.relative_to(store.root).as_posix()}"
            problem = _compare(place, shown, entry, digester)
            if problem is not None:
                problems.append(
                    dataclasses.replace(problem, detail=f"{name} of artifact {artifact[:12]}")
                )
    return StoreCheck(
        str(store.root), len(objects), len(names) - len(absent), tuple(absent), _sorted(problems)
    )


def store_near(folder: Path, home: Path) -> Store | None:
    """Return the store of the home that contains a run's folder, or else the given home's; None if
    neither has one.
    """
    for place in (home_around(folder) / "store", home / "store"):
        if (place / "artifacts").is_dir() or (place / "objects").is_dir():
            return Store(place)
    return None


def _walk(folder: Path) -> tuple[set[str], list[FileProblem]]:
    """Return the paths of all files in a folder, and the folders that could not be read."""
    found: set[str] = set()
    problems: list[FileProblem] = []

    def note(error: OSError) -> None:
        inside = Path(error.filename or folder).relative_to(folder).as_posix()
        problems.append(FileProblem(inside, "unreadable", error.strerror or str(error)))

    for parent, folders, names in os.walk(folder, onerror=note):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        found |= {(Path(parent) / name).relative_to(folder).as_posix() for name in (*names, *links)}
    return found, problems


def _compare(path: Path, name: str, expected: FileDigest, digester: Digester) -> FileProblem | None:
    try:
        found = digester.file(path)
    except FileNotFoundError:
        return FileProblem(name, "missing")
    except OSError as error:
        return FileProblem(name, "unreadable", error.strerror or str(error))
    if found == expected:
        return None
    if found.size != expected.size:
        return FileProblem(name, "changed", f"{found.size} bytes, were {expected.size}")
    return FileProblem(name, "changed", f"sha256 {found.sha256[:12]}, was {expected.sha256[:12]}")


def _manifests(record: RunRecord, store: Store | None) -> tuple[Mapping[str, FileDigest], str]:
    """Return the store's manifest entries for a run's built files."""
    expected: dict[str, FileDigest] = {}
    for stage in record.stages:
        if (
            store is not None
            and stage.kind == "build"
            and stage.artifact is not None
            and stage.target is not None
        ):
            entries = _manifest(stage.artifact, store) or {}
            expected |= {f"models/{stage.target}/{name}": entry for name, entry in entries.items()}
    return expected, "the store's manifests" if expected else "nothing"


def _manifest(artifact: str, store: Store) -> dict[str, FileDigest] | None:
    """Return an artifact's files; None if the manifest does not match its name."""
    try:
        entries = store.files(artifact)
    except StoreError:
        return None
    if digest_json(entries) != artifact:
        return None
    return {name: FileDigest(entry.sha256, entry.size) for name, entry in entries.items()}


def _recipe_problem(folder: Path, record: RunRecord | None, present: set[str]) -> list[FileProblem]:
    """Compare the recipe with the text in the record, the best available basis."""
    if record is None:
        return []
    if "recipe.yaml" not in present:
        return [FileProblem("recipe.yaml", "missing")]
    try:
        same = (folder / "recipe.yaml").read_bytes() == record.recipe_text.encode()
    except OSError as error:
        return [FileProblem("recipe.yaml", "unreadable", error.strerror or str(error))]
    return [] if same else [FileProblem("recipe.yaml", "changed", "not the text in result.json")]


def _sorted(problems: Iterable[FileProblem]) -> tuple[FileProblem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.path))
