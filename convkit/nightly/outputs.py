"""A night for people and for CI: Markdown, JUnit XML, a table. Pure."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from convkit.nightly.model import Night, RecipeNight

_MARKS = {"green": "✓", "regression": "✗", "broken": "✗"}


def summary_rows(night: Night) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield a row for each recipe: name, status, verdicts, how the baseline came out, seconds."""
    for each in night.recipes:
        yield (
            each.recipe,
            f"{_MARKS[each.status]} {each.status}",
            _verdicts(each),
            _baseline(each),
            f"{each.seconds:.0f}",
        )


def markdown(night: Night) -> str:
    """Return a night as Markdown, for a CI job's page."""
    lines = [f"# Night {night.id}", "", _outcome(night), ""]
    lines += [
        "| recipe | status | targets | baseline | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(_cell(part) for part in row)} |" for row in summary_rows(night)]
    for each in night.recipes:
        if each.regressions or each.notes:
            lines += ["", f"## {each.recipe}", ""]
            lines += [f"- **{_cell(text)}**" for text in each.regressions]
            lines += [f"- {_cell(text)}" for text in each.notes]
    if night.canaries:
        lines += ["", "## Newer tools (they fail nothing)", ""]
        lines += [
            "| recipe | tools | status | headline | newer |",
            "| --- | --- | --- | --- | --- |",
        ]
        for canary in night.canaries:
            row = (
                canary.recipe,
                canary.kind,
                canary.status,
                canary.headline,
                ", ".join(canary.newer[:8]),
            )
            lines.append(f"| {' | '.join(_cell(part) for part in row)} |")
    return "\n".join(lines) + "\n"


def junit(night: Night) -> str:
    """Return a night as JUnit XML: a suite for each recipe, a case for each target and for the
    baseline.
    """
    suites = ET.Element("testsuites", name=f"convkit nightly {night.id}")
    for each in night.recipes:
        suite = ET.SubElement(suites, "testsuite", name=each.recipe, time=f"{each.seconds:.1f}")
        for target, status in each.verdicts.items():
            case = ET.SubElement(suite, "testcase", classname=each.recipe, name=target)
            told = "\n".join(text for text in each.regressions if text.startswith(f"{target} "))
            if told:
                ET.SubElement(case, "failure", message=told.splitlines()[0]).text = told
            elif status == "skipped":
                ET.SubElement(case, "skipped")
        rest = [
            text
            for text in each.regressions
            if not any(text.startswith(f"{name} is ") for name in each.verdicts)
        ]
        whole = ET.SubElement(suite, "testcase", classname=each.recipe, name="night")
        if rest:
            tag = "error" if each.status == "broken" else "failure"
            ET.SubElement(whole, tag, message=rest[0].splitlines()[0]).text = "\n".join(rest)
        suite.set("tests", str(len(each.verdicts) + 1))
        suite.set("failures", str(len(suite.findall(".//failure"))))
        suite.set("errors", str(len(suite.findall(".//error"))))
        suite.set("skipped", str(len(suite.findall(".//skipped"))))
    ET.indent(suites)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"
    )


def _outcome(night: Night) -> str:
    bad = [each.recipe for each in night.recipes if each.status != "green"]
    if not bad:
        return f"All {len(night.recipes)} recipes are green."
    return f"{len(bad)} of {len(night.recipes)} recipes are not green: {', '.join(bad)}."


def _verdicts(each: RecipeNight) -> str:
    counts: dict[str, int] = {}
    for status in each.verdicts.values():
        counts[status] = counts.get(status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "-"


def _baseline(each: RecipeNight) -> str:
    if each.damaged:
        return "DAMAGED"
    return each.reproduction.worst if each.reproduction is not None else "none accepted"


def _cell(text: str) -> str:
    """Return text that fits one cell of a Markdown table, and means nothing to Markdown or HTML."""
    plain = " ".join(text.split())
    for mark in "\\|*_`<>":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
