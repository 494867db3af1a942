"""The stages of a recipe. Pure: touches no file, network or process."""

import dataclasses

from convkit.errors import UsageError
from convkit.recipe.models import Recipe
from convkit.toolchain.requirements import EnvironmentSpec, environment_spec
from convkit.worker.protocol import Device, StageKind


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a recipe. `needs` are the ids of the stages whose artifacts it reads.

    `device` is where a target's stage runs; with `stand_in`, it is the CPU, which simulates the
    target's device. `runtime` is the target's runtime. `computes`: the result depends on the
    processor.
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


def verify_id(target: str, version: str | None) -> str:
    """Return the id of a verify stage."""
    return f"verify:{target}" + (f"@{version}" if version else "")


def export_id(recipe: Recipe, name: str) -> str | None:
    """Return the id of the export that a target uses: the recipe's or the target's own; None if it
    needs none.
    """
    target = recipe.targets[name]
    if target.builds_from == "model":
        return None
    return f"export:{name}" if target.export_settings is not None else "export"


def precision_id(target: str) -> str:
    """Return the id of the stage that resolves a target's precision."""
    return f"precision:{target}"


def plan_stages(
    recipe: Recipe, only: tuple[str, ...] = (), absent: frozenset[str] = frozenset()
) -> tuple[Stage, ...]:
    """Return a recipe's stages in dependency order.

    `only` limits the targets; an unknown name raises UsageError. `absent` are the devices and
    runtimes that this machine lacks; low precision on them is simulated on the CPU.
    """
    for name in only:
        if name not in recipe.targets:
            raise UsageError(
                f"--only {name}: the recipe has no such target; targets:"
                f" {', '.join(recipe.targets)}"
            )
    names = [name for name in recipe.targets if not only or name in only]
    stages: dict[str, Stage] = {}
    for name in names:
        if (export := export_id(recipe, name)) is None:
            continue
        owner = name if export != "export" else None
        environment = environment_spec(recipe, "export", owner, None)
        stages.setdefault(export, Stage(export, "export", environment, target=owner))
    environment = environment_spec(recipe, "reference", None, None)
    stages["reference"] = Stage("reference", "reference", environment, computes=True)
    for name in names:
        stages |= {stage.id: stage for stage in _target_stages(recipe, name, absent)}
    return tuple(stages.values())


def _target_stages(recipe: Recipe, name: str, absent: frozenset[str]) -> list[Stage]:
    """Return a target's stages, except export and reference."""
    target = recipe.targets[name]
    missing = target.device in absent or target.runtime in absent
    stand_in = missing and target.can_stand_in
    device: Device = "cpu" if stand_in else target.device
    graph = [export] if (export := export_id(recipe, name)) is not None else []
    planned = [precision_id(name)] if target.plans_precision else []
    build = f"build:{name}"

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

    stages = [stage("precision", each, [*graph, "reference"]) for each in planned]
    cases = ["reference"] if target.builds_with_reference else []
    stages.append(stage("build", build, [*graph, *planned, *cases]))
    # A rewritten graph is compared with its source, tensor by tensor.
    compared = [*graph, *planned] if target.rewrites else []
    for version in target.versions or (None,):
        needs = [build, "reference", *compared]
        stages.append(stage("verify", verify_id(name, version), needs, version))
    return stages
