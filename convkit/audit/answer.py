"""`convkit audit`: everything a run's folder can prove offline: its integrity, its build, its
verification, and later events.
"""

import dataclasses
from pathlib import Path

from convkit.audit.integrity import (
    Digester,
    FileProblem,
    FolderCheck,
    IntegrityStatus,
    StoreCheck,
    check_folder,
    check_store,
    readable_provenance,
    store_near,
)
from convkit.audit.locating import Artifact, Located
from convkit.audit.making import BuildInputs, build_inputs_of
from convkit.audit.proof import TargetProof, proofs_of
from convkit.audit.reproductions import (
    Acceptance,
    Reproduction,
    acceptance_of,
    read_reproduction,
    reproduction_files,
)
from convkit.errors import ConvkitError, ProvenanceError
from convkit.execute.run_folder import read_record
from convkit.home import Home
from convkit.record.model import RunRecord
from convkit.record.provenance import Provenance
from convkit.record.summary import Located as LocatedFinding
from convkit.record.summary import located_findings


@dataclasses.dataclass(frozen=True)
class Answer:
    """Result of an audit.

    `making` is None if neither the record nor the provenance can be read. `artifact` is the subject
    of the audit, unless that was the run itself. `notes` list questions that could not be answered.
    """

    run: str
    folder: str
    integrity: IntegrityStatus
    folder_check: FolderCheck
    store_check: StoreCheck
    making: BuildInputs | None
    verdict: str | None
    targets: tuple[TargetProof, ...] = ()
    findings: tuple[LocatedFinding, ...] = ()
    reproductions: tuple[Reproduction, ...] = ()
    acceptance: Acceptance | None = None
    artifact: Artifact | None = None
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if anything is broken, else 0. The verdicts of the run's targets do not count here."""
        return 1 if self.integrity == "broken" else 0

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        """All modifications: in the folder, then in the store."""
        return (*self.folder_check.problems, *self.store_check.problems)


def audit(located: Located, home: Home) -> Answer:
    """Audit a run's folder. If there is a store, also check its copy of the run's artifacts."""
    folder = located.folder
    notes: list[str] = []
    provenance, damage = readable_provenance(folder)
    record, unreadable = _record(folder)
    digester, store = Digester(), store_near(folder, home.root)
    checked = check_folder(folder, record, provenance, store, digester)
    later, acceptance, lost = _since(folder)
    extra = [problem for problem in (damage, unreadable) if problem is not None]
    known = {problem.path for problem in checked.problems}
    problems = (
        *checked.problems,
        *(problem for problem in (*extra, *lost) if problem.path not in known),
    )
    gone = {problem.path for problem in problems}
    checked = dataclasses.replace(
        checked,
        problems=problems,
        unproven=tuple(name for name in checked.unproven if name not in gone),
    )
    if provenance is None:
        notes.append(_without_provenance(checked))
    if record is None:
        notes.append(
            "result.json cannot be read; of what was verified, only the verdicts in provenance.json"
            " are known"
        )
    stored = check_store(_artifacts(record, provenance), _keys(record, provenance), store, digester)
    broken = bool(checked.problems or stored.problems)
    return Answer(
        run=record.id if record else provenance.run if provenance else folder.name,
        folder=str(folder),
        integrity="broken" if broken else "unproven" if provenance is None else "intact",
        folder_check=checked,
        store_check=stored,
        making=build_inputs_of(folder, record, provenance),
        verdict=record.status if record else None,
        targets=proofs_of(record, provenance),
        findings=located_findings(record) if record else (),
        reproductions=tuple(sorted(later, key=lambda each: each.when)),
        acceptance=acceptance,
        artifact=located.artifact,
        notes=tuple(notes),
    )


def _record(folder: Path) -> tuple[RunRecord | None, FileProblem | None]:
    if not (folder / "result.json").exists():
        return None, FileProblem("result.json", "missing")
    try:
        return read_record(folder), None
    except ConvkitError as error:
        return None, FileProblem("result.json", "changed", str(error).removeprefix(f"{folder}: "))


def _since(folder: Path) -> tuple[list[Reproduction], Acceptance | None, list[FileProblem]]:
    """Return events since the run, and related files that cannot be read."""
    found: list[Reproduction] = []
    problems: list[FileProblem] = []
    for path in reproduction_files(folder):
        try:
            found.append(read_reproduction(path))
        except ProvenanceError as error:
            problems.append(
                FileProblem(f"../{path.parent.name}/{path.name}", "unreadable", str(error))
            )
    try:
        return found, acceptance_of(folder), problems
    except ProvenanceError as error:
        return (
            found,
            None,
            [*problems, FileProblem(f"../{folder.name}.accepted.json", "unreadable", str(error))],
        )


def _keys(record: RunRecord | None, provenance: Provenance | None) -> list[str]:
    stages = record.stages if record else tuple(provenance.stages.values()) if provenance else ()
    return [stage.key for stage in stages if stage.key]


def _artifacts(record: RunRecord | None, provenance: Provenance | None) -> list[str]:
    stages = record.stages if record else tuple(provenance.stages.values()) if provenance else ()
    return [stage.artifact for stage in stages if stage.artifact is not None]


def _without_provenance(checked: FolderCheck) -> str:
    """Explain what a run without a readable provenance cannot prove."""
    proven = (
        f"{checked.checked} built files were compared with the store's manifests instead"
        if checked.checked
        else "the store has no manifest of its models either"
    )
    return (
        "without a readable provenance.json (older releases of convkit wrote none) the folder alone"
        f" does not prove its bytes; {proven}, and {len(checked.unproven)} files are unverified"
    )
