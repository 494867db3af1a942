"""An audit's answer on the terminal: the verdict first, details below."""

import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from convkit.cli.output.history_table import STYLES
from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import line, section
from convkit.host.audit.audit_answer import AuditAnswer
from convkit.host.audit.checks.how_it_was_built import BuildInputs
from convkit.host.audit.checks.verified_targets import TargetProof, VerificationProof
from convkit.host.findings.consequences import cause_of
from convkit.host.record.display_text import bytes_text, sizes_text
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_summary import waived_text, waiver_text
from convkit.host.verdict.waivers import day_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_VERDICTS = {
    "intact": (
        "INTACT",
        "bold green",
        "every file is unchanged since it was sealed, and the run's statements agree",
    ),
    "broken": ("BROKEN", "bold red", "files have changed, or statements contradict each other"),
    "unproven": (
        "UNPROVEN",
        "bold yellow",
        "no damage was found, but not every file could be checked",
    ),
}
# Long lists are cut; --json has all of them.
_MOST_TOOLS = 40


def audit_text(answer: AuditAnswer, *, full: bool = False) -> "RenderableType":
    """Format an audit's answer for the terminal: verdict, integrity, verification, later events;
    with `full`, also the origin, the tools, the recipe, and every file, case and tolerance.
    """
    from rich.console import Group

    word, style, meaning = _VERDICTS[answer.integrity]
    head = line(f"Audit of run {answer.run}: ", (word, style), f", {meaning}.")
    parts: list[RenderableType] = [head, line(f"Signature: {_signed(answer)}.")]
    if answer.verdict is not None:
        parts.append(
            line(
                "Verification: ", (answer.verdict, STYLES[answer.verdict]), f" ({_counts(answer)})."
            )
        )
    making = answer.making if full else None
    for title, lines in (
        ("The policy is violated", iter(answer.violations)),
        ("Artifact", _artifact(answer)),
        ("Integrity", _bytes(answer)),
        ("Built from", _sources(making)),
        ("Built with", _making(making)),
        ("Verified", _verified(answer) if full else _verified_briefly(answer)),
        ("Waivers", _waivers(answer)),
        ("Findings", _findings(answer)),
        ("Afterwards", _since(answer)),
        ("Recipe", _recipe(making)),
    ):
        parts += section(title, lines)
    if not full:
        parts += [line(), line("--full: sources, tools, files, cases and the recipe", style="dim")]
    return Encodable(Group(*parts))


def _counts(answer: AuditAnswer) -> str:
    return (
        ", ".join(f"{target.target} {target.status}" for target in answer.targets) or "no targets"
    )


def _artifact(answer: AuditAnswer) -> Iterator[str]:
    if (artifact := answer.artifact) is None:
        return
    files = ", ".join(artifact.files) or "not among the files that the run recorded"
    yield f"{artifact.asked}: {files}"
    if artifact.target is not None:
        status = next(
            (proof.status for proof in answer.targets if proof.target == artifact.target), "unknown"
        )
        yield f"target {artifact.target}: {status}"
    yield (
        f"in {len(artifact.runs)} run{'' if len(artifact.runs) == 1 else 's'}:"
        f" {', '.join(artifact.runs)}"
    )


def _signed(answer: AuditAnswer) -> str:
    """Say who signed the run, and whether a policy trusts the key."""
    if answer.signers:
        return f"signed by {', '.join(answer.signers)}"
    if answer.signatures.unchecked:
        return "not checked"
    keys = dict.fromkeys(
        each.by for each in answer.signatures.signatures if each.what == "provenance"
    )
    if keys:
        return f"signed by {', '.join(keys)}; no policy says whether to trust it (--policy)"
    if answer.integrity == "intact":
        return "unsigned; consistent with itself"
    return "unsigned"


def _bytes(answer: AuditAnswer) -> Iterator[str]:
    folder, store = answer.folder_check, answer.store_check
    yield (
        f"{answer.folder}: {folder.checked} files ({bytes_text(folder.size)}) checked against"
        f" {folder.basis}"
    )
    if store.place is None:
        yield "store: none here; only the run's folder was checked"
    else:
        yield (
            f"store {store.place}: {store.objects} objects of {store.artifacts} artifacts checked"
        )
    if store.absent:
        yield f"no longer in the store: {len(store.absent)} artifacts of this run"
    for problem in answer.problems:
        yield f"!! {problem}"
    for contradiction in answer.contradictions:
        yield f"!! {contradiction}"
    yield from answer.notes
    if folder.unproven:
        yield f"unverified: {', '.join(folder.unproven)}"


def _sources(making: BuildInputs | None) -> Iterator[str]:
    if making is None:
        return
    if making.sources is None:
        yield "the recipe below names the source; only provenance.json has its digest"
        return
    for item in (*making.sources, *making.files):
        yield _dependency(item)


def _dependency(item: Dependency) -> str:
    word = {"source": "model", "original": "compared with", "file": "file"}[item.kind]
    digest = (
        ", ".join(f"{name} {value}" for name, value in item.digest.items())
        or "no digest: the recipe defines it"
    )
    notes = ", ".join(
        f"{name}={value}" for name, value in item.notes.items() if value not in ({}, None)
    )
    return f"{word} {item.name}: {' '.join(filter(None, [item.uri, digest]))}" + (
        f" ({notes})" if notes else ""
    )


def _making(making: BuildInputs | None) -> Iterator[str]:
    if making is None:
        return
    started = making.started
    when = (
        started
        if isinstance(started, str)
        else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    )
    yield f"convkit {making.convkit} on {when}"
    yield f"command: {shlex.join(making.command) or 'called from Python'}"
    yield "platform: " + ", ".join(
        f"{name} {value}" for name, value in making.host.items() if name != "tools"
    )
    seeds = (
        "only in provenance.json; see the recipe" if making.seeds is None else _pairs(making.seeds)
    )
    yield f"seeds: {seeds or 'none'}"
    for lock in making.locks:
        yield f"lock {lock.path}: sha256 {lock.sha256}"
    if not making.locks:
        yield "lock: none; the stages ran in convkit's own environment"
    imported = [use for use in making.tools if use.stages]
    for use in imported[:_MOST_TOOLS]:
        yield f"{use.name} {use.version} in {', '.join(use.stages)}"
    if len(making.tools) > len(imported[:_MOST_TOOLS]):
        more = len(making.tools) - len(imported[:_MOST_TOOLS])
        yield f"and {more} more packages, imported or installed (--json lists them)"


def _pairs(values: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _verified(answer: AuditAnswer) -> Iterator[str]:
    for target in answer.targets:
        yield from _target(target)


def _verified_briefly(answer: AuditAnswer) -> Iterator[str]:
    for target in answer.targets:
        cases = sum(len(each.cases) for each in target.verifications)
        evidence = ", ".join(dict.fromkeys(each.evidence for each in target.verifications))
        yield f"{target.target}: {target.status}, {cases} cases ({evidence or 'no evidence'})"
        for each in target.verifications:
            if each.closest:
                yield f"  closest to its limit: {each.closest}"
            elif each.headline:
                yield f"  {each.headline}"


def _target(target: TargetProof) -> Iterator[str]:
    what = ", ".join(filter(None, [target.runtime, target.device, target.precision]))
    yield (
        f"{target.target}: {target.status}"
        + (f" ({what})" if what else "")
        + f": {target.headline}"
    )
    for name, entry in target.files.items():
        yield f"  {name}: {bytes_text(entry.size)}, sha256 {entry.sha256}"
    for verification in target.verifications:
        yield from _verification(verification)


def _verification(verification: VerificationProof) -> Iterator[str]:
    release = f"under {verification.version}: " if verification.version else ""
    evidence = {
        "device": "on the device itself",
        "simulated": "simulated, not on the device",
        "skipped": "SKIPPED, nothing was verified",
    }.get(verification.evidence, verification.evidence)
    yield f"  {release}{verification.status}, {evidence}"
    for output, limits in verification.tolerances.items():
        yield f"    tolerance of {output}: " + (
            ", ".join(f"{k} {v:g}" for k, v in limits.items()) or "no limit was set"
        )
    if verification.cases:
        shown = [
            f"{case.case} ({sizes_text(case.sizes)}{'' if case.passed else '; FAILED'})"
            for case in verification.cases
        ]
        yield f"    {len(shown)} cases: " + ", ".join(shown)
    if verification.closest:
        yield f"    closest to its limit: {verification.closest}"
    for name, reason in verification.omitted.items():
        yield f"    not run: {name}: {reason}"


def _waivers(answer: AuditAnswer) -> Iterator[str]:
    today = day_of(time.time()).isoformat()
    for target in answer.targets:
        for each in target.waivers:
            gone = " (expired since)" if each.state == "active" and each.until < today else ""
            yield f"{target.target}: {waiver_text(each)}{gone}"


def _findings(answer: AuditAnswer) -> Iterator[str]:
    for located in answer.findings:
        finding = located.finding
        where = ", ".join(located.where)
        waived = f" ({waived_text(located)})" if located.waived else ""
        cause = cause_of(finding)
        follows = f" (follows from {cause})" if cause else ""
        yield f"{finding.severity} {finding.code} in {where}{waived}: {finding.message}{follows}"
    if not answer.findings and answer.verdict is not None:
        yield "none"


def _since(answer: AuditAnswer) -> Iterator[str]:
    if answer.acceptance is not None:
        said = answer.acceptance
        who, note = f" by {said.by}" if said.by else "", f": {said.note}" if said.note else ""
        yield f"accepted{who} on {_day(said.when)}{note}"
    for each, lost in zip(answer.reproductions, answer.lost, strict=True):
        classes = ", ".join(f"{name} {found}" for name, found in each.artifacts.items())
        yield (
            f"reproduced on {_day(each.when)}: {each.worst} ({classes}) on"
            f" {each.host.get('platform', 'unknown')}"
        )
        yield from (f"  worse than before: {item}" for item in lost if item.best is not None)
    if not answer.reproductions:
        yield "never reproduced, according to the files beside the run"


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def _recipe(making: BuildInputs | None) -> Iterator[str]:
    if making is not None:
        yield from making.recipe_text.splitlines()
