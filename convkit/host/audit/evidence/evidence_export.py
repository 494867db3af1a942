"""`convkit evidence`: writes a run, and everything that belongs to it, into one file."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

from convkit.host.audit.audit_answer import audit
from convkit.host.audit.past_runs.later_records import beside
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.audit.signing.signatures import SIGNATURES
from convkit.host.home import Home
from convkit.host.record.attachments import FOLDER, attachments
from convkit.host.record.provenance import read_provenance
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import digest_file
from convkit.protocol.errors import UsageError, storage_error

FORMAT = 1
MANIFEST = "evidence.json"
# Entries get this time, so that equal evidence is equal byte for byte.
_MOMENT = (1980, 1, 1, 0, 0, 0)


def export(folder: Path, home: Home, file: Path) -> Path:
    """Write a run's evidence; return the file. Raises UsageError if the run is not intact, or if
    the file exists.
    """
    answer = audit(LocatedRun(folder), home)
    if answer.integrity != "intact":
        first = next(iter((*answer.problems, *answer.contradictions)), "it has no provenance.json")
        raise UsageError(f"{folder}: no evidence, because the run is not intact: {first}")
    record, provenance = read_record(folder), read_provenance(folder)
    files = dict(_run_files(folder))
    texts = {
        name: _own_attachment(folder, name) or text
        for name, text in attachments(record, provenance).items()
    }
    listed = {
        name: {"sha256": digest_file(path), "size": path.stat().st_size}
        for name, path in files.items()
    } | {
        name: {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size": len(text.encode())}
        for name, text in texts.items()
    }
    manifest = {"format": FORMAT, "recipe": record.recipe, "run": record.id, "files": listed}
    try:
        with zipfile.ZipFile(file, "x", zipfile.ZIP_STORED) as archive:
            for name, text in {MANIFEST: json.dumps(manifest, indent=1), **texts}.items():
                archive.writestr(_entry(name), text)
            for name, path in files.items():
                with (
                    path.open("rb") as stream,
                    archive.open(_entry(name), "w", force_zip64=True) as written,
                ):
                    while block := stream.read(1 << 20):
                        written.write(block)
    except FileExistsError as error:
        raise UsageError(f"{file} exists; name another file with --output") from error
    except OSError as error:
        file.unlink(missing_ok=True)
        raise storage_error(error, file) from error
    return file


def _own_attachment(folder: Path, name: str) -> str | None:
    """Return a run's own attachment; None for a run of an earlier release, which has none."""
    path = folder / FOLDER / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _MOMENT)
    info.external_attr = 0o644 << 16
    return info


def _run_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Return a run's files, and those beside it, by their name in the archive."""
    whole = folder.resolve()
    yield from ((f"{whole.name}/{name}", path) for name, path in _inside(whole))
    for ending in (SIGNATURES, ".reproductions"):
        place = beside(folder, ending)
        yield from ((f"{place.name}/{name}", path) for name, path in _inside(place))
    accepted = beside(folder, ".accepted.json")
    if accepted.is_file():
        yield accepted.name, accepted


def _inside(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path
