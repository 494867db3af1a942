"""Which stages begin first."""

import dataclasses

from convkit.host.plan.stage_order import seconds_to_end
from convkit.host.plan.stages import Stage
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.protocol.messages import StageKind
from convkit.protocol.runtimes.runtime_registry import runtimes

SPEC = EnvironmentSpec("3.11", ())


def stage(kind: StageKind, name: str, *needs: str) -> Stage:
    return Stage(name, kind, SPEC, needs)


STAGES = (
    stage("export", "export"),
    stage("reference", "reference"),
    stage("build", "build:graph", "export"),
    stage("verify", "verify:graph", "build:graph", "reference"),
    stage("precision", "precision:own", "reference"),
    stage("build", "build:own", "precision:own"),
    stage("verify", "verify:own", "build:own", "reference"),
)


def test_a_runtime_that_converts_the_model_itself_begins_before_verifications() -> None:
    found = seconds_to_end(STAGES, {})
    assert max(found, key=lambda name: found[name]) == "reference"
    assert found["precision:own"] > found["export"] > found["build:graph"] > found["verify:graph"]


def test_what_is_known_of_the_last_run_replaces_the_estimate() -> None:
    found = seconds_to_end(STAGES, {"verify:graph": 100.0, "build:graph": 2.0, "export": 3.0})
    assert found["export"] == 105.0
    assert max(found, key=lambda name: found[name]) == "export"


def test_needs_outside_the_plan_are_left_out() -> None:
    alone = (stage("verify", "verify:graph", "build:graph"),)
    assert seconds_to_end(alone, {"verify:graph": 4.0}) == {"verify:graph": 4.0}


def test_the_verification_of_a_slower_runtime_begins_first() -> None:
    paces = {name: row.pace for name, row in runtimes().items()}
    slow, quick = max(paces, key=paces.__getitem__), min(paces, key=paces.__getitem__)
    assert paces[slow] > paces[quick]
    both = [
        dataclasses.replace(stage("verify", f"verify:{name}"), runtime=name)
        for name in (quick, slow)
    ]
    found = seconds_to_end(both, {})
    assert found[f"verify:{slow}"] / found[f"verify:{quick}"] == paces[slow] / paces[quick]
