"""The store: files by content, artifacts (named sets of files), and a record for each stage key.

    objects/ab/<sha256>       a file's bytes, read-only
    artifacts/<digest>.json   name -> size and digest of each file; the artifact's digest is that of
                              this mapping
    views/<digest>/           the artifact as a folder of independent copies, for stages to read;
                              removed when no run needs it anymore
    stages/<key>.json         a stage's result, its tool's output, and their digest
    latest/<recipe>/<id>.json the last key of a recipe's stage, to explain later changes
    runs/<run key>.json       the run that settled an unchanged recipe
    unlogged/<recipe>.<id>    an empty file for each run that MLflow does not have yet
    digests/<path>.json       a file's digest, valid while its status matches
    code/<packages>.json      digests of the code that stages run, valid while no file of it changes
    staging/<name>/, .lock    work in progress; removed when nobody holds its lock

Everything is written to a temporary path and moved into place, so a killed process leaves no
partial object behind. Names are not trusted: content is digested before use, unless the file's
status is unchanged since it was last digested. A mismatch is treated like a missing file: the stage
runs again, and the correct content replaces the damaged one.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from convkit.host.store.digests import (
    DigestCache,
    SealBroken,
    digest_file,
    digest_json,
    read_sealed,
    unseal,
    write_json,
    write_sealed,
)
from convkit.host.store.durable_files import (
    copy_file,
    move_file,
    own_file,
    sync_files,
    sync_folders,
)
from convkit.host.store.file_intake import Intake
from convkit.host.store.process_locks import HeldLock
from convkit.host.store.stage_records import (
    FileEntry,
    KeptRecord,
    LatestStage,
    SettledRun,
    StageRecord,
)
from convkit.host.store.staging_folders import staging_folder, sweep_staging
from convkit.host.store.store_verification import Damage, verify_store
from convkit.host.store.unchanged_files import UnchangedFiles
from convkit.protocol.errors import StoreError, storage_error
from convkit.protocol.json_codec import decode, parse_json

__all__ = ["Damage", "FileEntry", "KeptRecord", "StageRecord", "Store"]


class Store:
    """A content-addressed store in a folder, shared by processes and recipes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.digests = DigestCache(root / "digests")
        self._views_in_use: HeldLock | None = None
        self._records = UnchangedFiles(lambda text: unseal(text, KeptRecord))
        self._manifests = UnchangedFiles(_files_and_digest)

    # Artifacts

    def take_in(self, folder: Path, intake: Intake | None = None) -> str:
        """Move a folder's files into the store and return the artifact's digest.

        With `intake`, which has prepared some of them, the artifact's view is made as well.
        """
        try:
            paths = _plain_files(folder)
            entries = {path: self._entry(path, intake) for path in paths}
            copies = intake.copies() if intake is not None else {}
            self._keep_files(entries)
            files = {path.relative_to(folder).as_posix(): entry for path, entry in entries.items()}
            artifact = digest_json(files)
            write_json(self._manifest(artifact), files)
        except OSError as error:
            raise storage_error(error, self.root) from error
        if copies:
            self.view(artifact, copies)
        return artifact

    def files(self, artifact: str) -> dict[str, FileEntry]:
        """Return an artifact's files by name; raises StoreError if the store does not have it or
        its list of files is damaged.
        """
        try:
            entries, digest = self._manifests.read(self._manifest(artifact))
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(
                f"the store has no readable artifact {artifact[:12]}; run again to make it"
            ) from error
        if digest != artifact:
            raise StoreError(
                f"{self._manifest(artifact)}: the list of files does not match the digest in its"
                " name; run again to make it"
            )
        return dict(entries)

    def holds(self, artifact: str) -> bool:
        """Return True if every file of an artifact is present and intact."""
        try:
            return all(map(self.has_object, self.files(artifact).values()))
        except StoreError:
            return False

    def has_object(self, entry: FileEntry) -> bool:
        """Return True if a file's content is present and matches its digest."""
        place = self.object(entry.sha256)
        try:
            return place.stat().st_size == entry.size and self.digests.file(place) == entry.sha256
        except OSError:
            return False

    def object(self, sha256: str) -> Path:
        """Return the path of the file with this digest."""
        return self.root / "objects" / sha256[:2] / sha256

    def view(self, artifact: str, copies: Mapping[str, Path] | None = None) -> Path:
        """Return a folder of the artifact's files by name, for reading; recreated unless it matches
        the artifact byte for byte. It exists until this store is released.

        `copies`, by digest, are moved into a new view instead of copies of the store's files.
        """
        view = self.root / "views" / artifact
        try:
            if self._views_in_use is None:
                self.root.mkdir(parents=True, exist_ok=True)
                self._views_in_use = HeldLock.shared(self._views_lock)
            if not self._is_whole(view, artifact):
                # Two makers would replace each other's view, from under the stage that reads it.
                lock = self.root / "locks" / f"view-{artifact}.lock"
                lock.parent.mkdir(exist_ok=True)
                with HeldLock.awaited(lock):
                    if not self._is_whole(view, artifact):
                        self._make_view(artifact, view, copies or {})
        except OSError as error:
            raise storage_error(error, view) from error
        return view

    def release_views(self) -> None:
        """Release this store's views; remove all views if no other process uses any."""
        if self._views_in_use is not None:
            self._views_in_use.release()
            self._views_in_use = None
        if (alone := HeldLock.alone(self._views_lock)) is not None:
            with alone:
                shutil.rmtree(self.root / "views", ignore_errors=True)

    def copy_into(self, artifact: str, folder: Path) -> tuple[str, ...]:
        """Copy the artifact's files to a folder, independently of the store; return their names.

        Raises StoreError that names a damaged file.
        """
        entries = self.files(artifact)
        try:
            self._fill(entries, folder, artifact, {})
        except OSError as error:
            raise storage_error(error, folder) from error
        return tuple(entries)

    def hand_over(self, artifact: str, folder: Path) -> None:
        """Fill a new folder as `copy_into` does, with the files of the artifact's view if only this
        store uses views: a run needs none once its stages have ended.
        """
        view = self.root / "views" / artifact
        folder.parent.mkdir(parents=True, exist_ok=True)
        if self._views_in_use is not None:
            self._views_in_use.release()
            self._views_in_use = None
        if (alone := HeldLock.alone(self._views_lock)) is not None:
            with alone:
                if view.is_dir() and self._is_whole(view, artifact):
                    ordinary = folder.parent.stat().st_mode & 0o666
                    view.rename(folder)
                    for name in self.files(artifact):
                        (folder / name).chmod(ordinary)
                    return
        self.copy_into(artifact, folder)

    # Stage records

    def record(self, key: str) -> StageRecord | None:
        """Return the record under a key; None if it or its artifact is missing or damaged."""
        kept = self._kept(key)
        return kept.record if kept is not None and self.holds(kept.record.artifact) else None

    def first_record(self, keys: Iterable[str]) -> StageRecord | None:
        """Return the record under the first of several keys that has one; see `record`."""
        return next((found for key in keys if (found := self.record(key)) is not None), None)

    def put_record(self, record: StageRecord, log: str) -> None:
        """Write a record and its stage's log. Call this last: it implies a whole artifact."""
        try:
            write_sealed(self.root / "stages" / f"{record.key}.json", KeptRecord(record, log))
        except OSError as error:
            raise storage_error(error, self.root) from error

    def log(self, key: str) -> str:
        """Return the output of a stage's tool."""
        kept = self._kept(key)
        return kept.log if kept is not None else ""

    def latest(self, recipe: str, stage: str) -> StageRecord | None:
        """Return the last record of a recipe's stage, regardless of later changes."""
        try:
            found = read_sealed(self._latest(recipe, stage), LatestStage)
        except (OSError, SealBroken):
            return None
        return self.record(found.key)

    def set_latest(self, recipe: str, stage: str, key: str) -> None:
        """Store the key of a recipe's stage as its latest."""
        place = self._latest(recipe, stage)
        with contextlib.suppress(OSError, SealBroken):
            if read_sealed(place, LatestStage).key == key:
                return
        write_sealed(place, LatestStage(key), durable=False)

    # Settled runs

    def settled_run(self, run_key: str, code: str) -> Path | None:
        """Return the folder of the run that settled this run key, if it still exists and the same
        code (a digest) would judge it again.
        """
        try:
            settled = read_sealed(self._settled(run_key), SettledRun)
        except (OSError, SealBroken):
            return None
        folder = Path(os.path.normpath(self.root / settled.folder))
        same = settled.run_key == run_key and settled.code == code
        whole = same and (folder / "result.json").is_file()
        return folder if whole else None

    def settle_run(self, run_key: str, folder: Path, code: str) -> None:
        """Store the run that settled a run key, and the digest of the code that judged it."""
        folder, home = folder.resolve(), self.root.resolve().parent
        place = (
            os.path.relpath(folder, self.root.resolve())
            if folder.is_relative_to(home)
            else str(folder)
        )
        write_sealed(self._settled(run_key), SettledRun(run_key, place, code), durable=False)

    def mark_unlogged(self, folder: Path) -> None:
        """Remember that a finished run must still be logged to MLflow."""
        place = self._unlogged(folder)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        except OSError as error:
            raise storage_error(error, place) from error

    def is_unlogged(self, folder: Path) -> bool:
        """Return True if logging a finished run was interrupted, or failed."""
        return self._unlogged(folder).exists()

    def was_logged(self, folder: Path) -> None:
        """Forget that a run must be logged."""
        with contextlib.suppress(OSError):  # it is then logged again, which finds the logged run
            self._unlogged(folder).unlink(missing_ok=True)

    # Work in progress

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Create an empty folder on the store's filesystem; removed afterwards."""
        with staging_folder(self.root / "staging") as folder:
            yield folder

    def sweep(self) -> int:
        """Remove staging folders left by killed processes; return how many were removed."""
        return sweep_staging(self.root / "staging")

    # Checking

    def verify(self) -> Iterator[Damage]:
        """Re-digest everything; yield damaged items."""
        return verify_store(self.root)

    def size(self) -> tuple[int, int]:
        """Return the number of objects in the store and their total size in bytes."""
        sizes = [path.stat().st_size for path in (self.root / "objects").glob("*/*")]
        return len(sizes), sum(sizes)

    # Parts

    def _entry(self, path: Path, intake: Intake | None) -> FileEntry:
        known = intake.digest(path) if intake is not None else None
        return FileEntry(known or digest_file(path), path.stat().st_size)

    def _keep_files(self, entries: Mapping[Path, FileEntry]) -> None:
        """Move files to their places; remove those whose content the store has."""
        first: dict[str, Path] = {}
        for path, entry in entries.items():
            first.setdefault(entry.sha256, path)
        new = [path for sha256, path in first.items() if not self.has_object(entries[path])]
        for path in new:
            own_file(path)
            path.chmod(0o444)
        sync_files(new)
        places = {path: self.object(entries[path].sha256) for path in new}
        for path, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            move_file(path, place)
        sync_folders({place.parent for place in places.values()})
        for path, place in places.items():
            self.digests.remember(place, entries[path].sha256)
        for path in entries.keys() - places.keys():
            path.unlink()

    def _make_view(self, artifact: str, view: Path, copies: Mapping[str, Path]) -> None:
        entries = self.files(artifact)
        with self.staging() as staging:
            self._fill(entries, staging / "view", artifact, copies)
            for name in entries:
                (staging / "view" / name).chmod(0o444)
            view.parent.mkdir(exist_ok=True)
            if self._is_whole(view, artifact):
                return  # on a filesystem without locks, another process made it meanwhile
            if view.exists():  # damaged, or created by an earlier release
                view.rename(staging / "before")
            try:
                (staging / "view").rename(view)
            except OSError:
                if not self._is_whole(view, artifact):  # as above
                    raise
        for name, entry in entries.items():
            self.digests.remember(view / name, entry.sha256)

    def _fill(
        self,
        entries: Mapping[str, FileEntry],
        folder: Path,
        artifact: str,
        copies: Mapping[str, Path],
    ) -> None:
        """Put files into a folder: the given copies, each once, and else copies of the objects."""
        left = dict(copies)
        folder.mkdir(parents=True, exist_ok=True)
        for name, entry in entries.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if (copy := left.pop(entry.sha256, None)) is not None:
                copy.replace(path)
                continue
            if not self.has_object(entry):
                raise StoreError(
                    f"{self.object(entry.sha256)}: missing or damaged ({name} of artifact"
                    f" {artifact[:12]}); run again to rebuild it"
                )
            copy_file(self.object(entry.sha256), path)

    def _is_whole(self, view: Path, artifact: str) -> bool:
        """Return True if a view contains exactly the artifact, in files of its own."""
        entries = self.files(artifact)
        present = {
            path.relative_to(view).as_posix() for path in view.rglob("*") if not path.is_dir()
        }
        if not view.is_dir() or present != set(entries):
            return False
        return all(self._is_copy(view / name, entry) for name, entry in entries.items())

    def _is_copy(self, path: Path, entry: FileEntry) -> bool:
        place = self.object(entry.sha256)
        if path.is_symlink() or (place.exists() and path.samefile(place)):
            return False
        return path.stat().st_size == entry.size and self.digests.file(path) == entry.sha256

    def _kept(self, key: str) -> KeptRecord | None:
        try:
            kept = self._records.read(self.root / "stages" / f"{key}.json")
        except (OSError, SealBroken):
            return None
        return kept if kept.record.key == key else None

    @property
    def _views_lock(self) -> Path:
        return self.root / "views.lock"

    def _manifest(self, artifact: str) -> Path:
        return self.root / "artifacts" / f"{artifact}.json"

    def _settled(self, run_key: str) -> Path:
        return self.root / "runs" / f"{run_key}.json"

    def _unlogged(self, folder: Path) -> Path:
        return self.root / "unlogged" / f"{folder.parent.name}.{folder.name}"

    def _latest(self, recipe: str, stage: str) -> Path:
        return (
            self.root / "latest" / recipe / (stage.replace("/", "_").replace(":", "/", 1) + ".json")
        )


def _files_and_digest(manifest: bytes) -> tuple[dict[str, FileEntry], str]:
    """Return an artifact's files by name, and the digest of this mapping."""
    entries = decode(dict[str, FileEntry], parse_json(manifest))
    return entries, digest_json(entries)


def _plain_files(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted; raises StoreError if there is anything else."""
    found = sorted(folder.rglob("*"))
    for path in found:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{path}: a stage may only leave plain files")
    return [path for path in found if path.is_file()]
