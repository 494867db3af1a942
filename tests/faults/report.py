"""Prints the corpus's score as a table, and every miss with what was found instead."""

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from faults.confusion import print_confusion
from faults.scoring import DETECTED, NAMED_RIGHT, REPAIRED, FaultScore, HealthyScore


def print_report(faults: Sequence[FaultScore], healthy: Sequence[HealthyScore]) -> bool:
    """Print the score; return True where it reaches what the corpus must reach."""
    repairable = [score for score in faults if score.repaired is not None]
    detected = _Share("detected", sum(score.detected for score in faults), len(faults), DETECTED)
    named = _Share(
        "named right", sum(score.misnamed is None for score in faults), len(faults), NAMED_RIGHT
    )
    repaired = _Share(
        "repaired", sum(bool(score.repaired) for score in repairable), len(repairable), REPAIRED
    )
    alarms = sum(bool(score.alarms) for score in healthy)
    table = Table(title="Corpus of faults")
    for column in ("", "score", "of", "share", "wanted"):
        table.add_column(column, justify="left" if not column else "right")
    for share in (detected, named, repaired):
        style = None if share.reached else "red"
        table.add_row(
            share.what,
            str(share.count),
            str(share.total),
            f"{share.value:.0%}",
            f"{share.wanted:.0%}",
            style=style,
        )
    table.add_row(
        "false alarms", str(alarms), str(len(healthy)), "", "0", style="red" if alarms else None
    )
    console = Console()
    for line in (
        *itertools.chain(*map(_miss, _missed(faults))),
        *itertools.chain(*map(_alarm, healthy)),
    ):
        console.print(line, soft_wrap=True)
    console.print(table)
    hidden = [score.hidden for score in faults if score.hidden is not None]
    console.print(
        f"{sum(hidden)} of {len(hidden)} that onnxruntime's CPU is known to hide pass there as they"
        " are."
    )
    console.print(
        f"{len(faults) - len(repairable)} of {len(faults)} faults have no repair in the recipe, and"
        " say so."
    )
    print_confusion(console, faults)
    harmed = [score for score in faults if score.harm]
    return all(share.reached for share in (detected, named, repaired)) and not (alarms or harmed)


class _Share:
    """How many of a number there are, against the share that is wanted."""

    def __init__(self, what: str, count: int, total: int, wanted: float) -> None:
        self.what, self.count, self.total, self.wanted = what, count, total, wanted

    @property
    def value(self) -> float:
        return self.count / self.total if self.total else 1.0

    @property
    def reached(self) -> bool:
        return self.value >= self.wanted


def _missed(faults: Sequence[FaultScore]) -> list[FaultScore]:
    return [
        score
        for score in faults
        if not score.detected
        or score.misnamed
        or score.repaired is False
        or score.outdated
        or score.hidden is False
        or score.harm
    ]


def _miss(score: FaultScore) -> Iterator[Text]:
    what = [] if score.detected else ["not detected"]
    what += [f"not named right: {score.misnamed}"] if score.misnamed else []
    what += [f"not repaired: {score.ending}"] if score.repaired is False else []
    what += [f"repaired, though {score.fault.repaired}"] if score.outdated else []
    what += ["said to pass on the CPU as it is, and does not"] if score.hidden is False else []
    what += [f"made worse by the remedy: {'; '.join(score.harm)}"] if score.harm else []
    return _block(
        f"{score.fault.name}: {score.fault.description} ({score.fault.source})",
        [*what, *score.found],
    )


def _alarm(score: HealthyScore) -> Iterator[Text]:
    if score.alarms:
        yield from _block(
            f"{score.model.name}: {score.model.description}: false alarm", score.alarms
        )


def _block(title: str, lines: Sequence[str]) -> Iterator[Text]:
    yield Text(title, style="bold")
    for line in lines:
        yield Text(f"  {line}")
    yield Text()
