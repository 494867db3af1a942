"""What is searched in a past run. Standard library only: a search reads hundreds of these."""

import dataclasses

from convkit.host.record.run_record import TargetStatus


@dataclasses.dataclass(frozen=True)
class IndexedPackage:
    """A package version, the stages that imported it, and those whose environment contained it."""

    name: str
    version: str
    imported: tuple[str, ...]
    installed: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Material:
    """A model, file or lock that a run was made from. `identities` are its digests and revision."""

    kind: str
    name: str
    uri: str
    identities: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """One run. `started` in seconds since the epoch, `seconds` what it took, `stages` are the
    targets of the stages (None: shared), `files` the SHA-256 of the folder's files by path, `codes`
    the targets or stages that show a finding, by its code.
    """

    run: str
    recipe: str
    started: float
    seconds: float
    status: TargetStatus
    targets: dict[str, TargetStatus]
    stages: dict[str, str | None]
    packages: tuple[IndexedPackage, ...]
    materials: tuple[Material, ...]
    files: dict[str, str]
    codes: dict[str, list[str]]
