"""The store: files by content, artifacts (named sets of files), and a record for each stage key.

    objects/ab/<sha256>       a file's bytes, read-only artifacts/<digest>.json   name -> size and
    digest of each file; the artifact's digest is that of this mapping views/<digest>/           the
    artifact as a folder of hard links to the objects stages/<key>.json, .log   what a stage gave,
    and what its tool printed latest/<recipe>/<id>.json the last key of a recipe's stage, to say
    what changed since runs/<run key>.json       the run that settled a recipe as it stands
    staging/<pid>-<n>/        work in progress; removed when its process is gone

Everything is written aside and moved into place, so a killed process leaves no half-written object
behind.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from convkit.codec import CodecError, Json, decode
from convkit.errors import StoreError, storage_error
from convkit.findings.model import Finding
from convkit.store.digests import DigestCache, digest_file, digest_json, write_json
from convkit.worker.protocol import StageKind


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """One file of an artifact."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class StageRecord:
    """What a finished stage left. `ingredients` is what its key was made of, `inputs` the artifacts
    it read.
    """

    key: str
    id: str
    kind: StageKind
    ingredients: dict[str, str]
    inputs: dict[str, str]
    artifact: str
    result: Json
    findings: tuple[Finding, ...]
    versions: dict[str, str]
    seconds: float
    peak_memory_bytes: int
    started: float


@dataclasses.dataclass(frozen=True)
class LatestStage:
    """The last record's key of a recipe's stage."""

    key: str


@dataclasses.dataclass(frozen=True)
class Damage:
    """Something in the store that is not what it should be."""

    path: str
    problem: str


class Store:
    """A content-addressed store in a folder, shared by processes and recipes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.digests = DigestCache(root / "digests")

    # Artifacts

    def take_in(self, folder: Path) -> str:
        """Move a folder's files into the store and return the artifact's digest; the folder is left
        empty of them.
        """
        files: dict[str, FileEntry] = {}
        try:
            for path in sorted(folder.rglob("*")):
                if path.is_symlink() or not (path.is_file() or path.is_dir()):
                    raise StoreError(f"{path}: a stage may leave plain files only")
                if path.is_file():
                    files[path.relative_to(folder).as_posix()] = self._take_in_file(path)
            artifact = digest_json(files)
            write_json(self._manifest(artifact), files)
        except OSError as error:
            raise storage_error(error, self.root) from error
        return artifact

    def files(self, artifact: str) -> dict[str, FileEntry]:
        """Return an artifact's files by name; raises StoreError where the store does not hold it."""
        try:
            return decode(
                dict[str, FileEntry],
                json.loads(self._manifest(artifact).read_text(encoding="utf-8")),
            )
        except (OSError, ValueError) as error:
            raise StoreError(
                f"the store has no readable artifact {artifact[:12]}; run again to make it"
            ) from error

    def holds(self, artifact: str) -> bool:
        """Say whether every file of an artifact is there, in its full size."""
        try:
            entries = self.files(artifact)
            return all(
                self.object(entry.sha256).stat().st_size == entry.size for entry in entries.values()
            )
        except (StoreError, OSError):
            return False

    def object(self, sha256: str) -> Path:
        """Return where a file with this digest lies."""
        return self.root / "objects" / sha256[:2] / sha256

    def view(self, artifact: str) -> Path:
        """Return a folder with the artifact's files under their names. Read-only: the files are the
        store's own.
        """
        view = self.root / "views" / artifact
        if not view.is_dir():
            with self.staging() as staging:
                self.link_into(artifact, staging / "view")
                # Another process may have made it meanwhile: then its view serves as well.
                with contextlib.suppress(OSError):
                    (staging / "view").rename(view)
        return view

    def link_into(self, artifact: str, folder: Path) -> tuple[str, ...]:
        """Make a folder with hard links to the artifact's files (copies across filesystems); return
        their names.
        """
        entries = self.files(artifact)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, entry in entries.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(self.object(entry.sha256), path)
                except OSError:
                    shutil.copyfile(self.object(entry.sha256), path)
        except OSError as error:
            raise storage_error(error, folder) from error
        return tuple(entries)

    # Stage records

    def record(self, key: str) -> StageRecord | None:
        """Return the record under a key, or None where there is none, or its artifact is not whole."""
        path = self.root / "stages" / f"{key}.json"
        try:
            record = decode(StageRecord, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None
        return record if record.key == key and self.holds(record.artifact) else None

    def put_record(self, record: StageRecord, log: str) -> None:
        """Write a record and its stage's log. Call it last: a record vouches for its artifact."""
        try:
            stages = self.root / "stages"
            stages.mkdir(parents=True, exist_ok=True)
            (stages / f"{record.key}.log").write_text(log, encoding="utf-8")
            write_json(stages / f"{record.key}.json", record)
        except OSError as error:
            raise storage_error(error, self.root) from error

    def log(self, key: str) -> str:
        """Return what a stage's tool printed."""
        path = self.root / "stages" / f"{key}.log"
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def latest(self, recipe: str, stage: str) -> StageRecord | None:
        """Return the last record of a recipe's stage, whatever has changed since."""
        try:
            found = decode(
                LatestStage, json.loads(self._latest(recipe, stage).read_text(encoding="utf-8"))
            )
        except (OSError, ValueError):
            return None
        return self.record(found.key)

    def set_latest(self, recipe: str, stage: str, key: str) -> None:
        """Remember the key of a recipe's stage."""
        write_json(self._latest(recipe, stage), LatestStage(key))

    # Settled runs

    def settled_run(self, run_key: str) -> Path | None:
        """Return the folder of the run that settled this run key, where it still stands."""
        try:
            text = json.loads((self.root / "runs" / f"{run_key}.json").read_text(encoding="utf-8"))
            folder = Path(decode(str, text))
        except (OSError, ValueError):
            return None
        return folder if (folder / "result.json").is_file() else None

    def settle_run(self, run_key: str, folder: Path) -> None:
        """Remember the run that settled a run key."""
        write_json(self.root / "runs" / f"{run_key}.json", str(folder.resolve()))

    # Work in progress

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Give an empty folder on the store's filesystem; it is removed afterwards."""
        try:
            (self.root / "staging").mkdir(parents=True, exist_ok=True)
            (self.root / "views").mkdir(exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.root / "staging"))
        except OSError as error:
            raise storage_error(error, self.root) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> int:
        """Remove what killed processes left in staging; return how many folders went."""
        swept = 0
        staging = self.root / "staging"
        for folder in staging.iterdir() if staging.is_dir() else ():
            owner = folder.name.partition("-")[0]
            if not (owner.isdigit() and _alive(int(owner))):
                shutil.rmtree(folder, ignore_errors=True)
                swept += 1
        return swept

    # Checking

    def verify(self) -> Iterator[Damage]:
        """Digest every object again and read every manifest and record; yield what is damaged."""
        for path in sorted((self.root / "objects").glob("*/*")):
            if path.name.startswith("."):
                continue
            if digest_file(path) != path.name:
                yield Damage(str(path), "the bytes do not match the digest in its name")
        for path in sorted((self.root / "artifacts").glob("*.json")):
            yield from self._verify_manifest(path)
        for path in sorted((self.root / "stages").glob("*.json")):
            try:
                record = decode(StageRecord, json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, CodecError) as error:
                yield Damage(str(path), f"not a readable stage record: {error}")
                continue
            if not self._manifest(record.artifact).is_file():
                yield Damage(str(path), f"its artifact {record.artifact[:12]} is missing")

    def _verify_manifest(self, path: Path) -> Iterator[Damage]:
        try:
            entries = decode(dict[str, FileEntry], json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, CodecError) as error:
            yield Damage(str(path), f"not a readable manifest: {error}")
            return
        if digest_json(entries) != path.stem:
            yield Damage(str(path), "the list of files does not match the digest in its name")
        for name, entry in entries.items():
            if not self.object(entry.sha256).is_file():
                yield Damage(str(path), f"{name}: its object {entry.sha256[:12]} is missing")

    def size(self) -> tuple[int, int]:
        """Return how many objects the store holds and their bytes."""
        sizes = [path.stat().st_size for path in (self.root / "objects").glob("*/*")]
        return len(sizes), sum(sizes)

    def _take_in_file(self, path: Path) -> FileEntry:
        entry = FileEntry(digest_file(path), path.stat().st_size)
        place = self.object(entry.sha256)
        if place.is_file() and place.stat().st_size == entry.size:
            path.unlink()
            return entry
        place.parent.mkdir(parents=True, exist_ok=True)
        if (
            path.stat().st_nlink > 1
        ):  # a link to another object's bytes: take a copy, so that each object stands alone
            copy = path.with_name(path.name + ".copy")
            shutil.copyfile(path, copy)
            copy.replace(path)
        path.chmod(0o444)
        try:
            path.replace(place)
        except OSError as error:
            if error.errno != 18:  # EXDEV: the folder lies on another filesystem
                raise
            staging = place.with_name(f".{place.name}.{os.getpid()}.part")
            shutil.copyfile(path, staging)
            staging.chmod(0o444)
            staging.replace(place)
            path.unlink()
        return entry

    def _manifest(self, artifact: str) -> Path:
        return self.root / "artifacts" / f"{artifact}.json"

    def _latest(self, recipe: str, stage: str) -> Path:
        return (
            self.root / "latest" / recipe / (stage.replace("/", "_").replace(":", "/", 1) + ".json")
        )


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
