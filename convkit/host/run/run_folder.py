"""A finished run's folder, written to a temporary path and moved into place atomically."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.host.home import Home, is_run_id
from convkit.host.record.attachments import write_attachments
from convkit.host.record.provenance import (
    FILE_NAME,
    FileDigest,
    drafted_provenance,
    origin_digests,
    read_provenance,
    write_provenance,
)
from convkit.host.record.recorded_materials import Materials, PreviousRun
from convkit.host.record.run_record import FORMAT, RunRecord, TargetReport
from convkit.host.store.digests import DigestCache, digest_file, write_json
from convkit.host.store.durable_files import sync_folder, sync_tree
from convkit.protocol.contract import Contract
from convkit.protocol.errors import ConvkitError, ProvenanceError, storage_error
from convkit.protocol.json_codec import decode, parse_json

if TYPE_CHECKING:
    from convkit.host.facts.planning_facts import ResolvedFacts
    from convkit.host.plan.stages import Stage
    from convkit.host.stages.stage_outcome import Settled
    from convkit.host.store.store import Store
    from convkit.protocol.messages import JoinedModel


def locks_of(stages: "tuple[Stage, ...]", surroundings: "ResolvedFacts") -> dict[str, str]:
    """Return the exact versions of each stage's environment, as requirements files by stage id."""
    resolutions = surroundings.resolutions
    return {
        stage.id: resolutions[stage.environment].text
        for stage in stages
        if stage.environment in resolutions
    }


def write_folder(
    record: RunRecord,
    settled: "Mapping[str, Settled]",
    locks: Mapping[str, str],
    materials: Materials,
    store: "Store",
    home: Home,
    joined: "Mapping[str, JoinedModel] | None" = None,
) -> Path:
    """Write a run's folder to a temporary path, then move it into place atomically. `joined` are
    the models of several parts, by target.
    """
    from convkit.host.report.report_file import write_report  # noqa: PLC0415 - the template engine, only when a run has finished
    from convkit.host.run.run_materials import built_files  # noqa: PLC0415 - as below

    folder = home.runs_of(record.recipe) / record.id
    try:
        with store.staging() as staging:
            whole = staging / "run"
            (whole / "logs").mkdir(parents=True)
            for name, stage in settled.items():
                (whole / "logs" / f"{stage_file(name)}.log").write_text(stage.log, encoding="utf-8")
            for name, text in locks.items():
                (whole / "locks").mkdir(exist_ok=True)
                (whole / "locks" / f"{stage_file(name)}.txt").write_text(text, encoding="utf-8")
            (whole / "recipe.yaml").write_text(record.recipe_text, encoding="utf-8")
            for target in record.targets:
                if f"build:{target.name}" not in settled:
                    continue  # a joined target: its parts' files are in its folder
                built = settled[f"build:{target.name}"].report
                if built.artifact is not None:
                    store.hand_over(built.artifact, whole / "models" / target.name)
                    _add_golden(target, settled, store, whole / "models" / target.name)
            write_json(whole / "result.json", record)
            # From the file, whose keys are sorted: an audit renders the same bytes from it.
            written = read_record(whole)
            write_report(written, whole)
            made = built_files(record, store) | _joined_files(record, joined, whole)
            folder.parent.mkdir(parents=True, exist_ok=True)
            materials = dataclasses.replace(materials, previous=_previous(folder))
            draft = drafted_provenance(whole, record, materials, made)
            write_attachments(whole, written, draft)
            write_provenance(whole, record, materials, made)
            sync_tree(whole)
            whole.rename(folder)
            sync_folder(folder.parent)
            for name, entry in made.items():
                store.digests.remember(folder / name, entry.sha256)
    except OSError as error:
        raise storage_error(error, folder) from error
    return folder


def _add_golden(
    target: TargetReport, settled: "Mapping[str, Settled]", store: "Store", folder: Path
) -> None:
    """Write golden cases beside a built model, if its reference is in this store."""
    from convkit.host.run.golden_cases import write_golden  # noqa: PLC0415 - only when a run has finished

    _, slash, part = target.name.partition("/")
    reference = settled.get(f"reference{slash}{part}")
    if reference is None or reference.report.artifact is None:
        return
    file = folder / "contract.json"
    if not file.is_file():
        return  # a runtime refused the graph: the build left no model
    contract = decode(Contract, parse_json(file.read_text(encoding="utf-8")))
    write_golden(target, contract, reference.report.artifact, store, folder)


def _joined_files(
    record: RunRecord, joined: "Mapping[str, JoinedModel] | None", folder: Path
) -> dict[str, FileDigest]:
    """Write how each joined target's parts call each other; return the files' digests by path."""
    made = {}
    for target in record.targets:
        model = (joined or {}).get(target.name)
        if model is None or not target.files:
            continue
        name = target.files[0]
        write_json(folder / name, model)
        made[name] = FileDigest(digest_file(folder / name), (folder / name).stat().st_size)
    return made


def _previous(folder: Path) -> PreviousRun | None:
    """Return the newest of a recipe's runs that are older than the one to be written."""
    names = (path.name for path in folder.parent.iterdir() if is_run_id(path.name))
    for name in sorted((name for name in names if name < folder.name), reverse=True):
        path = folder.parent / name / FILE_NAME
        if path.is_file():
            return PreviousRun(name, digest_file(path))
    return None


def is_intact(folder: Path, digests: DigestCache) -> bool:
    """Return True if a run's files match its provenance, with nothing added to its models."""
    try:
        provenance = read_provenance(folder)
        expected = provenance.files | origin_digests(folder, provenance)
        present = {
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }
        added = {name for name in present - set(expected) if name.startswith("models/")}
        return not added and all(
            _is_file(folder / name, entry, digests) for name, entry in expected.items()
        )
    except (ProvenanceError, OSError):
        return False


def _is_file(path: Path, entry: FileDigest, digests: DigestCache) -> bool:
    return (
        not path.is_symlink()
        and path.stat().st_size == entry.size
        and digests.file(path) == entry.sha256
    )


def stage_file(stage: str) -> str:
    """Return the file name, without suffix, of a stage's log and lock in a run's folder."""
    return "".join(
        character if character.isalnum() or character in "-_.=<>~!*" else "-" for character in stage
    )


def read_record(folder: Path) -> RunRecord:
    """Return a finished run's record; raises ConvkitError if it cannot be read."""
    try:
        value = parse_json((folder / "result.json").read_text(encoding="utf-8"))
        if value.get("format") != FORMAT:
            raise ConvkitError(
                f"{folder}: result.json has format {value.get('format')!r}; this convkit reads"
                f" {FORMAT}"
            )
        return decode(RunRecord, value)
    except (OSError, ValueError, AttributeError) as error:
        raise ConvkitError(f"{folder}: no readable result.json: {error}") from error
