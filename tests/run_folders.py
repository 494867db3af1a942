"""Writes the folder that convkit would have left for a record."""

import dataclasses
import json
from pathlib import Path

from convkit.codec import encode
from convkit.record.model import RunRecord
from convkit.store.digests import digest_file, digest_json
from convkit.store.records import FileEntry


def write_run(root: Path, record: RunRecord) -> Path:
    """Write the folder of a finished run under `root`; its models are a few bytes each. Returns the
    folder.
    """
    folder = root / record.recipe / record.id
    (folder / "logs").mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(encode(record), indent=2), encoding="utf-8")
    (folder / "recipe.yaml").write_text(record.recipe_text, encoding="utf-8")
    (folder / "report.html").write_text(
        "<!doctype html><title>report</title><p>report", encoding="utf-8"
    )
    for stage in record.stages:
        if stage.log is not None:
            (folder / stage.log).write_text(f"log of {stage.id}\n", encoding="utf-8")
    for target in record.targets:
        for file in target.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(f"{target.name} {file}".encode() * 10)
    return folder


def write_built_run(root: Path, record: RunRecord) -> tuple[Path, RunRecord]:
    """Like `write_run`, with the artifact ids of the files that it writes; also return the
    record.
    """
    folder = write_run(root, record)
    built = {}
    for target in record.targets:
        place = folder / "models" / target.name
        built[target.name] = digest_json(
            {
                path.relative_to(place).as_posix(): FileEntry(
                    digest_file(path), path.stat().st_size
                )
                for path in place.rglob("*.*")
            }
        )
    stages = tuple(
        dataclasses.replace(stage, artifact=built[stage.target])
        if stage.kind == "build" and stage.artifact is not None
        else stage
        for stage in record.stages
    )
    record = dataclasses.replace(record, stages=stages)
    (folder / "result.json").write_text(json.dumps(encode(record), indent=2), encoding="utf-8")
    return folder, record
