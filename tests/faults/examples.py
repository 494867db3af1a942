"""Examples for the pages of findings: what a run said of a fault, and how it changed the recipe."""

import difflib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from convkit.host.findings.consequences import cause_of
from convkit.host.home import Home
from convkit.host.repair.repair_command import RepairOutcome, repair_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.findings.finding import Finding
from faults.corpus import Fault, faults

EXAMPLES = Path("docs/finding_examples.json")


def read_examples() -> dict[str, dict[str, str]]:
    """Return the recorded examples by code."""
    return json.loads(EXAMPLES.read_text(encoding="utf-8")) if EXAMPLES.is_file() else {}


def one_of_each() -> Iterator[Fault]:
    """Yield a fault for each code, those first that the corpus has most of: one that a recipe's
    change repairs, where there is one.
    """
    chosen: dict[str, Fault] = {}
    corpus = list(faults())
    frequency = Counter(fault.code for fault in corpus)
    for fault in sorted(corpus, key=lambda each: -frequency[each.code]):
        known = chosen.setdefault(fault.code, fault)
        if known.repaired is not True and fault.repaired is True:
            chosen[fault.code] = fault
    yield from chosen.values()


def record_examples(chosen: list[Fault], folder: Path) -> list[str]:
    """Run faults with `--repair` and write what became of each; return those that went wrong.

    Codes for which the corpus has no fault get what such a run says of them beside it.
    """
    own = {fault.code for fault in faults()}
    wrong = []
    for fault in chosen:
        place = folder / fault.name.replace(":", "-").replace("_", "-")
        recipe = fault.write(place)
        options = RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)
        outcome = repair_recipe(options)
        found = next((each for each in outcome.first.findings if each.code == fault.code), None)
        if found is None or (fault.repaired is True) != outcome.repaired:
            wrong.append(fault.name)
            continue
        beside = {each.code: each for each in outcome.first.findings if each.code not in own}
        shown = [each for code, each in beside.items() if code not in read_examples()]
        write_examples(
            {each.code: _of_fault(fault, each, outcome, place) for each in (found, *shown)}
        )
    return wrong


def write_examples(added: dict[str, dict[str, str]]) -> None:
    """Add examples, by code, to those that are recorded."""
    examples = dict(sorted((read_examples() | added).items()))
    text = json.dumps(examples, indent=1, ensure_ascii=False)
    EXAMPLES.write_text(text + "\n", encoding="utf-8")


def _of_fault(
    fault: Fault, finding: Finding, outcome: RepairOutcome, place: Path
) -> dict[str, str]:
    example = {
        "fault": fault.description,
        "source": fault.source,
        **said(finding),
        "recipe": outcome.first.recipe_text,
        "change": change_of(outcome),
        "repaired": "" if fault.repaired is True else str(fault.repaired),
    }
    return {name: text.replace(f"{place}/", "") for name, text in example.items()}


def said(finding: Finding) -> dict[str, str]:
    """Return what convkit says of a finding."""
    return {
        "follows": cause_of(finding) or "",
        "message": finding.message,
        "place": str(finding.place),
        "remedy": finding.remedy.text if finding.remedy else "",
    }


def change_of(outcome: RepairOutcome) -> str:
    """Return what a repair changed in the recipe, as a diff; nothing if it is not repaired."""
    before, after = outcome.first.recipe_text.splitlines(), outcome.text.splitlines()
    lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
    return "\n".join(lines) + "\n" if outcome.repaired else ""
