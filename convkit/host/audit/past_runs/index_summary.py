"""Makes the summary of a run that is searched later (`search_index.py`)."""

from pathlib import Path

from convkit.host.audit.past_runs.indexed_run import IndexedPackage, Material, RunSummary
from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.record.provenance import Provenance
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import located_findings
from convkit.host.run.run_folder import read_record


def summarize(folder: Path) -> RunSummary:
    """Return a run's summary; raises ConvkitError if its record cannot be read."""
    return _summarize(read_record(folder), readable_provenance(folder)[0])


def _summarize(record: RunRecord, provenance: Provenance | None) -> RunSummary:
    codes: dict[str, list[str]] = {}
    for located in located_findings(record):
        places = codes.setdefault(located.finding.code, [])
        places += [where for where in located.where if where not in places]
    dependencies = provenance.dependencies if provenance is not None else ()
    return RunSummary(
        run=record.id,
        recipe=record.recipe,
        started=record.started,
        seconds=record.ended - record.started,
        status=record.status,
        targets={target.name: target.status for target in record.targets},
        stages={stage.id: stage.target for stage in record.stages},
        packages=_packages(record, dependencies),
        materials=tuple(_material(item) for item in dependencies if item.kind != "tool"),
        files={name: entry.sha256 for name, entry in provenance.files.items()}
        if provenance is not None
        else {},
        codes=codes,
    )


def _packages(
    record: RunRecord, dependencies: tuple[Dependency, ...]
) -> tuple[IndexedPackage, ...]:
    imported: dict[tuple[str, str], list[str]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            imported.setdefault((name, version), []).append(stage.id)
    installed = {
        (item.name, str(item.notes["version"])): item.notes.get("installed", ())
        for item in dependencies
        if item.kind == "tool"
    }
    return tuple(
        IndexedPackage(*key, tuple(imported.get(key, ())), tuple(installed.get(key, ())))
        for key in sorted({*imported, *installed})
    )


def _material(item: Dependency) -> Material:
    revision = item.notes.get("revision") or item.notes.get("version")
    identities = [*item.digest.values(), *([str(revision)] if revision else [])]
    return Material(item.kind, item.name, item.uri or "", tuple(identities))
