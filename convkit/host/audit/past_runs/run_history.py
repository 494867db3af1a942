"""`convkit runs`: the past runs of a home, filtered. Unreadable runs are listed as damaged."""

import dataclasses
import datetime as dt
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement

from convkit.host.audit.past_runs.affected_models import is_match
from convkit.host.audit.past_runs.indexed_run import RunSummary
from convkit.host.audit.past_runs.later_records import acceptance_of, reproductions_of
from convkit.host.audit.past_runs.run_folders import digests_of, is_run_id, run_folders
from convkit.host.audit.past_runs.search_index import readable_summary
from convkit.host.home import Home
from convkit.host.record.run_record import TargetStatus
from convkit.protocol.errors import ConvkitError, ProvenanceError, UsageError
from convkit.protocol.runtimes.runtime_registry import runtimes

# The packages that determine a converted model; the record lists the others, too.
TOOLS_THAT_MATTER = tuple(
    dict.fromkeys(
        (
            *("torch", "transformers", "onnx"),
            *(tool for runtime in runtimes().values() for tool in runtime.tools),
        )
    )
)


@dataclasses.dataclass(frozen=True)
class RunEntry:
    """One run. `started` in seconds since the epoch, `seconds` what it took; `tools` are versions
    by package, over all stages.

    If the run cannot be read, `status` is `damaged` and `problem` explains why. `reproduced` is the
    class of the last reproduction; `remarks` name unreadable files next to the run.
    """

    run: str
    recipe: str
    folder: str
    started: float | None
    status: TargetStatus | Literal["damaged"]
    targets: dict[str, TargetStatus] = dataclasses.field(default_factory=dict)
    tools: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    accepted: bool = False
    reproduced: str | None = None
    seconds: float | None = None
    remarks: tuple[str, ...] = ()
    problem: str | None = None


@dataclasses.dataclass(frozen=True)
class Filter:
    """Criteria for runs. All `tools` must have been used; `verdict` applies to the target if one is
    named.

    `built`: for each of these, the run has a file whose digest begins with it. `since` and `until`
    (exclusive) are seconds since the epoch.
    """

    recipe: str | None = None
    target: str | None = None
    tools: tuple[Requirement, ...] = ()
    verdict: TargetStatus | None = None
    built: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None


def list_runs(home: Home, wanted: Filter) -> list[RunEntry]:
    """Return the matching runs, newest first, with damaged ones that may match."""
    entries = []
    for folder in run_folders(home):
        summary = readable_summary(folder)
        if isinstance(summary, ConvkitError):
            entry = _damaged(folder, str(summary))
            fits = True
        else:
            entry = _entry(folder, summary)
            fits = _fits(entry, summary, wanted)
        if fits and _in_time(entry, wanted) and wanted.recipe in (None, entry.recipe):
            entries.append(entry)
    return sorted(entries, key=lambda entry: (entry.started or 0.0, entry.run), reverse=True)


def parse_model(text: str | None) -> tuple[str, ...]:
    """Return the digests of built files, or the digits of a digest; raises UsageError."""
    if text is None:
        return ()
    if Path(text).exists():
        return tuple(sorted(digests_of(Path(text), origins=False)))
    digits = text.lower().removeprefix("sha256:")
    if re.fullmatch(r"[0-9a-f]{8,64}", digits) is None:
        raise UsageError(f"--model {text}: no such file, and not 8 or more digits of a SHA-256")
    return (digits,)


def parse_tools(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """Parse texts such as `onnxruntime==1.21.*` as requirements; raises UsageError."""
    return tuple(map(_parse_tool, texts))


def _parse_tool(text: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(
            f"--tool {text}: write a package and its versions, such as onnxruntime==1.21.*"
        ) from error
    if requirement.marker is not None or requirement.extras or requirement.url is not None:
        raise UsageError(
            f"--tool {text}: a package and its versions only, such as onnxruntime==1.21.*"
        )
    return requirement


def parse_date(option: str, text: str | None, *, end: bool = False) -> float | None:
    """Parse a date or time in UTC as seconds since the epoch; with `end`, the end of that day."""
    if text is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text}: write a date such as 2026-01-31, or 2026-01-31T18:00 (UTC)"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    whole_day = end and len(text) <= len("2026-01-31")
    return (moment + dt.timedelta(days=1 if whole_day else 0)).timestamp()


def _fits(entry: RunEntry, summary: RunSummary, wanted: Filter) -> bool:
    if wanted.target is not None and wanted.target not in entry.targets:
        return False
    verdict = entry.targets[wanted.target] if wanted.target is not None else entry.status
    if wanted.verdict is not None and verdict != wanted.verdict:
        return False
    digests = summary.files.values()
    if not all(any(each.startswith(digits) for each in digests) for digits in wanted.built):
        return False
    return all(_used(summary, wanted.target, requirement) for requirement in wanted.tools)


def _used(summary: RunSummary, target: str | None, requirement: Requirement) -> bool:
    """Return True if a stage imported a package in a matching version, or could have. For a target,
    its own and the shared stages count.
    """
    return any(
        is_match(package, requirement)
        for package in summary.packages
        if target is None
        or any(
            summary.stages.get(stage) in (None, target)
            for stage in (*package.imported, *package.installed)
        )
    )


def _in_time(entry: RunEntry, wanted: Filter) -> bool:
    if entry.started is None:
        return True
    after = wanted.since is None or entry.started >= wanted.since
    return after and (wanted.until is None or entry.started < wanted.until)


def _entry(folder: Path, summary: RunSummary) -> RunEntry:
    used: dict[str, tuple[str, ...]] = {}
    for package in summary.packages:
        if package.imported:
            used[package.name] = (*used.get(package.name, ()), package.version)
    remarks: list[str] = []
    accepted, reproduced = False, None
    try:
        accepted = acceptance_of(folder) is not None
        reproduced = next((each.worst for each in reversed(reproductions_of(folder))), None)
    except ProvenanceError as error:
        remarks.append(str(error))
    return RunEntry(
        run=summary.run,
        recipe=summary.recipe,
        folder=str(folder),
        started=summary.started,
        seconds=summary.seconds,
        status=summary.status,
        targets=dict(summary.targets),
        tools=used,
        accepted=accepted,
        reproduced=reproduced,
        remarks=tuple(remarks),
    )


def _damaged(folder: Path, problem: str) -> RunEntry:
    started = None
    if is_run_id(folder.name):
        moment = dt.datetime.strptime(folder.name[:15] + "+0000", "%Y%m%d-%H%M%S%z")
        started = moment.timestamp()
    problem = problem.removeprefix(f"{folder}: ")
    return RunEntry(
        folder.name, folder.parent.name, str(folder), started, "damaged", problem=problem
    )
