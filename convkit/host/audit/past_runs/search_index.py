"""What is searched in past runs, in a small file beside each run's folder: `<id>.summary.json`.

Reading a thousand records takes many seconds, a thousand summaries a fraction of one. A summary is
a cache: it holds its own digest and the status of the files it was made from, and is made again if
either differs.
"""

import contextlib
import dataclasses
import hashlib
import json
from pathlib import Path

from convkit.host.audit.past_runs.indexed_run import IndexedPackage, Material, RunSummary
from convkit.host.audit.past_runs.later_records import beside
from convkit.host.record.provenance import FILE_NAME
from convkit.host.store.durable_files import write_whole
from convkit.protocol.errors import ConvkitError
from convkit.protocol.json_codec import Json, parse_json

_ENDING = ".summary.json"
_FORMAT = 2


def summary_of(folder: Path) -> RunSummary:
    """Return a run's summary; raises ConvkitError if its record cannot be read."""
    stamp = _stamp(folder)
    path = beside(folder, _ENDING)
    known = _known(path, stamp)
    if known is not None:
        return known
    from convkit.host.audit.past_runs.index_summary import summarize  # noqa: PLC0415 - reads recipes: only once per run

    summary = summarize(folder)
    _remember(path, stamp, summary)
    return summary


def _stamp(folder: Path) -> list[int]:
    """Return the status of the files that a summary is made from."""
    stamp = [_FORMAT]
    for name in ("result.json", FILE_NAME):
        try:
            status = (folder / name).stat()
        except OSError:
            stamp.append(0)
        else:
            stamp += [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return stamp


def _known(path: Path, stamp: list[int]) -> RunSummary | None:
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest() != digest.decode():
            return None
        content = parse_json(text)
        if content["stamp"] != stamp:
            return None
        return _read(content["summary"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(value: Json) -> RunSummary:
    """Build a summary from JSON. Its digest was checked: it is what `_remember` wrote."""
    value["packages"] = tuple(
        IndexedPackage(name, version, tuple(imported), tuple(installed))
        for name, version, imported, installed in value["packages"]
    )
    value["materials"] = tuple(
        Material(kind, name, uri, tuple(identities))
        for kind, name, uri, identities in value["materials"]
    )
    return RunSummary(**value)


def _remember(path: Path, stamp: list[int], summary: RunSummary) -> None:
    content = {field.name: getattr(summary, field.name) for field in dataclasses.fields(summary)}
    for name in ("packages", "materials"):
        content[name] = [dataclasses.astuple(each) for each in content[name]]
    text = json.dumps({"stamp": stamp, "summary": content}).encode()
    with contextlib.suppress(OSError):  # somebody else's folder, or a full disk
        write_whole(path, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def readable_summary(folder: Path) -> RunSummary | ConvkitError:
    """Return a run's summary, or why it cannot be read."""
    try:
        return summary_of(folder)
    except ConvkitError as error:
        return error
