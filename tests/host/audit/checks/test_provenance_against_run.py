"""What a provenance states, against the recipe, the locks, the builder and the files: each check
fails for a statement that only it denies.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import build_record
from resealing import edit_statement
from run_folders import materials_of_recipe, write_built_run

from convkit.host.audit.checks.provenance_against_run import with_provenance
from convkit.host.record.provenance import TREE, read_provenance, write_provenance
from convkit.host.record.recorded_materials import LockedPackage
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_folder import stage_file

COMMIT = "c" * 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunRecord]:
    """A run whose stages have locks."""
    record = dataclasses.replace(
        build_record(provenance=True), convkit=f"0.1.0+g{COMMIT}", toolchain="isolated"
    )
    folder, record = write_built_run(tmp_path_factory.mktemp("run"), record)
    (folder / "locks").mkdir(exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    users: dict[tuple[str, str], list[str]] = {("flatbuffers", "25.1"): []}
    for stage in record.stages:
        versions = {name: each for name, each in stage.versions.items() if name != "python"}
        versions["flatbuffers"] = "25.1"
        lines = [f"{name}=={each} --hash=sha256:{'a' * 64}\n" for name, each in versions.items()]
        (folder / "locks" / f"{stage_file(stage.id)}.txt").write_text("".join(lines))
        for key in versions.items():
            users.setdefault(key, []).append(stage.id)
        if stage.log is not None:
            (folder / stage.log).write_text("")
    locked = tuple(
        LockedPackage(*key, ("sha256:" + "a" * 64,), tuple(stages)) for key, stages in users.items()
    )
    materials = materials_of_recipe(record)
    builder = dataclasses.replace(
        materials.dependencies[0],
        name="convkit",
        kind="builder",
        digest={"gitCommit": COMMIT, TREE: "d" * 64},
        notes={"version": record.convkit},
    )
    write_provenance(
        folder, record, dataclasses.replace(materials, locked=locked, builder=(builder,))
    )
    return folder, record


def denied(run: tuple[Path, RunRecord]) -> list[str]:
    folder, record = run
    return [str(each) for each in with_provenance(folder, record, read_provenance(folder))]


def test_nothing_is_denied(run: tuple[Path, RunRecord]) -> None:
    assert denied(run) == []


def materials(statement: Any) -> list[Any]:
    return statement["predicate"]["buildDefinition"]["resolvedDependencies"]


def of_kind(statement: Any, kind: str) -> Any:
    return next(each for each in materials(statement) if each["annotations"]["kind"] == kind)


def unused(statement: Any) -> Any:
    return next(each for each in materials(statement) if each["name"] == "flatbuffers")


def builder(statement: Any) -> Any:
    return statement["predicate"]["runDetails"]["builder"]


def parameters(statement: Any) -> Any:
    return statement["predicate"]["buildDefinition"]["internalParameters"]


FORGERIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a seed": (lambda s: parameters(s)["seeds"].update({"verify.seed": 9}), "the seeds are"),
    "a source's name": (lambda s: of_kind(s, "source").update(name="other"), "not the recipe's"),
    "a source's seed": (
        lambda s: of_kind(s, "source")["annotations"].update(seed=9),
        "not the recipe's",
    ),
    "a lock": (
        lambda s: of_kind(s, "lock").update(digest={"sha256": "0" * 64}),
        "not the lock that the run used",
    ),
    "no lock": (lambda s: materials(s).remove(of_kind(s, "lock")), "not the lock that the run"),
    "no tool": (lambda s: materials(s).remove(unused(s)), "flatbuffers 25.1 is not in the env"),
    "a tool's stages": (
        lambda s: unused(s)["annotations"].update(installed=["export"]),
        "flatbuffers 25.1 is not in the env",
    ),
    "a tool's hash": (
        lambda s: unused(s).update(digest={"sha256": "0" * 64}),
        "a digest that no lock allows",
    ),
    "a tool's hashes": (
        lambda s: unused(s)["annotations"].update(hashes=["0" * 64, "a" * 64]),
        "a digest that no lock allows",
    ),
    "a tool's version": (
        lambda s: unused(s)["annotations"].update(version="25.2"),
        "flatbuffers 25.2 is in no lock",
    ),
    "a tool's address": (
        lambda s: unused(s).update(uri="pkg:pypi/flatbuffers@24"),
        "its package URL is pkg:pypi/flatbuffers@24",
    ),
    "an unknown stage": (
        lambda s: unused(s)["annotations"]["installed"].append("build:no"),
        "no stage build:no",
    ),
    "the builder's version": (
        lambda s: builder(s)["builderDependencies"][0]["annotations"].update(version="0.2"),
        "the builder is convkit 0.2",
    ),
    "the builder's commit": (
        lambda s: builder(s)["builderDependencies"][0]["digest"].update(gitCommit="0" * 40),
        f"its commit is {'0' * 40}",
    ),
    "Python": (lambda s: builder(s)["version"].update(python="2.7"), "Python 2.7"),
    "the platform": (lambda s: parameters(s).update(platform="linux-vax"), "the platform is"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_denied_is_named(run: tuple[Path, RunRecord], name: str) -> None:
    folder, _ = run
    before = (folder / "provenance.json").read_text()
    change, message = FORGERIES[name]
    try:
        edit_statement(folder, change)
        found = denied(run)
    finally:
        (folder / "provenance.json").write_text(before)
    assert any(message in each for each in found), found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"provenance": False}, "it wrote no provenance"),
        ({"recipe_file": "other.yaml"}, "the recipe's file differs"),
        ({"convkit": "0.2"}, "the builder is convkit"),
    ],
)
def test_a_record_that_denies_it_is_named(
    run: tuple[Path, RunRecord], change: dict, message: str
) -> None:
    folder, record = run
    assert any(message in each for each in denied((folder, dataclasses.replace(record, **change))))


def test_files_that_the_result_tells_otherwise_are_named(run: tuple[Path, RunRecord]) -> None:
    folder, record = run

    def with_target(**changes: Any) -> list[str]:
        target = dataclasses.replace(record.targets[0], **changes)
        return denied((folder, dataclasses.replace(record, targets=(target, *record.targets[1:]))))

    assert any("its size is not" in each for each in with_target(size_bytes=1))
    assert any("its files are not" in each for each in with_target(files=("models/x.onnx",)))
    stages = tuple(dataclasses.replace(stage, log="logs/no.log") for stage in record.stages)
    found = denied((folder, dataclasses.replace(record, stages=stages)))
    assert any("no file logs/no.log" in each for each in found)
