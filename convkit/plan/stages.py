"""The stages of a recipe and what their keys are made of. Pure: no file, network or process is
touched here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from convkit import tensors
from convkit.codec import Json, encode
from convkit.errors import UsageError
from convkit.recipe import models
from convkit.recipe.models import (
    CoreMLTarget,
    GraphTarget,
    OnnxRuntimeTarget,
    Recipe,
    Target,
    TensorRTTarget,
)
from convkit.recipe.tolerances import limits_of, tolerance_for
from convkit.store.digests import digest_json
from convkit.tensors import Contract, TensorSpec
from convkit.toolchain.requirements import EnvironmentSpec, environment_spec
from convkit.worker.protocol import PROTOCOL, Device, JobKind, Sample, StageKind

# How the ingredients of a stage name the files that it was seen to read.
OPENED = "model_files"

# What a worker does in the stages of runtimes that have a way of their own: Core ML converts the
# model itself, and TensorRT's engines are no graphs any more.
OWN_JOBS: dict[str, dict[StageKind, JobKind]] = {
    "coreml": {"precision": "coreml-precision", "build": "coreml-build", "verify": "coreml-verify"},
    "tensorrt": {"build": "tensorrt-build", "verify": "tensorrt-verify"},
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a recipe. `needs` are ids of stages whose artifacts it reads.

    `device` is where a target's stage runs; with `stand_in` that is the CPU, which simulates the
    target's own. `runtime` is the target's.
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

    @property
    def job(self) -> JobKind:
        """What a worker is asked to do."""
        if self.runtime == "tensorrt" and self.kind == "verify" and self.stand_in:
            return "verify"  # of the graph that an engine would be built from
        return OWN_JOBS.get(self.runtime or "", {}).get(self.kind, self.kind)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What planning must know of the world.

    `source` and `original` are the identities, by content, of the model and of what it is compared
    with; `files` the digests of other files the recipe names; `packages` the resolved versions of
    each environment (absent: not resolved yet); `worker_code` the digest of the code that runs in
    each stage.
    """

    source: str
    original: str
    files: Mapping[str, str]
    packages: Mapping[EnvironmentSpec, Mapping[str, str]]
    worker_code: Mapping[JobKind, str]
    platform: str
    processor: str
    toolchain: Literal["isolated", "host"]
    # By stage: the files that it was seen to read when it loaded its model, with their digests.
    opened: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)


def contract_of(recipe: Recipe) -> Contract:
    """Return the recipe's contract."""
    axes = tuple(
        tensors.Axis(name, axis.min, axis.typical, axis.max) for name, axis in recipe.axes.items()
    )
    return Contract(tuple(map(_spec, recipe.inputs)), tuple(map(_spec, recipe.outputs)), axes)


def _spec(tensor: models.Tensor) -> TensorSpec:
    mask = tensor.mask if isinstance(tensor, models.Output) else None
    return TensorSpec(tensor.name, tensor.dtype, tensor.shape, tensor.origin, mask)


def samples_of(recipe: Recipe, sample_file: Mapping[str, str]) -> dict[str, Sample]:
    """Return how each input is drawn; `sample_file` maps a file as the recipe names it to where it
    lies.
    """
    return {tensor.name: _sample(tensor.sample, sample_file) for tensor in recipe.inputs}


def _sample(sample: models.Sample | None, sample_file: Mapping[str, str]) -> Sample:
    match sample:
        case None:
            return Sample("normal", (0.0, 1.0))
        case str():
            return Sample(sample)
        case models.Integers():
            return Sample("integers", (float(sample.integers[0]), float(sample.integers[1])))
        case models.Normal():
            return Sample("normal", sample.normal)
        case models.Uniform():
            return Sample("uniform", sample.uniform)
        case models.Constant():
            return Sample("constant", (sample.constant,))
        case models.File():
            return Sample("file", path=sample_file[sample.file])


# What a TensorRT target says of the engine itself.
_ENGINE_KEYS = {
    *(
        "profiles",
        "workspace_gib",
        "builder_level",
        "version_compatible",
        "hardware_compatible",
        "weights",
    ),
    *("sparse_weights", "dla", "tf32"),
}


def _symmetric(precision: Json) -> Json:
    """Return a precision with zero points of zero where it is a quantisation: TensorRT knows no
    others.
    """
    return (
        precision | {"symmetric": True}
        if isinstance(precision, dict) and "quantize" in precision
        else precision
    )


def target_options(target: Target) -> dict[str, Json]:
    """Return a runtime's own options, as the worker gets them."""
    mapping = target.low_precision or target.quantization
    precision: Json = mapping.model_dump(mode="json") if mapping is not None else "float32"
    match target:
        case OnnxRuntimeTarget():
            options: dict[str, Json] = {
                "optimization": target.optimization,
                "artifact": target.artifact,
                "precision": precision,
            }
            if target.device == "cuda":
                provider = {
                    "provider": target.provider or "cuda",
                    "provider_options": dict(target.provider_options),
                }
                options |= provider | {"tf32": target.tf32}
            return options
        case TensorRTTarget():
            own = target.model_dump(mode="json", include=_ENGINE_KEYS)
            return own | {"precision": _symmetric(precision)}
        case CoreMLTarget():
            compression = (
                target.compression.model_dump(mode="json")
                if target.compression is not None
                else None
            )
            return {
                "minimum": target.minimum,
                "shapes": target.shapes,
                "compression": compression,
                "precision": precision,
            }


def calibration_file(target: Target) -> str | None:
    """Return the file that a target is calibrated with, as the recipe names it."""
    quantized = target.quantization
    return (
        quantized.calibration.file
        if quantized is not None and quantized.calibration is not None
        else None
    )


def limits_by_output(recipe: Recipe, target: Target) -> dict[str, dict[str, float]]:
    """Return the limits that each output of a target is judged by."""
    return {
        output.name: limits_of(tolerance_for(recipe, target, output.name, None))
        for output in recipe.outputs
    }


def sample_files(recipe: Recipe) -> list[str]:
    """Return the files that inputs are drawn from, as the recipe names them."""
    return [
        tensor.sample.file for tensor in recipe.inputs if isinstance(tensor.sample, models.File)
    ]


def verify_id(target: str, version: str | None) -> str:
    """Return the id of a verify stage."""
    return f"verify:{target}" + (f"@{version}" if version else "")


def export_id(recipe: Recipe, name: str) -> str | None:
    """Return the id of the export that a target builds on: the recipe's, or its own; None where it
    needs none.
    """
    target = recipe.targets[name]
    if not isinstance(target, GraphTarget):
        return None
    return f"export:{name}" if target.export is not None else "export"


def precision_id(target: str) -> str:
    """Return the id of the stage that works out a target's precision."""
    return f"precision:{target}"


def plan_stages(
    recipe: Recipe, only: tuple[str, ...] = (), absent: frozenset[str] = frozenset()
) -> tuple[Stage, ...]:
    """Return the stages of a recipe in an order in which each comes after what it needs.

    `only` limits the targets; a name that is no target raises UsageError. `absent` are devices and
    runtimes that this machine lacks: a low precision is simulated on the CPU in their place.
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
        stages.setdefault(export, Stage(export, "export", environment, (), owner))
    environment = environment_spec(recipe, "reference", None, None)
    stages["reference"] = Stage("reference", "reference", environment)
    for name in names:
        stages |= {stage.id: stage for stage in _target_stages(recipe, name, absent)}
    return tuple(stages.values())


def _target_stages(recipe: Recipe, name: str, absent: frozenset[str]) -> list[Stage]:
    """Return the stages of one target, after the export and the reference."""
    target = recipe.targets[name]
    missing = target.device in absent or target.runtime in absent
    # A float32 graph for CUDA is the CPU's own; what TensorRT would be given can be looked at in
    # every precision.
    stand_in = missing and (target.low_precision is not None or target.runtime == "tensorrt")
    device: Device = "cpu" if stand_in else target.device
    graph = [export] if (export := export_id(recipe, name)) is not None else []
    precision, build = precision_id(name), f"build:{name}"

    def stage(
        kind: StageKind, identifier: str, needs: list[str], version: str | None = None
    ) -> Stage:
        environment = environment_spec(recipe, kind, name, version, device)
        return Stage(
            identifier,
            kind,
            environment,
            tuple(needs),
            name,
            version,
            device,
            stand_in,
            target.runtime,
        )

    stages = []
    planned = [precision] if target.plans_precision else []
    if planned:
        stages.append(stage("precision", precision, [*graph, "reference"]))
    calibrated = target.quantization is not None and target.quantization.quantize == "static-int8"
    cases = ["reference"] if calibrated and calibration_file(target) is None else []
    stages.append(stage("build", build, [*graph, *planned, *cases]))
    for version in target.versions or (None,):
        # What was rewritten is set against the graph it was made of, tensor by tensor.
        rewritten = target.low_precision is not None or target.quantization is not None
        compared = [*graph, *planned] if rewritten else []
        stages.append(
            stage("verify", verify_id(name, version), [build, "reference", *compared], version)
        )
    return stages


def ingredients(stage: Stage, recipe: Recipe, facts: Facts) -> dict[str, str] | None:
    """Return everything that can change a stage's result, flat, by the recipe's key paths; its
    inputs come apart.

    None where the tools are not resolved yet.
    """
    packages = facts.packages.get(stage.environment)
    if packages is None:
        return None
    parts: dict[str, Json] = {
        "convkit.worker": facts.worker_code[stage.job],
        "convkit.protocol": PROTOCOL,
        "platform": facts.platform,
        "tools": {"python": stage.environment.python} | dict(packages),
        "toolchain": facts.toolchain,
    }
    dump = recipe.model_dump(mode="json", by_alias=True)
    contract = {"inputs": dump["inputs"], "outputs": dump["outputs"], "axes": dump["axes"]}
    target = recipe.targets[stage.target] if stage.target else None
    match stage.kind:
        case "export":
            export = recipe.export_of(stage.target)
            parts |= contract | {
                "export": export.model_dump(mode="json"),
                "seed": recipe.verify.seed,
            }
            samples = {name: facts.files[name] for name in sample_files(recipe)}
            parts |= {"model": dump["model"], "source": facts.source, "files": samples}
        case "reference":
            verify = dump["verify"]
            parts |= contract | {
                "verify": {key: verify[key] for key in ("seed", "texts", "budget", "skip")}
            }
            source = facts.source if recipe.original is None else facts.original
            named = [*sample_files(recipe), *([recipe.verify.texts] if recipe.verify.texts else [])]
            files = {name: facts.files[name] for name in named}
            parts |= {"model": dump["original"] or dump["model"], "source": source, "files": files}
            parts |= {"processor": facts.processor}
        case "precision":
            assert target is not None
            parts |= _converted_parts(recipe, target, facts)
            parts |= contract | {"target": target_options(target), "processor": facts.processor}
            parts |= {"files": _calibration_digest(target, facts)}
            if target.searches_precision:
                parts |= {"tolerance": limits_by_output(recipe, target)}
        case "build":
            assert target is not None
            place = {"device": target.device, "stand_in": stage.stand_in}
            parts |= _converted_parts(recipe, target, facts)
            parts |= contract | {"target": target_options(target) | place}
            parts |= {"files": _calibration_digest(target, facts)}
        case "verify":
            assert target is not None
            place = {"device": target.device, "stand_in": stage.stand_in}
            parts |= contract | {"target": target_options(target) | place}
            parts |= {"verify.budget": recipe.verify.budget, "processor": facts.processor}
    opened = facts.opened.get(stage.id, {})
    return flatten(parts) | {f"{OPENED}.{name}": digest for name, digest in opened.items()}


def _converted_parts(recipe: Recipe, target: Target, facts: Facts) -> dict[str, Json]:
    """Return what changes the result of a stage that converts the model itself; nothing where its
    graph is built on.
    """
    if isinstance(target, GraphTarget):
        return {}
    samples: dict[str, Json] = {name: facts.files[name] for name in sample_files(recipe)}
    model = recipe.model_dump(mode="json", by_alias=True)["model"]
    asked = {
        "seed": recipe.verify.seed,
        "input_order": recipe.export.input_order,
        "samples": samples,
    }
    return {"model": model, "source": facts.source, "original": asked}


def _calibration_digest(target: Target, facts: Facts) -> dict[str, Json]:
    file = calibration_file(target)
    return {} if file is None else {file: facts.files[file]}


def flatten(value: Json, prefix: str = "") -> dict[str, str]:
    """Return nested JSON values as text by dotted path; an empty container keeps its place."""
    if isinstance(value, Mapping) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple) and value:
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {prefix: str(encode(value))}
    flat: dict[str, str] = {}
    for key, item in items:
        flat |= flatten(item, f"{prefix}.{key}" if prefix else key)
    return flat


def stage_key(stage: Stage, parts: Mapping[str, str], inputs: Mapping[str, str]) -> str:
    """Return a stage's key: the digest of its kind, its ingredients and the digests of the
    artifacts it reads.

    A stage's id is no part of it: two targets that build the same thing share one artifact.
    """
    return digest_json([stage.kind, dict(parts), [inputs[name] for name in stage.needs]])


def explain_change(
    parts: Mapping[str, str],
    inputs: Mapping[str, str],
    before: Mapping[str, str],
    inputs_before: Mapping[str, str],
) -> str:
    """Say, in a few words, why a stage whose last record had other ingredients must run."""
    names = [
        name for name in dict.fromkeys([*parts, *before]) if parts.get(name) != before.get(name)
    ]
    reasons = [_explain_one(name, before.get(name), parts.get(name)) for name in names[:3]]
    if len(names) > 3:
        reasons.append(f"and {len(names) - 3} more")
    reasons += [
        f"{name} gave another artifact"
        for name in inputs
        if inputs[name] != inputs_before.get(name)
    ]
    return "; ".join(reasons) or "its artifact is gone from the store"


def _explain_one(name: str, before: str | None, now: str | None) -> str:
    if name == "convkit.worker":
        return "convkit's own code changed"
    if before is None or now is None:
        return f"{name} is {'new' if before is None else 'gone'}"
    if max(len(before), len(now)) > 40:
        return f"{name} changed"
    return f"{name} changed: {before} -> {now}"
