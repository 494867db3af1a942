"""A store that several machines share: a folder or a bucket, reached through fsspec (file://,
s3://, gs://, ...).

    objects/ab/<sha256>      as in a local store (see `convkit.host.store.store`)
    artifacts/<digest>.json  as there
    stages/<key>.json        a stage's record and its log, under their digest

Names are content digests, so pushing is idempotent. Everything pulled is digested again; mismatches
are rejected by name. The first record under a key is kept; later ones are ignored.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from convkit.host.store.digests import (
    DigestCache,
    SealBroken,
    digest_file,
    digest_json,
    seal,
    unseal,
)
from convkit.host.store.durable_files import copy_file
from convkit.host.store.stage_records import FileEntry, KeptRecord, StageRecord
from convkit.host.store.store import Store
from convkit.protocol.errors import FleetError, StoreError, StoreUnreachable
from convkit.protocol.installation import install_command
from convkit.protocol.json_codec import decode, encode, parse_json

_CHUNK = 1 << 20
# What filesystems say that know no hard links (FAT, many network and FUSE filesystems).
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK})


class SharedStore:
    """A shared store at a URL. Its folder is created on the first push."""

    def __init__(self, url: str) -> None:
        """Raise FleetError if fsspec, or its backend for this kind of URL, is not installed."""
        self.url = url
        self._fs, self._root = _open(url)
        self._is_folder = "file" in _protocols(self._fs)
        self._there: set[str] = set()

    # Artifacts

    def holds(self, artifact: str) -> bool:
        """Return True if an artifact was pushed completely: its list of files is written last."""
        if artifact not in self._there:
            with self._reaching():
                if not self._fs.exists(self._manifest(artifact)):
                    return False
            self._there.add(artifact)
        return True

    def push(self, artifact: str, store: Store) -> None:
        """Push an artifact from a local store, unless it is already here."""
        if self.holds(artifact):
            return
        entries = store.files(artifact)
        for entry in entries.values():
            self._push_object(store.object(entry.sha256), entry)
        self._push_manifest(artifact, entries)

    def push_files(self, files: Mapping[str, Path], digests: DigestCache) -> str:
        """Push files from anywhere under the given names; return the artifact's digest."""
        try:
            entries = {
                name: FileEntry(digests.file(path), path.stat().st_size)
                for name, path in sorted(files.items())
            }
        except OSError as error:
            raise StoreError(f"{error.filename}: cannot be read: {error.strerror}") from error
        artifact = digest_json(entries)
        if not self.holds(artifact):
            for name, entry in entries.items():
                self._push_object(files[name], entry)
            self._push_manifest(artifact, entries)
        return artifact

    def pull(self, artifact: str, store: Store) -> None:
        """Pull an artifact into a local store, unless it is already there; raises StoreError that
        names damaged files.
        """
        if store.holds(artifact):
            return
        entries = self._entries(artifact)
        with store.staging() as staging:
            folder = staging / "pulled"
            folder.mkdir()
            for name, entry in entries.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                known = store.object(entry.sha256)
                if store.has_object(entry):
                    copy_file(known, path)
                else:
                    self._pull_object(entry, path, artifact)
            taken = store.take_in(folder)
        if taken != artifact:
            raise StoreError(
                f"{store.root}: objects of artifact {artifact[:12]} were damaged while they were"
                " read; find them with convkit store verify"
            )

    # Records

    def push_record(self, record: StageRecord, log: str) -> StageRecord:
        """Push a record whose artifact is already here; return the record that is kept, which is
        the first one pushed.
        """
        text = json.dumps(seal(KeptRecord(record, log)), ensure_ascii=False)
        if self._create(self._record(record.key), text.encode()):
            return record
        standing = self.record(record.key)
        if standing is not None:
            return standing.record
        with self._reaching():  # the artifact has been removed
            self._fs.pipe_file(self._record(record.key), text.encode())
        return record

    def record(self, key: str) -> KeptRecord | None:
        """Return the record under a key; None if it or its artifact is missing. Raises StoreError
        if it is damaged.
        """
        place = self._record(key)
        content = self._read(place)
        if content is None:
            return None
        try:
            found = unseal(content, KeptRecord)
        except SealBroken as error:
            raise self._damaged(place, f"not a readable stage record: {error}") from error
        if found.record.key != key:
            raise self._damaged(place, "it is the record of another key")
        return found if self.holds(found.record.artifact) else None

    def adopt(self, key: str, store: Store) -> StageRecord | None:
        """Copy the record under a key and its artifact to a local store, replacing the record
        there.
        """
        found = self.record(key)
        if found is None:
            return None
        self.pull(found.record.artifact, store)
        store.put_record(found.record, found.log)
        return found.record

    def adopt_first(self, keys: Iterable[str], store: Store) -> None:
        """Adopt the record under the first of several keys that has one, unless the local store has
        the record of any of them.
        """
        keys = tuple(keys)
        if store.first_record(keys) is None:
            next((key for key in keys if self.adopt(key, store) is not None), None)

    # Parts

    def _entries(self, artifact: str) -> dict[str, FileEntry]:
        place = self._manifest(artifact)
        content = self._read(place)
        if content is None:
            raise StoreError(f"{self.url} has no artifact {artifact[:12]} ({self._named(place)})")
        try:
            entries = decode(dict[str, FileEntry], parse_json(content))
        except ValueError as error:
            raise self._damaged(place, f"not a readable list of files: {error}") from error
        if digest_json(entries) != artifact:
            raise self._damaged(place, "the list of files does not match the digest in its name")
        for name in entries:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise self._damaged(place, f"{name!r} leads out of its folder")
        return entries

    def _push_object(self, path: Path, entry: FileEntry) -> None:
        place = self._object(entry.sha256)
        with self._reaching():
            if self._size(place) == entry.size:
                return
            if digest_file(path) != entry.sha256:
                raise StoreError(
                    f"{path}: the bytes do not match their digest; find damage with convkit store"
                    " verify"
                )
            if not self._is_folder:
                self._fs.put_file(str(path), place)
                return
            with self._aside(place) as part:
                shutil.copyfile(path, part)
                part.replace(place)

    def _pull_object(self, entry: FileEntry, path: Path, artifact: str) -> None:
        place, manifest = self._object(entry.sha256), self._manifest(artifact)
        digest = hashlib.sha256()
        with self._reaching():
            try:
                with self._fs.open(place, "rb") as source, path.open("wb") as copy:
                    while block := source.read(_CHUNK):
                        digest.update(block)
                        copy.write(block)
            except FileNotFoundError as error:
                raise self._damaged(place, "it is missing", manifest) from error
        if digest.hexdigest() != entry.sha256:
            raise self._damaged(place, "the bytes do not match the digest in its name", manifest)

    def _push_manifest(self, artifact: str, entries: Mapping[str, FileEntry]) -> None:
        self._create(
            self._manifest(artifact), json.dumps(encode(dict(entries)), sort_keys=True).encode()
        )
        self._there.add(artifact)

    def _create(self, place: str, content: bytes) -> bool:
        """Write a small file completely; return False, and keep the file, if there is one."""
        with self._reaching():
            try:
                if not self._is_folder:
                    # S3 and GCS enforce this with a conditional request; elsewhere, fsspec checks
                    # before it writes.
                    self._fs.pipe_file(place, content, mode="create")
                    return True
                with self._aside(place) as part:
                    part.write_bytes(content)
                    self._put_if_missing(part, Path(place))
            except FileExistsError:
                return False
        return True

    def _put_if_missing(self, part: Path, place: Path) -> None:
        """Give a file that was written aside its name; raises FileExistsError if that is taken.

        On a filesystem without hard links, the last one wins if two writers race, as in a bucket
        that knows no conditions.
        """
        try:
            os.link(part, place)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if place.exists():
                raise FileExistsError(place) from None
            part.replace(place)

    def _read(self, place: str) -> bytes | None:
        with self._reaching():
            try:
                return bytes(self._fs.cat_file(place))
            except FileNotFoundError:
                return None

    def _size(self, place: str) -> int | None:
        try:
            return int(self._fs.info(place)["size"])
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _aside(self, place: str) -> Iterator[Path]:
        """Return a temporary path next to a path, to be moved into place after writing."""
        folder = Path(place).parent
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{Path(place).name}.{secrets.token_hex(8)}.part"
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Name the store in errors of the transport."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise StoreUnreachable(
                f"the shared store {self.url} cannot be used: {error.strerror or error}. Check the"
                " address, this machine's credentials for it, and its free space."
            ) from error
        except Exception as error:
            if not _is_of_transport(error):
                raise
            raise StoreUnreachable(
                f"the shared store {self.url} cannot be used: {error}"
            ) from error

    def _damaged(self, place: str, problem: str, *with_it: str) -> StoreError:
        self._there.clear()
        removed = " and ".join(map(self._named, (place, *with_it)))
        return StoreError(
            f"{self._named(place)}: damaged: {problem}. Remove {removed} and run again: missing"
            " parts are made again."
        )

    def _named(self, place: str) -> str:
        return str(self._fs.unstrip_protocol(place))

    def _object(self, sha256: str) -> str:
        return f"{self._root}/objects/{sha256[:2]}/{sha256}"

    def _manifest(self, artifact: str) -> str:
        return f"{self._root}/artifacts/{artifact}.json"

    def _record(self, key: str) -> str:
        return f"{self._root}/stages/{key}.json"


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec.core  # noqa: PLC0415 - an optional dependency, needed by fleets only
    except ImportError as error:
        raise FleetError(f"a shared store needs fsspec: {install_command('fleet')}") from error
    try:
        # Cached listings would hide files that other machines write.
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise FleetError(
            f"{url}: {error}. Install it on this machine and on every worker."
        ) from error
    except ValueError as error:
        raise FleetError(
            f"{url}: not the address of a store: {error}. Write file://, s3:// or gs://."
        ) from error
    return fs, str(root).rstrip("/")


def _protocols(fs: Any) -> tuple[str, ...]:  # noqa: ANN401 - fsspec has no types
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _is_of_transport(error: Exception) -> bool:
    """Return True if an error that is not an OSError comes from a transport library (botocore,
    aiohttp, gcsfs).
    """
    return type(error).__module__.partition(".")[0] in (
        "botocore",
        "aiobotocore",
        "aiohttp",
        "gcsfs",
        "google",
    )
