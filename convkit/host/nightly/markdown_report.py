"""Formats a nightly run as Markdown, and its table's rows. Pure."""

from collections.abc import Iterator

from convkit.host.nightly.nightly_record import NightlyRun, RecipeResult
from convkit.host.record.safe_text import markdown_text

_MARKS = {"green": "✓", "regressed": "✗", "broken": "✗"}
_MOST_NEWER = 8


def summary_rows(run: NightlyRun) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield a row per recipe: name, status, verdicts, reproduction of the baseline, seconds."""
    for each in run.recipes:
        yield (
            each.recipe,
            f"{_MARKS[each.status]} {each.status}",
            _verdicts(each),
            _baseline(each),
            f"{each.seconds:.0f}",
        )


def outcome_text(run: NightlyRun) -> str:
    """Summarize a nightly run in one sentence."""
    bad = [each.recipe for each in run.recipes if each.status != "green"]
    total = len(run.asked)
    if bad:
        text = f"{len(bad)} of {_recipes(total)} regressed or broke: {', '.join(bad)}."
    elif len(run.recipes) < total:
        text = f"Unfinished: {len(run.recipes)} of {_recipes(total)} checked."
    else:
        text = f"{_recipes(total)} passed."
    damaged = len(run.environments)
    if damaged:
        text += f" {damaged} environment{'' if damaged == 1 else 's'} damaged."
    return text


def markdown(run: NightlyRun) -> str:
    """Format a nightly run as Markdown, for a CI job's page."""
    lines = [f"# Nightly run {markdown_text(run.id)}", "", markdown_text(outcome_text(run)), ""]
    lines += [
        "| recipe | status | targets | baseline | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(markdown_text(part) for part in row)} |" for row in summary_rows(run)]
    for each in run.recipes:
        lines += _details(each)
    if run.environments:
        lines += ["", "## Damaged environments", ""]
        lines += [f"- **{markdown_text(text)}**" for text in run.environments]
    lines += _canaries(run)
    return "\n".join(lines) + "\n"


def _details(each: RecipeResult) -> list[str]:
    if not (each.faults or each.improvements or each.notes or each.waivers or each.elsewhere):
        return []
    return [
        *("", f"## {markdown_text(each.recipe)}", ""),
        *(f"- **{markdown_text(fault.message)}**" for fault in each.faults),
        *(f"- waiver: {markdown_text(text)}" for text in each.waivers),
        *(f"- better: {markdown_text(text)}" for text in each.improvements),
        *(f"- another processor: {markdown_text(text)}" for text in each.elsewhere),
        *(f"- {markdown_text(text)}" for text in each.notes),
    ]


def _canaries(run: NightlyRun) -> list[str]:
    if not run.canaries:
        return []
    lines = [
        *("", "## With newer tools (fails nothing)", ""),
        "| recipe | tools | status | headline | newer |",
        "| --- | --- | --- | --- | --- |",
    ]
    for canary in run.canaries:
        newer = ", ".join(canary.newer[:_MOST_NEWER])
        row = (canary.recipe, canary.kind, canary.status, canary.headline, newer)
        lines.append(f"| {' | '.join(markdown_text(part) for part in row)} |")
    changed = [
        f"- {markdown_text(canary.recipe)}, {canary.kind} tools: {markdown_text(line)}"
        for canary in run.canaries
        for line in canary.changed
    ]
    return [*lines, "", "What they changed:", "", *changed] if changed else lines


def _recipes(count: int) -> str:
    return f"{count} recipe{'' if count == 1 else 's'}"


def _verdicts(each: RecipeResult) -> str:
    counts: dict[str, int] = {}
    for status in each.verdicts.values():
        counts[status] = counts.get(status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "-"


def _baseline(each: RecipeResult) -> str:
    if each.damaged:
        return "DAMAGED"
    if each.reproduction is not None:
        return each.reproduction.worst
    return "not reproduced" if each.baseline else "none"
