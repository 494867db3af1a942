"""Writes the folder that convkit would have left for a record."""

import dataclasses
import json
import math
from pathlib import Path

from convkit.host.record.recorded_materials import Materials
from convkit.host.record.run_record import RunRecord, Verification
from convkit.host.run.rejudging import recorded_recipe
from convkit.host.run.run_materials import seeds_of, stated_sources
from convkit.host.store.digests import digest_file, digest_json
from convkit.host.store.stage_records import FileEntry
from convkit.protocol.json_codec import encode


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
    """Like `write_run`, but free of contradictions: with the artifact ids and sizes of the files
    that it writes, and figures that fit the cases' sizes. Also return the record.
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
    targets = tuple(
        dataclasses.replace(
            target,
            size_bytes=sum((folder / name).stat().st_size for name in target.files),
            verifications=tuple(map(_fitting, target.verifications)),
        )
        for target in record.targets
    )
    record = dataclasses.replace(record, stages=stages, targets=targets)
    (folder / "result.json").write_text(json.dumps(encode(record), indent=2), encoding="utf-8")
    return folder, record


def _fitting(verification: Verification) -> Verification:
    cases = []
    for case in verification.cases:
        shape = (case.sizes["batch"], case.sizes["sequence"], 384)
        outputs = []
        for output in case.outputs:
            metrics = dataclasses.replace(
                output.metrics,
                elements=math.prod(shape),
                worst_index=tuple(
                    min(place, size - 1)
                    for place, size in zip(output.metrics.worst_index, shape, strict=True)
                ),
                agreement=round(0.9 * math.prod(shape)) / math.prod(shape),
                nrmse=output.metrics.rms / output.metrics.reference_rms,
            )
            outputs.append(dataclasses.replace(output, metrics=metrics))
        cases.append(dataclasses.replace(case, outputs=tuple(outputs)))
    return dataclasses.replace(verification, cases=tuple(cases))


def materials_of_recipe(record: RunRecord) -> Materials:
    """Return what the record's recipe says of its models and seeds."""
    recipe = recorded_recipe(record, Path())
    return Materials(tuple(stated_sources(recipe)), seeds_of(recipe))
