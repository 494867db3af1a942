"""Re-digests an entire store and reports any damage."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from convkit.host.store.digests import (
    KnownDigest,
    SealBroken,
    digest_file,
    digest_json,
    is_unsealed,
    read_sealed,
)
from convkit.host.store.remembered_code_digests import CodeMemory
from convkit.host.store.stage_records import (
    FileEntry,
    KeptRecord,
    LatestStage,
    SettledRun,
    StageRecord,
)
from convkit.protocol.json_codec import Json, decode, parse_json


@dataclasses.dataclass(frozen=True)
class Damage:
    """A damaged item in the store."""

    path: str
    problem: str


@dataclasses.dataclass(frozen=True)
class _Folder:
    """A folder of files sealed with their own digest. `kind` is the type of their content; `before`
    is the unsealed type that earlier releases wrote, if any. Such old files are never used, and are
    not damage.
    """

    pattern: str
    kind: type[object]
    before: type[object] | None
    noun: str


_SEALED = (
    _Folder("stages/*.json", KeptRecord, StageRecord, "stage record"),
    _Folder("latest/**/*.json", LatestStage, LatestStage, "memory of a recipe's last stage"),
    _Folder("runs/*.json", SettledRun, str, "memory of a settled run"),
    _Folder("opened/*.json", tuple[str, ...], None, "memory of the files a model is loaded from"),
    _Folder("code/*.json", CodeMemory, None, "memory of the digests of code"),
    _Folder("digests/*.json", KnownDigest, dict[str, Json], "memory of a file's digest"),
)


def verify_store(root: Path) -> Iterator[Damage]:
    """Re-digest every object and view and read everything else; yield damaged items."""
    for path in sorted((root / "objects").glob("*/*")):
        if not path.name.startswith("."):
            yield from _verify_file(path, path.name, "the digest in its name")
    for path in sorted((root / "artifacts").glob("*.json")):
        yield from _verify_manifest(path, root)
    for folder in _SEALED:
        for path in sorted(root.glob(folder.pattern)):
            yield from _verify_sealed(path, folder, root)
    for view in sorted((root / "views").glob("*")):
        yield from _verify_view(view, root)


def record_damage(root: Path, key: str) -> str | None:
    """Describe the damage to a stage's record; None if it is intact, missing, or from an earlier
    release. A missing artifact does not count as damage to the record.
    """
    path = root / "stages" / f"{key}.json"
    if not path.exists():
        return None
    return next((damage.problem for damage in _seal_damage(path, _SEALED[0])), None)


def _verify_file(path: Path, sha256: str, what: str) -> Iterator[Damage]:
    try:
        found = digest_file(path)
    except OSError as error:
        yield Damage(str(path), f"it cannot be read: {error.strerror or error}")
        return
    if found != sha256:
        yield Damage(str(path), f"the bytes do not match {what}")


def _verify_manifest(path: Path, root: Path) -> Iterator[Damage]:
    try:
        entries = _entries(path)
    except (OSError, ValueError, RecursionError) as error:
        yield Damage(str(path), f"not a readable manifest: {error}")
        return
    if digest_json(entries) != path.stem:
        yield Damage(str(path), "the list of files does not match the digest in its name")
    for name, entry in entries.items():
        if not (root / "objects" / entry.sha256[:2] / entry.sha256).is_file():
            yield Damage(str(path), f"{name}: its object {entry.sha256[:12]} is missing")


def _verify_sealed(path: Path, folder: _Folder, root: Path) -> Iterator[Damage]:
    damages = list(_seal_damage(path, folder))
    yield from damages
    if folder.kind is KeptRecord and not damages:
        with contextlib.suppress(OSError, SealBroken):  # from an earlier release: no longer used
            artifact = read_sealed(path, KeptRecord).record.artifact
            if not (root / "artifacts" / f"{artifact}.json").is_file():
                yield Damage(str(path), f"its artifact {artifact[:12]} is missing")


def _seal_damage(path: Path, folder: _Folder) -> Iterator[Damage]:
    try:
        value = read_sealed(path, folder.kind)
    except (OSError, SealBroken) as error:
        earlier = folder.before is not None and is_unsealed(path, folder.before)
        if not earlier or _is_sealed(path):
            yield Damage(str(path), f"not a readable {folder.noun}: {error}")
        return
    if isinstance(value, KeptRecord) and value.record.key != path.stem:
        yield Damage(str(path), "it records a different stage than its name says")
    if isinstance(value, SettledRun) and value.run_key != path.stem:
        yield Damage(str(path), "it describes a different run than its name says")
    if isinstance(value, KnownDigest) and value.path != path.stem:
        yield Damage(str(path), "it describes a different file than its name says")


def _is_sealed(path: Path) -> bool:
    """Return True if a file that reads as a plain mapping was meant to be sealed."""
    value = parse_json(path.read_bytes())
    return isinstance(value, dict) and bool({"digest", "content"} & set(value))


def _verify_view(view: Path, root: Path) -> Iterator[Damage]:
    try:
        entries = _entries(root / "artifacts" / f"{view.name}.json")
    except (OSError, ValueError, RecursionError):
        yield Damage(str(view), "the artifact that it shows is missing or damaged")
        return
    present = {path.relative_to(view).as_posix() for path in view.rglob("*") if not path.is_dir()}
    for name in sorted(present ^ set(entries)):
        problem = "it is not part of the artifact" if name in present else "it is missing"
        yield Damage(str(view / name), problem)
    for name in sorted(present & set(entries)):
        yield from _verify_file(view / name, entries[name].sha256, "the artifact that it shows")


def _entries(manifest: Path) -> dict[str, FileEntry]:
    return decode(dict[str, FileEntry], parse_json(manifest.read_text(encoding="utf-8")))
