"""What was verified for each target: with which inputs, tolerance and evidence."""

import dataclasses

from convkit.host.record.headroom import worst_comparison
from convkit.host.record.provenance import FileDigest, Provenance
from convkit.host.record.run_record import AppliedWaiver, RunRecord, TargetReport, Verification
from convkit.protocol.same_fields import taken_from


@dataclasses.dataclass(frozen=True)
class CaseProof:
    """A case and its axis sizes."""

    case: str
    sizes: dict[str, int]
    passed: bool


@dataclasses.dataclass(frozen=True)
class VerificationProof:
    """One verification: `tolerances` by output, `closest` the comparison closest to its limit, or
    empty if there was no limit.
    """

    version: str | None
    status: str
    evidence: str
    headline: str
    tolerances: dict[str, dict[str, float]]
    cases: tuple[CaseProof, ...]
    omitted: dict[str, str]
    closest: str


@dataclasses.dataclass(frozen=True)
class TargetProof:
    """A target: configuration, verdict, files by path in the run's folder, waivers."""

    target: str
    runtime: str
    device: str
    precision: str
    status: str
    headline: str
    verifications: tuple[VerificationProof, ...]
    files: dict[str, FileDigest]
    waivers: tuple[AppliedWaiver, ...] = ()


def proofs_of(record: RunRecord | None, provenance: Provenance | None) -> tuple[TargetProof, ...]:
    """Return what was verified; only the verdicts if only the provenance can be read."""
    files = provenance.files if provenance is not None else {}
    if record is not None:
        return tuple(_target(target, files) for target in record.targets)
    verdicts = provenance.verdicts if provenance is not None else {}
    return tuple(
        TargetProof(
            name, "", "", "", status, "according to provenance.json", (), _files_of(name, files)
        )
        for name, status in verdicts.items()
    )


def _target(target: TargetReport, files: dict[str, FileDigest]) -> TargetProof:
    return taken_from(
        TargetProof,
        target,
        target=target.name,
        verifications=tuple(map(_verification, target.verifications)),
        files=_files_of(target.name, files),
    )


def _verification(verification: Verification) -> VerificationProof:
    tolerances: dict[str, dict[str, float]] = {}
    for case in verification.cases:
        for output in case.outputs:
            tolerances.setdefault(output.output, output.limits)
            if tolerances[output.output] != output.limits:
                tolerances[f"{output.output} in {case.case}"] = output.limits
    worst = worst_comparison(verification.cases)
    # If the task metric decides, tensors have no limits to be close to.
    limited = worst is not None and not (worst.passed and worst.limit is None)
    return taken_from(
        VerificationProof,
        verification,
        tolerances=tolerances,
        cases=tuple(CaseProof(case.case, case.sizes, case.passed) for case in verification.cases),
        omitted={case.name: case.reason for case in verification.omitted},
        closest=f"{worst} in {worst.case}" if worst is not None and limited else "",
    )


def _files_of(target: str, files: dict[str, FileDigest]) -> dict[str, FileDigest]:
    return {name: entry for name, entry in files.items() if name.startswith(f"models/{target}/")}
