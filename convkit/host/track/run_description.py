"""Markdown summaries, which MLflow shows as a run's description. Pure functions."""

from convkit.host.record.display_text import bytes_text, seconds_text
from convkit.host.record.headroom import worst_comparison
from convkit.host.record.next_commands import next_commands
from convkit.host.record.run_record import RunRecord, StageReport, TargetReport, Verification
from convkit.host.record.run_summary import (
    LocatedFinding,
    causes,
    evidence_of,
    left_out,
    seconds_of,
    severity_text,
    verdict,
    waiver_lines,
)
from convkit.host.record.safe_text import markdown_text as _plain

MARKS = {
    "verified": "✅ verified",
    "waived": "🟡 waived",
    "failed": "❌ failed",
    "broken": "💥 broken",
    "unproven": "❔ unproven",
    "skipped": "⚠️ skipped",
}


def experiment_note(recipe: str, page: str) -> str:
    """Return what an experiment's page says about the runs in it. `page`: the address of its runs
    in convkit's columns.
    """
    return (
        f"Runs of the convkit recipe **{_plain(recipe)}**:"
        f" [verdict, worst error, size and latency]({page}). A run's name begins with its verdict,"
        " its page with what failed and why; below it are its targets' verifications."
        " `error_of_limit` is the worst error, where 1 is the limit; `size_mib` what was built;"
        " `latency_ms` one typical call, of the slowest target, without warm-up."
    )


def summary_note(record: RunRecord) -> str:
    """Return the run's verdict with the commands that lead on, what failed and why, a table of
    targets, the findings, and what was not verified. MLflow shows the first few lines, and folds
    the rest.
    """
    parts = [f"**{_plain(verdict(record))}**"]
    if commands := next_commands(record):
        # In the first lines, because the page folds the rest above its long table of metrics.
        parts[0] += f". Next: {', '.join(f'**{_plain(command)}**' for command, _ in commands)}"
    failing = [
        target for target in record.targets if target.status in ("failed", "waived", "broken")
    ]
    why = [f"- **{_plain(target.name)}**: {_plain(target.headline)}" for target in failing]
    if why:
        parts.append("\n".join(why))
    if record.description:
        parts.append(_plain(record.description))
    rows = [
        "| target | status | runtime | evidence | closest to its limit | case | size | time |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows += [_target_row(record, target) for target in record.targets]
    parts.append("\n".join(rows))
    if waivers := waiver_lines(record):
        parts.append("### Waivers\n" + "\n".join(f"- {_plain(line)}" for line in waivers))
    if findings := causes(record):
        lines = [
            f"- **{located.finding.code}** ({_plain(severity_text(located))};"
            f" {_plain(', '.join(located.where))}) {_plain(located.finding.message)}"
            f"{_following(located)}"
            for located in findings
        ]
        parts.append("### Findings\n" + "\n".join(lines))
    if items := left_out(record):
        parts.append(
            "### Not verified\n"
            + "\n".join(f"- {_plain(i.what)}: {_plain(i.reason)}" for i in items)
        )
    return "\n\n".join(parts)


def model_note(record: RunRecord, target: TargetReport) -> str:
    """Return what a built model's page says of it: its verdict, why, and what to do."""
    parts = [f"{MARKS[target.status]}: {_plain(target.headline)}"]
    leading = target.leading
    if leading is not None and leading.advice is not None:
        label, text = leading.advice
        parts.append(f"**{label.capitalize()}**: {_plain(text)}")
    evidence = ", ".join(evidence_of(target)) or "none"
    parts.append(f"Evidence: {evidence}. Run {record.id} of the recipe {_plain(record.recipe)}.")
    return "\n\n".join(parts)


def _following(located: LocatedFinding) -> str:
    codes = dict.fromkeys(each.finding.code for each in located.consequences)
    return f"; from it follow {', '.join(codes)}" if codes else ""


def _target_row(record: RunRecord, target: TargetReport) -> str:
    cases = [case for verification in target.verifications for case in verification.cases]
    worst = worst_comparison(cases)
    releases = ", ".join(dict.fromkeys(v.version for v in target.verifications if v.version))
    cells = (
        target.name,
        MARKS[target.status],
        f"{target.runtime} {releases}".strip(),
        ", ".join(evidence_of(target)),
        str(worst) if worst is not None else "",
        worst.case if worst is not None else "",
        bytes_text(target.size_bytes) if target.size_bytes else "",
        seconds_text(seconds_of(record, target.name)),
    )
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def stage_note(stage: StageReport, verification: Verification | None) -> str:
    """Return the description of a stage's entry."""
    lines = [f"**{stage.status}**: {_plain(stage.reason)}"]
    if stage.error is not None:
        lines.append(_plain(stage.error))
    if verification is not None:
        lines.append(f"{MARKS[verification.status]}: {_plain(verification.headline)}")
        lines += [
            f"Not run: case {_plain(item.name)}: {_plain(item.reason)}"
            for item in verification.omitted
        ]
    lines += [f"- **{finding.code}** {_plain(finding.message)}" for finding in stage.findings]
    return "\n\n".join(lines)
