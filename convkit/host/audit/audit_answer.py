"""`convkit audit`: everything a run's folder can prove offline: its integrity, its build, its
verification, and later events.
"""

import dataclasses
from pathlib import Path

from convkit.host.audit.audit_policy import Policy, violations
from convkit.host.audit.checks.chain_of_runs import lost_link, with_next
from convkit.host.audit.checks.contradictions import Contradiction, between_records, within_record
from convkit.host.audit.checks.events_after_the_run import since
from convkit.host.audit.checks.how_it_was_built import BuildInputs, build_inputs_of
from convkit.host.audit.checks.judged_again import judge_again, report_differs
from convkit.host.audit.checks.locks_and_store_records import with_locks, with_store
from convkit.host.audit.checks.provenance_against_run import with_provenance
from convkit.host.audit.checks.verified_targets import TargetProof, proofs_of
from convkit.host.audit.differences.lost_classes import LostClass, lost_since
from convkit.host.audit.past_runs.later_records import Acceptance, Reproduction
from convkit.host.audit.past_runs.run_integrity import (
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
from convkit.host.audit.past_runs.run_search import Artifact, LocatedRun
from convkit.host.audit.signing.signatures import SignatureCheck, check_signatures
from convkit.host.facts.convkit_code import own_code_digest
from convkit.host.home import Home
from convkit.host.record.provenance import Provenance
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import LocatedFinding, located_findings
from convkit.host.run.run_folder import read_record
from convkit.host.store.store import Store
from convkit.protocol.errors import ConvkitError


@dataclasses.dataclass(frozen=True)
class AuditAnswer:
    """Result of an audit.

    `making` is None if neither the record nor the provenance can be read. `artifact` is the subject
    of the audit, unless that was the run itself. `contradictions` are statements about the run that
    cannot all be true, `violations` what the policy requires and the run lacks, `signers` the
    trusted keys that signed its provenance, `notes` questions that could not be answered. `lost`
    is what each reproduction failed to reach again.
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
    contradictions: tuple[Contradiction, ...] = ()
    signatures: SignatureCheck = dataclasses.field(default_factory=SignatureCheck)
    signers: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lost: tuple[tuple[LostClass, ...], ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if anything is broken or violates the policy, else 0. The verdicts of the run's targets
        do not count here.
        """
        return 1 if self.integrity == "broken" or self.violations else 0

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        """All modifications: in the folder, then in the store."""
        return (*self.folder_check.problems, *self.store_check.problems)


def audit(located: LocatedRun, home: Home, policy: Policy | None = None) -> AuditAnswer:
    """Audit a run's folder. If there is a store, also check its copy of the run's artifacts; with a
    policy, also what it requires.
    """
    folder = located.folder
    notes: list[str] = []
    provenance, damage = readable_provenance(folder)
    record, unreadable = _record(folder)
    digester, store = Digester(), store_near(folder, home.root)
    checked = check_folder(folder, record, provenance, store, digester)
    later = since(folder, record)
    signed = check_signatures(folder, policy.sigstore if policy is not None else None)
    lost = lost_link(folder, provenance) if provenance is not None else None
    extra = [problem for problem in (damage, unreadable) if problem is not None]
    checked = _with_problems(checked, [*extra, *later.problems, *signed.problems])
    if provenance is None:
        notes.append(_without_provenance(checked))
    if record is None:
        notes.append(
            "result.json cannot be read; of what was verified, only the verdicts in provenance.json"
            " are known"
        )
    contradictions = list(later.contradictions)
    if record is not None:
        found, differences = _contradictions(folder, record, provenance, store)
        contradictions += found
        notes += differences
    notes += [note for note in (lost, signed.unchecked) if note]
    notes += [f"{name} has no digest: an earlier release wrote it" for name in later.undigested]
    stored = check_store(_artifacts(record, provenance), _keys(record, provenance), store, digester)
    broken = bool(checked.problems or stored.problems or contradictions)
    return AuditAnswer(
        run=record.id if record else provenance.run if provenance else folder.name,
        folder=str(folder),
        integrity="broken" if broken else "unproven" if provenance is None else "intact",
        folder_check=checked,
        store_check=stored,
        making=build_inputs_of(folder, record, provenance),
        verdict=record.status if record else None,
        targets=proofs_of(record, provenance),
        findings=located_findings(record) if record else (),
        reproductions=later.reproductions,
        acceptance=later.acceptance,
        artifact=located.artifact,
        contradictions=tuple(contradictions),
        signatures=signed,
        signers=_signers(signed, policy),
        violations=tuple(violations(folder, record, signed, policy, lost=lost)) if policy else (),
        notes=tuple(notes),
        lost=lost_since(later.reproductions, _skipped(record)),
    )


def _skipped(record: RunRecord | None) -> list[str]:
    targets = record.targets if record is not None else ()
    return [target.name for target in targets if target.status == "skipped"]


def _with_problems(checked: FolderCheck, more: list[FileProblem]) -> FolderCheck:
    """Return a folder's check with further problems, of files that it has not named already."""
    known = {problem.path for problem in checked.problems}
    problems = (*checked.problems, *(problem for problem in more if problem.path not in known))
    gone = {problem.path for problem in problems}
    return dataclasses.replace(
        checked,
        problems=problems,
        unproven=tuple(name for name in checked.unproven if name not in gone),
    )


def _record(folder: Path) -> tuple[RunRecord | None, FileProblem | None]:
    if not (folder / "result.json").exists():
        return None, FileProblem("result.json", "missing")
    try:
        return read_record(folder), None
    except ConvkitError as error:
        return None, FileProblem("result.json", "changed", str(error).removeprefix(f"{folder}: "))


def _contradictions(
    folder: Path, record: RunRecord, provenance: Provenance | None, store: Store | None
) -> tuple[list[Contradiction], tuple[str, ...]]:
    """Return the contradictions among a run's files, and notes on what judging again has shown."""
    found = [*within_record(folder, record), *with_locks(folder, record)]
    differences: tuple[str, ...] = ()
    found += with_store(record, store)
    if provenance is not None:
        found += between_records(folder, record, provenance)
        found += with_provenance(folder, record, provenance)
        found += with_next(folder, provenance)
    same_code = provenance is not None and provenance.code == own_code_digest()
    # A verification without its stage, which is named above, cannot be judged.
    stages = {stage.id for stage in record.stages}
    if all(each.stage in stages for target in record.targets for each in target.verifications):
        judged = judge_again(folder, record, same_code=same_code)
        found += judged.contradictions
        differences = judged.notes
    if same_code:
        found += report_differs(folder, record)
    return found, differences


def _signers(checked: SignatureCheck, policy: Policy | None) -> tuple[str, ...]:
    """Return the names of the trusted keys that signed a run's provenance."""
    made = [each for each in checked.signatures if each.what == "provenance"]
    names = [policy.signer(each) for each in made] if policy is not None else []
    return tuple(name for name in names if name is not None)


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
