"""Compares a run's record with what others recorded: its locks, and the store's stage records."""

from collections.abc import Iterator
from pathlib import Path

from convkit.host.audit.checks.contradictions import Contradiction, plain_text
from convkit.host.plan.stage_keys import stage_key
from convkit.host.record.run_record import RunRecord, StageReport
from convkit.host.run.run_folder import stage_file
from convkit.host.store.digests import SealBroken, read_sealed
from convkit.host.store.stage_records import KeptRecord, StageRecord
from convkit.host.store.store import Store
from convkit.host.toolchain.versions.version_resolution import read_pins
from convkit.protocol.json_codec import encode


def with_locks(folder: Path, record: RunRecord) -> Iterator[Contradiction]:
    """Compare the packages that each stage imported with the lock of its environment."""
    locks = {path.name for path in folder.glob("locks/*.txt")}
    stages = {f"{stage_file(stage.id)}.txt": stage for stage in record.stages}
    for name in sorted(locks - set(stages)):
        yield Contradiction((f"locks/{name}", "result.json"), "the run has no such stage")
    for name in sorted(locks & set(stages)):
        yield from _with_lock(folder / "locks" / name, stages[name])
    if record.toolchain == "isolated" and locks:
        for name in sorted(set(stages) - locks):
            if stages[name].versions:
                yield Contradiction((f"locks/{name}", "result.json"), "the stage has no lock")


def _with_lock(path: Path, stage: StageReport) -> Iterator[Contradiction]:
    place = (f"locks/{path.name}", "result.json")
    text = plain_text(path)
    if text is None:
        return
    resolution = read_pins(text, "")
    if resolution is None:
        yield Contradiction(place, "the lock is not a list of pins with hashes")
        return
    for name, version in stage.versions.items():
        locked = resolution.packages.get(name)
        if name != "python" and locked != version:
            yield Contradiction(
                place,
                f"{stage.id} imported {name} {version}, the lock has {locked or 'no such package'}",
            )


def with_store(record: RunRecord, store: Store | None) -> Iterator[Contradiction]:
    """Compare a run's stages with the records that the store kept of them.

    Records that are gone or damaged say nothing; the check of the store reports damage. A record of
    a later time does not count: the stage ran again since (`convkit nightly`, `--force`).
    """
    for stage in record.stages if store is not None else ():
        assert store is not None
        try:
            kept = read_sealed(store.root / "stages" / f"{stage.key}.json", KeptRecord).record
        except (OSError, SealBroken):
            continue
        if kept.started > record.ended:
            continue
        place = ("result.json", f"store/stages/{stage.key}.json")
        yield from (Contradiction(place, message) for message in _with_record(stage, kept, record))


def _with_record(stage: StageReport, kept: StageRecord, record: RunRecord) -> Iterator[str]:
    if stage_key(kept.ingredients) != kept.key:
        yield f"{stage.id}: the key is not the digest of its ingredients"
    if kept.kind != stage.kind:
        yield f"{stage.id}: the store has a {kept.kind} stage under this key"
        return
    if stage.status not in ("hit", "done"):
        yield f"{stage.id} is {stage.status}, but the store has its result"
    if stage.artifact is not None and stage.artifact != kept.artifact:
        yield f"{stage.id}: artifact {stage.artifact[:12]}, the store has {kept.artifact[:12]}"
    if stage.versions != kept.versions:
        yield f"{stage.id}: its tools differ from the store's record"
    if stage.kind == "verify":
        yield from _with_measurements(stage, kept, record)


def _with_measurements(stage: StageReport, kept: StageRecord, record: RunRecord) -> Iterator[str]:
    """Compare the figures of every case with those that the stage measured."""
    measured = {
        (case["case"], output["output"]): output
        for case in kept.result.get("cases", ())
        for output in case["outputs"]
    }
    recorded = {
        (case.case, output.output): encode(output.metrics)
        for target in record.targets
        for verification in target.verifications
        if verification.stage == stage.id
        for case in verification.cases
        for output in case.outputs
    }
    for key in dict.fromkeys([*measured, *recorded]):
        where = f"{stage.id}, case {key[0]}, {key[1]}"
        if key not in recorded:
            yield f"{where}: measured, but not recorded"
        elif key not in measured:
            yield f"{where}: recorded, but not measured"
        elif recorded[key] != measured[key]:
            names = [
                name
                for name in recorded[key]
                if name in measured[key] and recorded[key][name] != measured[key][name]
            ]
            if names:
                yield f"{where}: {', '.join(names)} differ"
