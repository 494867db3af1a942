"""The stages of a recipe. Pure: touches no file, network or process."""

import dataclasses
from collections.abc import Sequence

from convkit.host.recipe.keys.recipe import Recipe, part_target
from convkit.host.toolchain.versions.stage_requirements import (
    EnvironmentSpec,
    environment_spec,
    joined_spec,
    original_spec,
    scoring_spec,
)
from convkit.protocol.errors import UsageError
from convkit.protocol.messages import Device, StageKind


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a recipe. `needs` are the ids of the stages whose artifacts it reads.

    `device` is where a target's stage runs; with `stand_in`, it is the CPU, which simulates the
    target's device. `runtime` is the target's runtime. `computes`: the result depends on the
    processor. `part` is the part of the recipe that the stage belongs to, if it has parts. `joins`
    are the verifications, part by part, of what a joined run runs together.
    """

    id: str
    kind: StageKind
    environment: EnvironmentSpec
    needs: tuple[str, ...] = ()
    target: str | None = None
    version: str | None = None
    device: Device = "cpu"
    stand_in: bool = False
    runtime: str | None = None
    computes: bool = False
    part: str | None = None
    joins: tuple["Stage", ...] = ()


def verify_id(target: str, version: str | None) -> str:
    """Return the id of a verify stage."""
    return f"verify:{target}" + (f"@{version}" if version else "")


def export_id(recipe: Recipe, name: str) -> str | None:
    """Return the id of the export that a target uses: the recipe's or the target's own; None if it
    needs none.
    """
    target = recipe.targets[name]
    if target.builds_from != "graph":
        return None
    return f"export:{name}" if target.export_settings is not None else _shared_id(recipe, "export")


def reference_id(recipe: Recipe) -> str:
    """Return the id of a recipe's, or a part's, reference."""
    return _shared_id(recipe, "reference")


def join_id(target: str) -> str:
    """Return the id of the joined run of a target."""
    return f"join:{target}"


def _shared_id(recipe: Recipe, kind: StageKind) -> str:
    """Return the id of a stage that all targets share: `export`, or a part's `export/encoder`."""
    return kind if recipe.part_name is None else f"{kind}/{recipe.part_name}"


def precision_id(target: str) -> str:
    """Return the id of the stage that resolves a target's precision."""
    return f"precision:{target}"


def plan_stages(
    recipe: Recipe, only: tuple[str, ...] = (), absent: frozenset[str] = frozenset()
) -> tuple[Stage, ...]:
    """Return a recipe's stages in dependency order, those of its parts before the joined runs.

    `only` limits the targets; an unknown name raises UsageError. `absent` are the devices and
    runtimes that this machine lacks; low precision on them is simulated on the CPU.
    """
    parts = {name: recipe.part(name) for name in recipe.parts}
    shares = [target for part in parts.values() for target in part.targets]
    for name in only:
        if name not in recipe.targets and name not in shares:
            raise UsageError(
                f"--only {name}: the recipe has no such target; targets:"
                f" {', '.join([*recipe.targets, *shares])}"
            )
    names = [name for name in recipe.targets if not only or name in only]
    if not parts:
        return _graph_stages(recipe, names, absent)
    stages: list[Stage] = []
    for part in parts.values():
        wanted = [
            share for share in part.targets if share in only or share.rpartition("/")[0] in names
        ]
        if wanted:
            stages += _graph_stages(part, wanted, absent)
    return (*stages, *_joined_stages(recipe, names, stages))


def _graph_stages(
    recipe: Recipe, names: Sequence[str], absent: frozenset[str]
) -> tuple[Stage, ...]:
    """Return the stages of a recipe of one graph, or of a part, for some of its targets."""
    stages: dict[str, Stage] = {}
    for name in names:
        if (export := export_id(recipe, name)) is None:
            continue
        owner = name if recipe.targets[name].export_settings is not None else None
        environment = environment_spec(recipe, "export", owner, None)
        stages.setdefault(export, Stage(export, "export", environment, target=owner))
    environment = environment_spec(recipe, "reference", None, None)
    reference = reference_id(recipe)
    stages[reference] = Stage(reference, "reference", environment, computes=True)
    for name in names:
        stages |= {stage.id: stage for stage in _target_stages(recipe, name, absent)}
    return tuple(dataclasses.replace(stage, part=recipe.part_name) for stage in stages.values())


def _joined_stages(recipe: Recipe, names: Sequence[str], parts: Sequence[Stage]) -> list[Stage]:
    """Return the reference of the whole and the joined run of each target, given the stages of
    the parts.
    """
    if not names:
        return []
    reference = reference_id(recipe)
    environments = [stage.environment for stage in parts if stage.kind == "reference"]
    if recipe.original is not None:
        environments.append(original_spec(recipe))
    stages = [Stage(reference, "reference", joined_spec(environments, reference), computes=True)]
    for name in names:
        shares = [part_target(name, part) for part in recipe.parts]
        # Of a part that is verified under several releases, the last one takes part.
        joins = {
            stage.target: stage
            for stage in parts
            if stage.kind == "verify" and stage.target in shares
        }
        needs = dict.fromkeys(each for stage in joins.values() for each in stage.needs)
        environments = [stage.environment for stage in joins.values()]
        if recipe.evaluate is not None:
            environments.append(scoring_spec(recipe))
        stages.append(
            Stage(
                join_id(name),
                "join",
                joined_spec(environments, join_id(name)),
                needs=(reference, *needs),
                target=name,
                computes=True,
                joins=tuple(joins.values()),
            )
        )
    return stages


def _target_stages(recipe: Recipe, name: str, absent: frozenset[str]) -> list[Stage]:
    """Return a target's stages, except export and reference."""
    target = recipe.targets[name]
    missing = target.device in absent or target.runtime in absent
    stand_in = missing and target.can_stand_in
    device: Device = "cpu" if stand_in else target.device
    graph = [export] if (export := export_id(recipe, name)) is not None else []
    planned = [precision_id(name)] if target.plans_precision else []
    build, reference = f"build:{name}", reference_id(recipe)

    def stage(
        kind: StageKind, identifier: str, needs: list[str], version: str | None = None
    ) -> Stage:
        return Stage(
            id=identifier,
            kind=kind,
            environment=environment_spec(recipe, kind, name, version, stand_in=stand_in),
            needs=tuple(needs),
            target=name,
            version=version,
            device=device,
            stand_in=stand_in,
            runtime=target.runtime,
            computes=kind != "build" or target.measures_in_build,
        )

    stages = [stage("precision", each, [*graph, reference]) for each in planned]
    cases = [reference] if target.builds_with_reference else []
    stages.append(stage("build", build, [*graph, *planned, *cases]))
    # A rewritten graph is compared with its source, tensor by tensor.
    compared = [*graph, *planned] if target.rewrites else []
    for version in target.versions or (None,):
        needs = [build, reference, *compared]
        stages.append(stage("verify", verify_id(name, version), needs, version))
    return stages
