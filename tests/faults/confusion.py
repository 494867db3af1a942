"""Every fault of the corpus against every finding reported: which causes are taken for others."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from convkit.host.findings.catalog import CATALOG
from faults.corpus import faults
from faults.scoring import FaultScore

# By fault: the causes reported that are not its own. `python -m faults --record` writes it.
RECORDED = Path(__file__).with_name("confusions.json")


def other_causes(score: FaultScore) -> list[str]:
    """Return the causes that a fault's run reports, or leads with, besides the fault's own.

    Symptoms, whose rank in the catalog is not zero, are not causes.
    """
    causes = {each for each in score.reported if CATALOG[each].rank == 0} | {*score.leading}
    return sorted(causes - {score.fault.code})


def recorded_causes() -> dict[str, list[str]]:
    """Return what `record` wrote; a fault without other causes has no entry."""
    known: dict[str, list[str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return known


def record(scores: Iterable[FaultScore]) -> None:
    """Write the other causes of the faults that were run, beside what is known of the others."""
    found = recorded_causes() | {score.fault.name: other_causes(score) for score in scores}
    known = {each.name for each in faults()}
    kept = {name: others for name, others in found.items() if others and name in known}
    RECORDED.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Confusion:
    """The faults of one code: how many, in how many the code leads, and what else was said.

    `instead` counts the codes that lead in its place, `beside` the causes that are reported with
    it. Symptoms, whose rank in the catalog is not zero, are not confusion.
    """

    code: str
    faults: int
    leads: int
    instead: dict[str, int]
    beside: dict[str, int]


def confusions(scores: Sequence[FaultScore]) -> list[Confusion]:
    """Return one row for each code that a fault should be named by, in the codes' order."""
    rows = []
    for code in sorted({score.fault.code for score in scores}):
        own = [score for score in scores if score.fault.code == code]
        wrong = [score for score in own if code not in score.leading]
        instead = Counter(each for score in wrong for each in score.leading or ("nothing",))
        beside = Counter(
            each for score in own for each in other_causes(score) if each not in score.leading
        )
        rows.append(
            Confusion(code, len(own), len(own) - len(wrong), _sorted(instead), _sorted(beside))
        )
    return rows


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def print_confusion(console: Console, scores: Sequence[FaultScore]) -> None:
    """Print the table; codes that always lead, with nothing beside them, share its last line."""
    table = Table(title="Confusion: what faults are reported as")
    for column in ("should be", "faults", "leads", "leads instead", "beside it"):
        table.add_column(column, justify="right" if column in ("faults", "leads") else "left")
    clean = []
    for row in confusions(scores):
        if not row.instead and not row.beside:
            clean.append(row.code)
            continue
        table.add_row(
            row.code, str(row.faults), str(row.leads), _listed(row.instead), _listed(row.beside)
        )
    console.print(table)
    console.print(f"Never confused: {', '.join(clean) or 'none'}")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{code} x{count}" if count > 1 else code for code, count in counts.items())
