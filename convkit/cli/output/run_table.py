"""A run's result on the terminal: a table of targets, then the findings."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.cli.output.repair_text import change_text
from convkit.cli.output.safe_text import Encodable
from convkit.host.record.display_text import bytes_text, first_line, seconds_text
from convkit.host.record.headroom import Worst, worst_comparison
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus, Verification
from convkit.host.record.run_summary import (
    LocatedFinding,
    evidence_of,
    inapplicable_cases,
    left_out,
    located_findings,
    seconds_of,
    verdict,
    verified_name,
    waived_text,
    waiver_lines,
)
from convkit.protocol.json_codec import encode

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

# Below this width, seven columns would break words, so each target gets a few lines instead.
_TABLE_WIDTH = 100

_STYLES: dict[TargetStatus, str] = {
    "verified": "bold green",
    "waived": "bold yellow",
    "failed": "bold red",
    "broken": "bold red",
    "skipped": "bold yellow",
}
_SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def record_json(record: RunRecord) -> str:
    """Return the record as JSON, as in `result.json`."""
    return json.dumps(encode(record), indent=2, ensure_ascii=False)


def summary(
    record: RunRecord, *, up_to_date: bool, folder: Path | None = None, link: str | None = None
) -> "RenderableType":
    """Return a run's summary for any terminal width, with or without color and Unicode.

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
        from rich.text import Text

        ascii_only = options.ascii_only
        rows = _rows(self.record)
        if options.max_width >= _TABLE_WIDTH:
            yield _table(rows, ascii_only=ascii_only)
        else:
            yield from _stacked(rows, ascii_only=ascii_only)
        yield Text()
        yield Text(verdict(self.record), style="bold")
        for line in _decisions(self.record):
            yield Text(line)
        if self.up_to_date:
            yield Text("Up to date: every stage is cached, nothing had to run.")
        yield from self._repair_lines()
        yield from self._waiver_lines()
        for located in located_findings(self.record):
            yield from _finding_lines(located)
        yield from self._broken_lines()
        yield from left_out_lines(self.record)
        yield from self._links()

    def _repair_lines(self) -> "RenderResult":
        from rich.padding import Padding
        from rich.text import Text

        if self.record.repaired_from is None:
            return
        yield Text()
        kept = "" if self.record.repair else ", with its recipe unchanged"
        yield Text(f"Repairs run {self.record.repaired_from}{kept}:", style="bold")
        for step in self.record.repair:
            text = Text.assemble(
                f"round {step.round}, {step.code} of {step.target}: ",
                (change_text(step.change), "cyan"),
            )
            yield Padding(text, (0, 0, 0, 2), expand=False)
            yield Padding(
                Text(f"then {first_line(step.outcome or '')}", style="dim"),
                (0, 0, 0, 4),
                expand=False,
            )

        for undone in self.record.withdrawn:
            step = undone.step
            text = Text.assemble(
                f"round {step.round}, withdrawn, {step.code} of {step.target}: ",
                (change_text(step.change), "cyan"),
            )
            yield Padding(text, (0, 0, 0, 2), expand=False)
            yield Padding(
                Text(f"because {first_line(undone.reason)}", style="dim"),
                (0, 0, 0, 4),
                expand=False,
            )

    def _waiver_lines(self) -> "RenderResult":
        from rich.padding import Padding
        from rich.text import Text

        if not (lines := waiver_lines(self.record)):
            return
        yield Text()
        yield Text("Waivers:", style="bold yellow")
        for line in lines:
            yield Padding(Text(line), (0, 0, 0, 2), expand=False)

    def _broken_lines(self) -> "RenderResult":
        from rich.padding import Padding
        from rich.text import Text

        for stage in self.record.stages:
            if stage.status != "broken":
                continue
            yield Text()
            yield Text.assemble(
                (f"stage {stage.id} broke", "bold red"), f" after {seconds_text(stage.seconds)}"
            )
            reported = any(
                (stage.error or stage.reason) in finding.message for finding in stage.findings
            )
            if not reported:  # above, as a finding
                yield Padding(Text(stage.error or stage.reason), (0, 0, 0, 2), expand=False)
            if stage.log is not None:
                log = stage.log if self.folder is None else str(self.folder / stage.log)
                yield Padding(Text(f"log: {log}", overflow="fold"), (0, 0, 0, 2), expand=False)

    def _links(self) -> "RenderResult":
        from rich.text import Text

        links = []
        if self.folder is not None:
            links.append(("Report", str(self.folder / "report.html")))
        if self.link is not None:
            links.append(("MLflow", self.link))
        if links:
            yield Text()
        for name, address in links:
            # Never wrap a path: people copy it.
            yield Text.assemble((f"{name}: ", "bold"), address, overflow="fold")


def left_out_lines(record: RunRecord) -> "RenderResult":
    """Yield what a run did not verify, with the reasons, and how many cases do not apply; nothing
    if it ran every case.
    """
    from rich.padding import Padding
    from rich.text import Text

    items, others = left_out(record), len(inapplicable_cases(record))
    if items or others:
        yield Text()
    if items:
        yield Text("Not verified:", style="bold yellow")
    for item in items:
        yield Padding(
            Text.assemble((item.what, "bold"), f": {item.reason}"), (0, 0, 0, 2), expand=False
        )
    if others:
        count = "1 case does" if others == 1 else f"{others} cases do"
        yield Text(f"{count} not apply to this model; its report says why.", style="dim")


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


def _status_text(status: TargetStatus, *, ascii_only: bool) -> "Text":
    from rich.text import Text

    match status:
        case "verified":
            mark = "ok" if ascii_only else "\N{CHECK MARK}"
        case "waived":
            mark = "w" if ascii_only else "\N{WARNING SIGN}"
        case "failed" | "broken":
            mark = "!!" if ascii_only else "\N{BALLOT X}"
        case "skipped":
            mark = "--" if ascii_only else "\N{EN DASH}"
    return Text(f"{mark} {status}", style=_STYLES[status])


def _worst_text(row: _Row) -> "Text":
    from rich.text import Text

    worst = row.worst
    by_task = row.verification is not None and row.verification.decided_by == "task metric"
    if worst is None or (by_task and worst.passed):
        headline = row.target.headline if row.verification is None else row.verification.headline
        return Text(first_line(headline), style="dim" if row.status == "skipped" else "")
    where = (
        worst.case if worst.output is None or row.one_output else f"{worst.case}, {worst.output}"
    )
    return Text.assemble((str(worst), "" if worst.passed else "bold red"), f" in {where}")


def _table(rows: list[_Row], *, ascii_only: bool) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("target", "status", "runtime"):
        table.add_column(heading, no_wrap=True)
    table.add_column("evidence", no_wrap=True)
    table.add_column("closest to its limit", ratio=1, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            # Text, because rich would parse a plain string as markup.
            Text(row.target.name if row.first else ""),
            _status_text(row.status, ascii_only=ascii_only),
            Text(row.runtime),
            row.evidence,
            _worst_text(row),
            bytes_text(row.target.size_bytes) if row.first and row.target.size_bytes else "",
            seconds_text(row.seconds) if row.first else "",
        )
    return table


def _stacked(rows: list[_Row], *, ascii_only: bool) -> "RenderResult":
    from rich.padding import Padding
    from rich.text import Text

    for row in rows:
        if row.first:
            size = f"  {bytes_text(row.target.size_bytes)}" if row.target.size_bytes else ""
            yield Text.assemble(
                (row.target.name, "bold"), (f"{size}  {seconds_text(row.seconds)}", "dim")
            )
        status = _status_text(row.status, ascii_only=ascii_only)
        yield Padding(
            Text.assemble(status, f"  {row.runtime}  ({row.evidence or 'no evidence'})"),
            (0, 0, 0, 2),
            expand=False,
        )
        yield Padding(_worst_text(row), (0, 0, 0, 4), expand=False)


def _finding_lines(located: LocatedFinding) -> "RenderResult":
    from rich.padding import Padding
    from rich.text import Text

    finding = located.finding
    yield Text()
    style = _SEVERITY_STYLES[finding.severity]
    yield Text.assemble(
        (f"{finding.severity} {finding.code}", style),
        f" in {', '.join(located.where)}",
        (f" ({waived_text(located)})" if located.waived else "", "bold yellow"),
    )
    yield Padding(Text(finding.message), (0, 0, 0, 2), expand=False)
    if place := str(finding.place):
        yield Padding(Text(f"at {place}", style="dim"), (0, 0, 0, 2), expand=False)
    if finding.remedy is not None:
        yield Padding(
            Text.assemble((f"{finding.remedy.label}: ", "bold"), finding.remedy.text),
            (0, 0, 0, 2),
            expand=False,
        )
        for path, value in finding.remedy.change.items():
            shown = json.dumps(value, ensure_ascii=False)
            yield Padding(Text(f"{path}: {shown}", style="cyan"), (0, 0, 0, 6), expand=False)
