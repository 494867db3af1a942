"""`convkit import`: imports a run from an evidence file, after checking everything in it.

The file may come from anybody. Nothing is written outside a staging folder of the home until every
name, size and digest has been checked and the run passes its audit.
"""

import dataclasses
import hashlib
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from convkit.host.audit.audit_answer import AuditAnswer, audit
from convkit.host.audit.audit_policy import Policy
from convkit.host.audit.evidence.evidence_export import FORMAT, MANIFEST
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.audit.signing.signatures import SIGNATURES
from convkit.host.home import Home, is_run_id
from convkit.host.record.attachments import ATTACHMENTS, FOLDER
from convkit.host.record.provenance import FileDigest, read_provenance
from convkit.host.run.run_folder import read_record
from convkit.host.store.store import Store
from convkit.protocol.errors import ProvenanceError, UsageError, storage_error
from convkit.protocol.json_codec import CodecError, decode, parse_json

_MOST_FILES = 20_000
_MOST_MANIFEST_BYTES = 16 << 20
_RECIPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_BLOCK = 1 << 20
# What `zipfile` raises for a damaged or unsupported archive.
_UNREADABLE = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError),
    *(EOFError, ValueError, struct.error),
)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of `evidence.json`: every other file of the archive, by name."""

    format: int
    recipe: str
    run: str
    files: dict[str, FileDigest]


def import_evidence(
    file: Path, home: Home, policy: Policy | None = None
) -> tuple[Path, AuditAnswer]:
    """Take a run out of a file of evidence into a home; return its folder and its audit.

    Raises ProvenanceError if anything in the file is not as it should be, or violates the policy;
    then the home is unchanged. Raises UsageError if the home has a run of this id.
    """
    try:
        with zipfile.ZipFile(file) as archive, Store(home.store).staging() as staging:
            manifest = _read_manifest(archive)
            place = home.runs_of(manifest.recipe)
            folder = place / manifest.run
            if folder.exists():
                raise UsageError(f"{folder} exists; an import never replaces a run")
            for name in _members(archive, manifest):
                _extract(archive, name, manifest.files[name], staging)
            answer = audit(LocatedRun(staging / manifest.run), Home(staging / "no home"), policy)
            _accept(file, manifest, answer, staging / manifest.run)
            place.mkdir(parents=True, exist_ok=True)
            for ending in (".accepted.json", ".reproductions", SIGNATURES, ""):
                path = staging / f"{manifest.run}{ending}"
                if path.exists():  # the run itself last: only then is it one
                    path.rename(place / path.name)
    except _UNREADABLE as error:
        raise ProvenanceError(f"{file}: not a readable evidence file: {error}") from error
    except OSError as error:
        raise storage_error(error, file) from error
    return folder, dataclasses.replace(answer, folder=str(folder))


def _read_manifest(archive: zipfile.ZipFile) -> Manifest:
    name = archive.filename
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if len(names) > _MOST_FILES:
        raise ProvenanceError(f"{name}: {len(names)} files; evidence has at most {_MOST_FILES}")
    if len({each.casefold() for each in names}) < len(names):
        raise ProvenanceError(f"{name}: two files have the same name")
    if MANIFEST not in names:
        raise ProvenanceError(f"{name}: no {MANIFEST}; export it with convkit evidence RUN")
    try:
        with archive.open(MANIFEST) as stream:
            text = stream.read(_MOST_MANIFEST_BYTES + 1)
        if len(text) > _MOST_MANIFEST_BYTES:
            raise ProvenanceError(f"{name}: {MANIFEST} is too large")
        manifest = decode(Manifest, parse_json(text))
    except (ValueError, CodecError, RecursionError) as error:
        raise ProvenanceError(f"{name}: {MANIFEST} is damaged: {error}") from error
    if manifest.format != FORMAT:
        raise ProvenanceError(f"{name}: format {manifest.format}; this convkit reads {FORMAT}")
    if _RECIPE.fullmatch(manifest.recipe) is None or not is_run_id(manifest.run):
        raise ProvenanceError(f"{name}: {manifest.recipe}/{manifest.run} is not a run")
    return manifest


def _members(archive: zipfile.ZipFile, manifest: Manifest) -> list[str]:
    """Return the names of all files; raises ProvenanceError unless each is plain, listed, of the
    size that is listed, and part of a run's evidence.
    """
    tops = {manifest.run, f"{manifest.run}.reproductions", f"{manifest.run}{SIGNATURES}"}
    infos: Mapping[str, zipfile.ZipInfo] = {
        info.filename: info for info in archive.infolist() if info.filename != MANIFEST
    }
    for name in sorted({*infos, *manifest.files}):
        if name not in infos or name not in manifest.files:
            raise ProvenanceError(
                f"{archive.filename}: {name} is"
                f" {'missing' if name not in infos else f'not in {MANIFEST}'}"
            )
        info, path = infos[name], PurePosixPath(name)
        mode = info.external_attr >> 16
        is_file = not info.is_dir() and stat.S_IFMT(mode) in (0, stat.S_IFREG)
        if not (_is_plain(name, path) and is_file):
            raise ProvenanceError(f"{archive.filename}: {name!r} is not a plain file in its folder")
        if info.file_size != manifest.files[name].size:
            raise ProvenanceError(
                f"{archive.filename}: {name} has {info.file_size} bytes, {MANIFEST} says"
                f" {manifest.files[name].size}"
            )
        # Evidence is stored as it is: a file that claims more bytes than the archive has is a bomb.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ProvenanceError(f"{archive.filename}: {name} is compressed; evidence never is")
        inside = len(path.parts) > 1 and path.parts[0] in tops
        if not (inside or name in (f"{manifest.run}.accepted.json", *ATTACHMENTS)):
            raise ProvenanceError(f"{archive.filename}: {name} is not part of a run's evidence")
    if sum(info.file_size for info in infos.values()) > Path(str(archive.filename)).stat().st_size:
        raise ProvenanceError(f"{archive.filename}: its files overlap")
    return list(infos)


def _is_plain(name: str, path: PurePosixPath) -> bool:
    parts = name.split("/")
    special = any(part in ("", ".", "..") or part != part.strip() for part in parts)
    return not (special or path.is_absolute() or "\\" in name or ":" in parts[0] or "\0" in name)


def _extract(archive: zipfile.ZipFile, name: str, expected: FileDigest, staging: Path) -> None:
    """Write one file below the staging folder, no more bytes than listed, and check its digest."""
    path = staging / name
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with archive.open(name) as stream, path.open("xb") as written:
        while block := stream.read(_BLOCK):
            size += len(block)
            if size > expected.size:
                break
            digest.update(block)
            written.write(block)
    if (digest.hexdigest(), size) != (expected.sha256, expected.size):
        raise ProvenanceError(f"{archive.filename}: {name} is not what {MANIFEST} lists")


def _accept(file: Path, manifest: Manifest, answer: AuditAnswer, folder: Path) -> None:
    wrong = [*map(str, answer.problems), *map(str, answer.contradictions), *answer.violations]
    if answer.run != manifest.run:
        wrong.append(f"it holds the run {answer.run}, {MANIFEST} says {manifest.run}")
    if not wrong and (named := read_record(folder).recipe) != manifest.recipe:
        wrong.append(f"it is a run of {named}, {MANIFEST} says {manifest.recipe}")
    if not wrong:
        wrong += _foreign_attachments(manifest, folder)
    if wrong or answer.integrity != "intact":
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        reason = wrong[0] if wrong else "the run has no provenance.json"
        raise ProvenanceError(f"{file}: not imported: {reason}{more}")


def _foreign_attachments(manifest: Manifest, folder: Path) -> list[str]:
    """Return what is wrong with the attachments at the top of the file: they must be those that
    the run's provenance lists. Earlier releases listed none; an import drops them.
    """
    listed = read_provenance(folder).files
    return [
        f"{name} is not the one that the run's provenance lists"
        for name in ATTACHMENTS
        if (own := listed.get(f"{FOLDER}/{name}")) is not None and manifest.files.get(name) != own
    ]
