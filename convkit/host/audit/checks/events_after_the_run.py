"""What happened to a run since: reads its reproductions and its acceptance, and checks that they
are about this run.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from convkit.host.audit.checks.contradictions import Contradiction
from convkit.host.audit.past_runs.later_records import (
    CLASSES,
    Acceptance,
    Reproduction,
    acceptance_of,
    beside,
    is_plain,
    provenance_digest,
    read_reproduction,
    reproduction_files,
)
from convkit.host.audit.past_runs.run_integrity import FileProblem
from convkit.host.record.run_record import RunRecord
from convkit.protocol.errors import ProvenanceError


@dataclasses.dataclass(frozen=True)
class Later:
    """Events since a run, oldest first. `undigested` are files of earlier releases: an edit does
    not show in them.
    """

    reproductions: tuple[Reproduction, ...] = ()
    acceptance: Acceptance | None = None
    problems: tuple[FileProblem, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    undigested: tuple[str, ...] = ()


def since(folder: Path, record: RunRecord | None) -> Later:
    """Return the events since the run in a folder."""
    found: dict[Path, Reproduction] = {}
    problems: list[FileProblem] = []
    for path in reproduction_files(folder):
        try:
            found[path] = read_reproduction(path)
        except ProvenanceError as error:
            problems.append(FileProblem(_shown(folder, path), "unreadable", str(error)))
    acceptance, accepted = None, beside(folder, ".accepted.json")
    try:
        acceptance = acceptance_of(folder)
    except ProvenanceError as error:
        problems.append(FileProblem(_shown(folder, accepted), "unreadable", str(error)))
    events: dict[Path, Reproduction | Acceptance] = {**found}
    if acceptance is not None:
        events[accepted] = acceptance
    return Later(
        tuple(sorted(found.values(), key=lambda each: each.when)),
        acceptance,
        tuple(problems),
        tuple(_contradictions(folder, record, events)),
        tuple(_shown(folder, path) for path in events if is_plain(path)),
    )


def _shown(folder: Path, path: Path) -> str:
    above = folder.resolve().parent
    return f"../{path.relative_to(above).as_posix()}"


def _contradictions(
    folder: Path, record: RunRecord | None, events: dict[Path, Reproduction | Acceptance]
) -> Iterator[Contradiction]:
    digest = provenance_digest(folder)
    for path, event in events.items():
        shown = _shown(folder, path)
        if event.provenance and event.provenance != digest:
            yield Contradiction(
                (shown, "provenance.json"),
                f"it is about a provenance with sha256 {event.provenance[:12]}, this one has"
                f" {digest[:12]}",
            )
        if record is None:
            continue
        if event.run != record.id:
            yield Contradiction((shown, "result.json"), f"it is about run {event.run}")
        if event.when < record.ended:
            yield Contradiction((shown, "result.json"), "it is older than the run")
        if isinstance(event, Reproduction):
            yield from _reproduction(shown, event, record)
        elif not event.retired and record.status in ("failed", "broken"):
            yield Contradiction((shown, "result.json"), f"it accepts a run that is {record.status}")


def _reproduction(shown: str, event: Reproduction, record: RunRecord) -> Iterator[Contradiction]:
    worst = max(event.artifacts.values(), key=CLASSES.index, default=event.worst)
    if worst != event.worst:
        yield Contradiction((shown,), f"it says {event.worst}, but its worst artifact is {worst}")
    unknown = set(event.artifacts) - {target.name for target in record.targets}
    if unknown:
        yield Contradiction((shown, "result.json"), f"no target {', '.join(sorted(unknown))}")
