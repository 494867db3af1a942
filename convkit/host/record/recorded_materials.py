"""What a run was made from: models, files, locks, tools, convkit itself."""

import dataclasses
from collections.abc import Iterable, Mapping

from packageurl import PackageURL
from packaging.utils import canonicalize_name

from convkit.host.record.run_record import RunRecord
from convkit.protocol.json_codec import Json

# The algorithm of a package's digest: SHA-256 over the paths and digests in its RECORD.
INSTALLED = "convkitInstalled"


@dataclasses.dataclass(frozen=True)
class Dependency:
    """An input to a run. `kind`: source, original, file, lookup (what the model's code asked of the
    machine; `notes` has the answer), lock, tool or builder.

    `digest` is keyed by algorithm, as in in-toto: `sha256` of a file, `gitCommit`, `convkitTree`
    (paths and contents of a folder, or of an ONNX file with its weights), `convkitInstalled` (a
    package's installed files).
    """

    name: str
    kind: str
    uri: str | None = None
    digest: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: dict[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class LockedPackage:
    """A package in the environments of some stages, with the SHA-256 of each file it may come from,
    if a lock lists them, and the digest of its installed files.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    stages: tuple[str, ...]
    installed: str = ""


@dataclasses.dataclass(frozen=True)
class PreviousRun:
    """The recipe's run before this one: its id, and the SHA-256 of its provenance.json."""

    run: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Materials:
    """Inputs that a run's record does not contain: the models' origin, other files, seeds, locked
    packages, convkit's code.

    `builder` is convkit itself and what it builds environments with. `worker_code` is the digest of
    convkit's own code by job. `previous` is the recipe's run before this one, if there is one.
    """

    dependencies: tuple[Dependency, ...] = ()
    seeds: dict[str, int] = dataclasses.field(default_factory=dict)
    platform: str = ""
    worker_code: dict[str, str] = dataclasses.field(default_factory=dict)
    locked: tuple[LockedPackage, ...] = ()
    builder: tuple[Dependency, ...] = ()
    previous: PreviousRun | None = None


def package_url(kind: str, name: str, version: str) -> str:
    """Return the canonical package URL of a release: `pkg:pypi/onnx@1.23.0`.

    A hub's model is named `owner/name`. Raises ValueError for what no package URL can name.
    """
    space, _, rest = name.rpartition("/")
    return PackageURL(kind, space or None, rest, version).to_string()


def lock_dependencies(files: Mapping[str, str]) -> list[Dependency]:
    """Return the locks of a run's stages. `files` are the digests of its folder's files by path."""
    return [
        Dependency(name, "lock", digest={"sha256": digest})
        for name, digest in files.items()
        if name.startswith("locks/")
    ]


def tool_dependencies(record: RunRecord, locked: Iterable[LockedPackage]) -> list[Dependency]:
    """Return every package version that a stage imported, or that its environment contained.

    `stages` in the notes are those that imported it, `installed` those whose environment has it.
    The digests are that of the file it was installed from, if the locks allow only one, and that of
    its installed files, if they are the same in all environments; else the notes list them.
    """
    imported: dict[tuple[str, str], list[str]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            imported.setdefault((name, version), []).append(stage.id)
    pinned: dict[tuple[str, str], list[LockedPackage]] = {}
    for each in locked:
        pinned.setdefault((each.name, each.version), []).append(each)
    return [
        _tool(name, version, imported.get((name, version), []), pinned.get((name, version), []))
        for name, version in sorted({*imported, *pinned})
    ]


def _tool(name: str, version: str, stages: list[str], pinned: list[LockedPackage]) -> Dependency:
    notes: dict[str, Json] = {"version": version, "stages": stages}
    if pinned:
        notes["installed"] = [stage for each in pinned for stage in each.stages]
    digest: dict[str, str] = {}
    hashes = [value.removeprefix("sha256:") for each in pinned for value in each.hashes]
    files = [each.installed for each in pinned if each.installed]
    for algorithm, note, found in (
        ("sha256", "hashes", hashes),
        (INSTALLED, "installedFiles", files),
    ):
        values = list(dict.fromkeys(found))
        if len(values) == 1:
            digest[algorithm] = values[0]
        elif values:
            notes[note] = values
    kind = "generic" if name == "python" else "pypi"
    return Dependency(
        name, "tool", package_url(kind, canonicalize_name(name), version), digest, notes
    )
