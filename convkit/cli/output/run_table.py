"""A run's result on the terminal: a table of targets, then the findings."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import SEVERITY_STYLES, Part, change_lines, line, uncut
from convkit.host.record.display_text import bytes_text, first_line, seconds_text
from convkit.host.record.headroom import Worst, worst_comparison
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus, Verification
from convkit.host.record.run_summary import (
    LocatedFinding,
    causes,
    evidence_of,
    inapplicable_cases,
    left_out,
    seconds_of,
    verdict,
    verified_name,
    waived_text,
    waiver_lines,
)
from convkit.host.record.tried_sizes import sizes_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
# Below this width, seven columns would break words, so each target gets a few lines instead.
_TABLE_WIDTH = 100

_STYLES: dict[TargetStatus, str] = {
    "verified": "bold green",
    "waived": "bold yellow",
    "failed": "bold red",
    "broken": "bold red",
    "unproven": "bold yellow",
    "skipped": "bold yellow",
}


def summary(
    record: RunRecord, *, up_to_date: bool, folder: Path | None = None, link: str | None = None
) -> "RenderableType":
    """Return a run's summary for any terminal width, with or without color and Unicode; to be
    printed with `crop=False`, because paths stay whole.

    `up_to_date`: nothing had to run. `folder`: the run's folder, for the report's path. `link`: the
    run in MLflow.
    """
    return Encodable(_Summary(record, up_to_date, folder, link))


@dataclasses.dataclass(frozen=True)
class _Row:
    """One line of the table: a target under one release of its runtime."""

    target: TargetReport
    verification: Verification | None
    first: bool
    seconds: float
    one_output: bool

    @property
    def status(self) -> TargetStatus:
        return self.target.status if self.verification is None else self.verification.status

    @property
    def worst(self) -> Worst | None:
        return None if self.verification is None else worst_comparison(self.verification.cases)

    @property
    def runtime(self) -> str:
        label = self.verification.label if self.verification is not None else ""
        return f"{self.target.runtime} {label}" if label else self.target.runtime

    @property
    def evidence(self) -> str:
        return (
            self.verification.evidence
            if self.verification is not None
            else ", ".join(evidence_of(self.target))
        )


@dataclasses.dataclass(frozen=True)
class _Summary:
    record: RunRecord
    up_to_date: bool
    folder: Path | None
    link: str | None

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        ascii_only = options.ascii_only
        rows = _rows(self.record)
        if options.max_width >= _TABLE_WIDTH:
            yield _table(rows, ascii_only=ascii_only)
        else:
            yield from _stacked(rows, ascii_only=ascii_only)
        yield line()
        yield line(verdict(self.record), style="bold")
        for text in _decisions(self.record):
            yield line(text)
        if self.up_to_date:
            yield line("Up to date: every stage is cached, nothing had to run.")
        yield from self._repair_lines(options.max_width)
        yield from self._waiver_lines()
        for located in causes(self.record):
            yield from _finding_lines(located, options.max_width)
        yield from self._broken_lines()
        yield from left_out_lines(self.record)
        if (tried := sizes_line(self.record)) is not None:
            yield line(tried, style="dim")
        yield from self._links()

    def _repair_lines(self, width: int) -> "RenderResult":
        if self.record.repaired_from is None:
            return
        yield line()
        kept = "" if self.record.repair else ", with its recipe unchanged"
        yield line(f"Repairs run {self.record.repaired_from}{kept}:", style="bold")
        steps = [
            (each, "", f"then {first_line(each.outcome or '')}") for each in self.record.repair
        ]
        steps += [
            (each.step, "withdrawn, ", f"because {first_line(each.reason)}")
            for each in self.record.withdrawn
        ]
        for step, what, after in steps:
            yield line(f"round {step.round}, {what}{step.code} of {step.target}:", indent=2)
            yield from change_lines(step.change, width)
            yield line(after, style="dim", indent=4)

    def _waiver_lines(self) -> "RenderResult":
        if not (lines := waiver_lines(self.record)):
            return
        yield line()
        yield line("Waivers:", style="bold yellow")
        for text in lines:
            yield line(text, indent=2)

    def _broken_lines(self) -> "RenderResult":
        for stage in self.record.stages:
            if stage.status != "broken":
                continue
            yield line()
            yield line(
                (f"stage {stage.id} broke", "bold red"), f" after {seconds_text(stage.seconds)}"
            )
            reported = any(
                (stage.error or stage.reason) in finding.message for finding in stage.findings
            )
            if not reported:  # above, as a finding
                yield line(stage.error or stage.reason, indent=2)
            if stage.log is not None:
                log = stage.log if self.folder is None else str(self.folder / stage.log)
                yield uncut(f"log: {log}", indent=2)

    def _links(self) -> "RenderResult":
        links = []
        if self.folder is not None:
            links.append(("Report", str(self.folder / "report.html")))
        if self.link is not None:
            links.append(("MLflow", self.link))
        if links:
            yield line()
        for name, address in links:
            yield uncut((f"{name}: ", "bold"), address)


def left_out_lines(record: RunRecord) -> "RenderResult":
    """Yield what a run did not verify, with the reasons, and how many cases do not apply; nothing
    if it ran every case.
    """
    items, others = left_out(record), len(inapplicable_cases(record))
    if items or others:
        yield line()
    if items:
        yield line("Not verified:", style="bold yellow")
    for item in items:
        yield line((item.what, "bold"), f": {item.reason}", indent=2)
    if others:
        count = "1 case does" if others == 1 else f"{others} cases do"
        yield line(f"{count} not apply to this model; its report says why.", style="dim")


def _decisions(record: RunRecord) -> list[str]:
    """Return what decided about the targets that were scored on a task, one line per rule."""
    names: dict[str, list[str]] = {}
    for target in record.targets:
        for verification in target.verifications:
            if verification.evaluation is not None:
                name = verified_name(target, verification)
                names.setdefault(verification.decided_by, []).append(name)
    return [f"Decided by {rule}: {', '.join(scored)}" for rule, scored in names.items()]


def _rows(record: RunRecord) -> list[_Row]:
    rows = []
    for target in record.targets:
        seconds = seconds_of(record, target.name)
        verifications: tuple[Verification | None, ...] = target.verifications or (None,)
        for index, verification in enumerate(verifications):
            rows.append(
                _Row(target, verification, index == 0, seconds, len(record.contract.outputs) == 1)
            )
    return rows


def _status_text(status: TargetStatus, *, ascii_only: bool) -> "tuple[str, str]":
    match status:
        case "verified":
            mark = "ok" if ascii_only else "\N{CHECK MARK}"
        case "waived":
            mark = "w" if ascii_only else "\N{WARNING SIGN}"
        case "failed" | "broken":
            mark = "!!" if ascii_only else "\N{BALLOT X}"
        case "unproven":
            mark = "??" if ascii_only else "?"
        case "skipped":
            mark = "--" if ascii_only else "\N{EN DASH}"
    return f"{mark} {status}", _STYLES[status]


def _worst_text(row: _Row) -> "tuple[Part, ...]":
    worst = row.worst
    by_task = row.verification is not None and row.verification.decided_by == "task metric"
    if worst is None or (by_task and worst.passed):
        headline = row.target.headline if row.verification is None else row.verification.headline
        return ((first_line(headline), "dim" if row.status == "skipped" else ""),)
    where = (
        worst.case if worst.output is None or row.one_output else f"{worst.case}, {worst.output}"
    )
    return (str(worst), "" if worst.passed else "bold red"), f" in {where}"


def _table(rows: list[_Row], *, ascii_only: bool) -> "RenderableType":
    from rich import box
    from rich.table import Table

    table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("target", "status", "runtime"):
        table.add_column(heading, no_wrap=True)
    table.add_column("evidence", no_wrap=True)
    table.add_column("closest to its limit", ratio=1, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            # Lines, because rich would parse a plain string as markup.
            line(row.target.name if row.first else ""),
            line(_status_text(row.status, ascii_only=ascii_only)),
            line(row.runtime),
            row.evidence,
            line(*_worst_text(row)),
            bytes_text(row.target.size_bytes) if row.first and row.target.size_bytes else "",
            seconds_text(row.seconds) if row.first else "",
        )
    return table


def _stacked(rows: list[_Row], *, ascii_only: bool) -> "RenderResult":
    for row in rows:
        if row.first:
            size = f"  {bytes_text(row.target.size_bytes)}" if row.target.size_bytes else ""
            yield line((row.target.name, "bold"), (f"{size}  {seconds_text(row.seconds)}", "dim"))
        status = _status_text(row.status, ascii_only=ascii_only)
        yield line(status, f"  {row.runtime}  ({row.evidence or 'no evidence'})", indent=2)
        yield line(*_worst_text(row), indent=4)


def _finding_lines(located: LocatedFinding, width: int) -> "RenderResult":
    finding = located.finding
    yield line()
    style = SEVERITY_STYLES[finding.severity]
    yield line(
        (f"{finding.severity} {finding.code}", style),
        f" in {', '.join(located.where)}",
        (f" ({waived_text(located)})" if located.waived else "", "bold yellow"),
    )
    yield line(finding.message, indent=2)
    if place := str(finding.place):
        yield line(f"at {place}", style="dim", indent=2)
    if finding.remedy is not None and finding.advice is not None:
        label, text = finding.advice
        yield line((f"{label}: ", "bold"), text, indent=2)
        yield from change_lines(finding.remedy.change, width)
    if located.consequences:
        yield line("what follows from it:", indent=2)
    for each in located.consequences:
        where = "" if each.where == located.where else f" in {', '.join(each.where)}"
        yield line(f"{each.finding.code}{where}: {each.finding.message}", style="dim", indent=4)
