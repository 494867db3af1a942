"""Compares everything that a run's folder states more than once.

Digests show that a file changed after its provenance was sealed. Whoever seals a forged provenance
again has to change every other statement of the same fact as well. These checks name those that
disagree. They need the folder alone; what the store remembers is checked if it is there.
"""

import calendar
import dataclasses
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from convkit.host.home import is_run_id
from convkit.host.record.origin_files import is_golden
from convkit.host.record.provenance import FileDigest, Provenance, moment_text
from convkit.host.record.run_record import RunRecord, StageReport
from convkit.host.store.digests import digest_json
from convkit.protocol.json_codec import encode

# A run's id holds the second in which it started.
_CLOCK_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class Contradiction:
    """Two statements that cannot both be true. `places` are the files or parts that make them."""

    places: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{' and '.join(self.places)}: {self.message}"


def between_records(
    folder: Path, record: RunRecord, provenance: Provenance
) -> Iterator[Contradiction]:
    """Compare `result.json` with `provenance.json`, and both with the folder's files."""
    yield from _same_facts(record, provenance)
    yield from _same_stages(record, provenance)
    yield from _same_tools(record, provenance)
    yield from _artifacts(record.stages, provenance.files)
    yield from _files(record, provenance.files)
    yield from _recipe(folder, record)


def within_record(folder: Path, record: RunRecord) -> Iterator[Contradiction]:
    """Compare the times, names and stages of `result.json` with each other."""
    if is_run_id(folder.name) and folder.name != record.id:
        yield _in_result(f"the run is {record.id}, its folder is {folder.name}")
    if is_run_id(record.id):
        named = calendar.timegm(time.strptime(record.id[:15], "%Y%m%d-%H%M%S"))
        if not abs(record.started - named) <= _CLOCK_SECONDS:
            yield _in_result(
                f"the run's id {record.id} and its start, {moment_text(record.started)}, differ"
            )
    if not record.started <= record.ended:
        yield _in_result("the run ended before it started")
    for stage in record.stages:
        if stage.status != "done" or stage.started is None or stage.ended is None:
            continue  # a stage from the store ran at any time before
        if not record.started - 1 <= stage.started <= stage.ended <= record.ended + 1:
            yield _in_result(f"stage {stage.id} ran outside the time of the run")
    names = {stage.id for stage in record.stages}
    for target in record.targets:
        for verification in target.verifications:
            if verification.stage not in names:
                yield _in_result(f"{target.name}: there is no stage {verification.stage}")


def _in_result(message: str) -> Contradiction:
    return Contradiction(("result.json",), message)


def _same_facts(record: RunRecord, provenance: Provenance) -> Iterator[Contradiction]:
    facts: Mapping[str, tuple[object, object]] = {
        "the run": (record.id, provenance.run),
        "convkit": (record.convkit, provenance.convkit),
        "the start": (moment_text(record.started), provenance.started),
        "the end": (moment_text(record.ended), provenance.ended),
        "the recipe's name": (record.recipe, provenance.recipe),
        "the recipe": (record.recipe_text, provenance.recipe_text),
        "the command": (record.command, provenance.command),
        "the toolchain": (record.toolchain, provenance.toolchain),
        "the host": (encode(record.host), encode(provenance.host)),
        "the run's key": (record.key, provenance.run_key),
        "the targets": (tuple(each.name for each in record.targets), provenance.targets),
        "the verdict": (record.status, provenance.verdict),
        "the verdicts": (
            {target.name: target.status for target in record.targets},
            provenance.verdicts,
        ),
    }
    for name, (result, stated) in facts.items():
        if result != stated:
            shown = f": {result} and {stated}" if _is_short(result, stated) else ""
            yield Contradiction(("result.json", "provenance.json"), f"{name} differs{shown}")


def _is_short(*values: object) -> bool:
    return all(len(str(value)) < 80 for value in values)


def _same_stages(record: RunRecord, provenance: Provenance) -> Iterator[Contradiction]:
    stated = {name: encode(stage) for name, stage in provenance.stages.items()}
    found = {
        stage.id: {"key": stage.key, "status": stage.status, "artifact": stage.artifact}
        for stage in record.stages
    }
    yield from _differences(found, stated, "stage")


def _same_tools(record: RunRecord, provenance: Provenance) -> Iterator[Contradiction]:
    """Compare the packages that stages imported, in the result and in the provenance."""
    found: dict[str, list[str]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            found.setdefault(f"{name} {version}", []).append(stage.id)
    stated = {
        f"{item.name} {item.notes['version']}": list(item.notes["stages"])
        for item in provenance.dependencies
        if item.kind == "tool" and item.notes["stages"]
    }
    yield from _differences(
        {name: sorted(stages) for name, stages in found.items()},
        {name: sorted(stages) for name, stages in stated.items()},
        "tool",
    )


def _differences(
    result: Mapping[str, object], stated: Mapping[str, object], kind: str
) -> Iterator[Contradiction]:
    places = ("result.json", "provenance.json")
    for name in dict.fromkeys([*result, *stated]):
        if name not in stated or name not in result:
            missing = places[1] if name not in stated else places[0]
            yield Contradiction(places, f"{kind} {name} is not in {missing}")
        elif result[name] != stated[name]:
            yield Contradiction(places, f"{kind} {name} differs")


def artifact_of(files: Mapping[str, FileDigest], target: str) -> str:
    """Return the artifact id of a target's built files, computed from the folder alone."""
    prefix = f"models/{target}/"
    return digest_json(
        {
            name.removeprefix(prefix): entry
            for name, entry in files.items()
            if name.startswith(prefix) and not is_golden(name, target)
        }
    )


def _artifacts(
    stages: Iterable[StageReport], files: Mapping[str, FileDigest]
) -> Iterator[Contradiction]:
    """Recompute the id of every built artifact from the digests of its files."""
    for stage in stages:
        if stage.kind != "build" or stage.artifact is None or stage.target is None:
            continue
        found = artifact_of(files, stage.target)
        if found != stage.artifact:
            yield Contradiction(
                ("result.json", f"models/{stage.target}"),
                f"{stage.id} built artifact {stage.artifact[:12]}, but the files are {found[:12]}",
            )


def _files(record: RunRecord, files: Mapping[str, FileDigest]) -> Iterator[Contradiction]:
    built = {stage.target for stage in record.stages if stage.kind == "build" and stage.artifact}
    for target in record.targets:
        for name in target.files:
            if name not in files:
                yield Contradiction(
                    ("result.json", "provenance.json"), f"{target.name}: no file {name}"
                )
    for name in files:
        if name.startswith("models/") and name.split("/")[1] not in built:
            yield Contradiction(("result.json", name), "no stage of the run built it")


def _recipe(folder: Path, record: RunRecord) -> Iterator[Contradiction]:
    text = plain_text(folder / "recipe.yaml")
    if text is None:
        return
    if text != record.recipe_text:
        yield Contradiction(("recipe.yaml", "result.json"), "the recipe differs")
    if hashlib.sha256(text.encode()).hexdigest() != record.recipe_digest:
        yield Contradiction(("recipe.yaml", "result.json"), "the recipe has a different digest")


def plain_text(path: Path) -> str | None:
    """Return a file's text; None if it is not a readable plain file, which the integrity check
    reports. A pipe would be waited for.
    """
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, ValueError):
        return None
