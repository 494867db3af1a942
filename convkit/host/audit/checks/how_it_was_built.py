"""How a run was built: the recipe, the source, the locks, the platform, the command, the seeds."""

import dataclasses
from pathlib import Path

from convkit.host.record.provenance import Provenance
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord
from convkit.host.store.digests import digest_file
from convkit.protocol.json_codec import Json
from convkit.protocol.same_fields import taken_from


@dataclasses.dataclass(frozen=True)
class ToolUse:
    """A package version, and the stages that imported it: none if it was only installed."""

    name: str
    version: str
    stages: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LockFile:
    """The exact versions of a stage's environment: a requirements file in the run's folder, and its
    SHA-256.
    """

    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class BuildInputs:
    """How a run was built. `sources` and `seeds` are None without a provenance."""

    recipe: str
    recipe_text: str
    convkit: str
    command: tuple[str, ...]
    toolchain: str
    host: dict[str, Json]
    started: float | str
    sources: tuple[Dependency, ...] | None
    files: tuple[Dependency, ...]
    seeds: dict[str, int] | None
    locks: tuple[LockFile, ...]
    tools: tuple[ToolUse, ...]


def build_inputs_of(
    folder: Path, record: RunRecord | None, provenance: Provenance | None
) -> BuildInputs | None:
    """Return how a run was built, from its provenance or, without one, its record."""
    if provenance is not None:
        found = provenance.dependencies
        return taken_from(
            BuildInputs,
            provenance,
            sources=tuple(item for item in found if item.kind in ("source", "original")),
            files=tuple(item for item in found if item.kind == "file"),
            locks=tuple(
                LockFile(item.name, item.digest["sha256"]) for item in found if item.kind == "lock"
            ),
            tools=tuple(_tool(item) for item in found if item.kind == "tool"),
        )
    if record is None:
        return None
    return taken_from(
        BuildInputs,
        record,
        sources=None,
        files=(),
        seeds=None,
        locks=tuple(
            LockFile(f"locks/{path.name}", digest_file(path))
            for path in sorted(folder.glob("locks/*.txt"))
        ),
        tools=tool_uses(record),
    )


def tool_uses(record: RunRecord) -> tuple[ToolUse, ...]:
    """Return every package version that a run's stages used."""
    stages: dict[tuple[str, str], list[str]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            stages.setdefault((name, version), []).append(stage.id)
    return tuple(
        ToolUse(name, version, tuple(used)) for (name, version), used in sorted(stages.items())
    )


def _tool(item: Dependency) -> ToolUse:
    return ToolUse(item.name, str(item.notes["version"]), tuple(map(str, item.notes["stages"])))
