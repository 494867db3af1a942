"""Builds a stage's request to a worker, from which its key is also derived. Pure."""

import dataclasses
from typing import Protocol, assert_never

from convkit.host.plan.stages import Stage, export_id, precision_id, reference_id
from convkit.host.plan.step_requests import steps_of
from convkit.host.plan.tensor_requests import (
    contract_of,
    prepared_inputs,
    processed_outputs,
    samples_of,
)
from convkit.host.recipe.checks.padding_samples import marks_padding, padding_value
from convkit.host.recipe.keys import recipe as models
from convkit.host.recipe.keys.call_steps import mask_name, tensors_by_name
from convkit.host.recipe.keys.evaluation import predicted_tokens
from convkit.host.recipe.keys.low_precision_types import (
    BEYOND_USUAL_RANGES,
    is_calibrated_for,
    low_type,
    rounded_types,
    usual_nrmse,
)
from convkit.host.recipe.keys.model_sources import FILE_KINDS
from convkit.host.recipe.keys.recipe import Model, Recipe, Target
from convkit.host.recipe.keys.tolerances import follows_from_type, limits_for
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    BuildRequest,
    BuiltPart,
    Evaluation,
    Exporter,
    ExportRequest,
    JoinedModel,
    JoinedOriginals,
    JoinRequest,
    Original,
    OriginalPart,
    Precision,
    PrecisionRequest,
    Quantization,
    ReferenceRequest,
    Source,
    StageRequest,
    VerifyRequest,
)
from convkit.protocol.runtimes.runtime_registry import runtimes


class Places(Protocol):
    """Resolves what a request refers to: paths for a worker, content digests for a key."""

    def artifact(self, stage: str) -> str:
        """Return the location of another stage's artifact."""
        ...

    def file(self, name: str) -> str:
        """Return the location of a file named in the recipe."""
        ...

    def source(self, model: Model) -> str | None:
        """Return the location of a model's files; None if the model has none."""
        ...

    def texts(self) -> tuple[str, ...]:
        """Return the lines of the recipe's texts."""
        ...

    def caches(self, runtime: str) -> str | None:
        """Return the folder in which a runtime's builds cache their measurements."""
        ...


def request_for(stage: Stage, recipe: Recipe, places: Places) -> StageRequest:
    """Return a stage's request; `recipe` may be the whole that the stage's part belongs to."""
    if stage.part is not None and recipe.part_name is None:
        recipe = recipe.part(stage.part)
    match stage.kind:
        case "export":
            export = recipe.export_of(stage.target)
            return ExportRequest(
                source=source_of(recipe.model, places),
                contract=contract_of(recipe),
                samples=samples_of(recipe, places.file),
                exporter=exporter_of(recipe, export),
                opset=_opset_of(recipe, export),
                input_order=export.input_order,
                may_fall_back="exporter" not in export.model_fields_set,
            )
        case "reference":
            return ReferenceRequest(
                source=reference_source(recipe, places),
                contract=contract_of(recipe),
                samples=samples_of(recipe, places.file),
                seed=recipe.verify.seed,
                texts=places.texts(),
                example=None if (kept := recipe.verify.example) is None else places.file(kept),
                budget_seconds=recipe.verify.budget,
                skip_cases=recipe.verify.skip,
                ladder=recipe.verify.ladder,
                graph=places.source(recipe.model) if recipe.model.onnx is not None else None,
                steps=steps_of(recipe),
                evaluation=_evaluation(recipe, places),
                joined=joined_originals(recipe, places),
                prepared=prepared_inputs(recipe, places.file),
                processed=processed_outputs(recipe, places.file),
                rounded=rounded_types(recipe),
            )
        case "join":
            return _join_request(stage, recipe, places)
        case "precision" | "build" | "verify":
            return _target_request(stage, recipe, places)
        case _:
            assert_never(stage.kind)


def _target_request(stage: Stage, recipe: Recipe, places: Places) -> StageRequest:
    assert stage.target is not None
    target = recipe.targets[stage.target]
    contract, options = contract_of(recipe), target.options()
    precision = target.worker_precision(places.file)
    needed = {name: places.artifact(name) for name in stage.needs}
    reference = reference_id(recipe)
    exported = needed.get(export_id(recipe, stage.target) or "")
    decision = needed.get(precision_id(stage.target))
    loads_model = recipe.loads_model(stage.target, stage.kind)
    original = original_of(recipe, places) if loads_model else None
    if stage.kind == "precision":
        return PrecisionRequest(
            contract=contract,
            options=options,
            precision=precision,
            reference=needed[reference],
            limits=_searched_limits(recipe, target) if target.searches_precision else {},
            exported=exported,
            original=original,
            families=target.families,
            device=target.device,
            clipped=_clipped(recipe, target),
            derived=_derived(recipe, target) if target.searches_precision else (),
        )
    if stage.kind == "build":
        return BuildRequest(
            contract=contract,
            options=options,
            precision=precision,
            device=target.device,
            exported=exported,
            original=original,
            decision=decision,
            reference=needed.get(reference),
            stand_in=stage.stand_in,
            caches=places.caches(target.runtime),
            steps=steps_of(recipe) if target.builds_with_steps else None,
            given=tuple(map(places.file, target.given)),
        )
    return VerifyRequest(
        contract=contract,
        options=options,
        precision=_calibrated(precision),
        device=target.device,
        built=needed[f"build:{stage.target}"],
        reference=needed[reference],
        budget_seconds=recipe.verify.budget,
        exported=exported,
        decision=decision,
        stand_in=stage.stand_in,
        steps=steps_of(recipe),
        evaluation=_evaluation(recipe, places),
        families=target.families,
    )


def _calibrated(precision: Precision) -> Precision:
    """Return a precision for verification, which does not depend on the data that the build was
    calibrated with.
    """
    if isinstance(precision, Quantization):
        return dataclasses.replace(precision, calibration=None)
    return precision


def reference_source(recipe: Recipe, places: Places) -> Source | None:
    """Return the original; None if it is the parts' originals, joined."""
    if recipe.parts and recipe.original is None:
        return None
    return source_of(recipe.reference_model, places)


def joined_originals(recipe: Recipe, places: Places) -> JoinedOriginals | None:
    """Return the originals of all parts; None without parts."""
    if not recipe.parts:
        return None
    parts = {name: recipe.part(name) for name in recipe.parts}
    return JoinedOriginals(
        recipe.flow,
        tuple(
            OriginalPart(name, source_of(part.reference_model, places), contract_of(part))
            for name, part in parts.items()
        ),
    )


def _join_request(stage: Stage, recipe: Recipe, places: Places) -> JoinRequest:
    assert stage.target is not None
    target = recipe.targets[stage.target]
    return JoinRequest(
        contract=contract_of(recipe),
        flow=recipe.flow,
        parts=tuple(
            BuiltPart(
                str(each.part),
                runtimes()[str(each.runtime)].package,
                encode(request_for(each, recipe, places)),
            )
            for each in stage.joins
        ),
        reference=places.artifact(reference_id(recipe)),
        limits=limits_by_output(recipe, target),
        budget_seconds=recipe.verify.budget,
        evaluation=_evaluation(recipe, places),
    )


def joined_models(recipe: Recipe) -> dict[str, JoinedModel]:
    """Return what opens the built parts as one model, by target; empty without parts."""
    if not recipe.parts:
        return {}
    joined = JoinedModel(1, contract_of(recipe), recipe.flow, {name: name for name in recipe.parts})
    return dict.fromkeys(recipe.targets, joined)


def _evaluation(recipe: Recipe, places: Places) -> Evaluation | None:
    """Return the user's data and metric in the workers' form."""
    asked = recipe.evaluate
    if asked is None:
        return None
    output = next((each for each in recipe.outputs if each.name == asked.output), recipe.outputs[0])
    steps = steps_of(recipe)
    plain = recipe.model_dump()
    tokens = predicted_tokens(plain, asked.output) if asked.predicts else None
    inputs = tensors_by_name(plain, "inputs")
    masks = [each.name for each in recipe.inputs if marks_padding(each.sample)]
    if tokens is not None:  # an encoder's mask says nothing about a decoder's tokens
        masks = list(filter(None, [mask_name(inputs, output.shape[1])]))
    mask = output.mask or next(iter(masks), None)
    return Evaluation(
        data=places.file(asked.data),
        metric=asked.metric.rpartition(":")[2],
        output=output.name,
        inputs=dict(asked.inputs),
        texts=asked.texts,
        labels=asked.labels,
        mask=mask,
        padding=padding_value(inputs[mask].get("sample")) if mask in inputs else 0,
        code=places.file(asked.code) if asked.code is not None else None,
        most_rows=asked.rows,
        tokens=tokens,
        empty=steps.grows if asked.predicts and steps is not None else (),
        generate=asked.generate,
    )


def original_of(recipe: Recipe, places: Places) -> Original:
    """Return the model as a runtime converts it that needs no exported graph."""
    return Original(
        source=source_of(recipe.model, places),
        samples=samples_of(recipe, places.file),
        input_order=recipe.export.input_order,
    )


def source_of(model: Model, places: Places) -> Source:
    """Return the model that a worker loads."""
    options: dict[str, object] = {
        "path": places.source(model),
        "task": model.task,
        "dtype": model.dtype,
        "attention": model.attn_implementation,
        "allow_pickle": model.allow_pickle,
        "allow_remote_code": model.allow_remote_code,
        "omit": model.omit,
        "random": model.random,
    }
    if model.hub is not None:
        return Source("hub", identifier=model.hub.id, revision=model.hub.revision, **options)  # type: ignore[arg-type]
    if model.config is not None:
        options |= {"seed": model.config.seed, "overrides": dict(model.config.overrides)}
        return Source("config", identifier=model.config.architecture, **options)  # type: ignore[arg-type]
    if model.factory is not None:
        call = model.factory.call.rpartition(":")[2]
        options |= {"seed": model.factory.seed, "overrides": dict(model.factory.arguments)}
        if "dtype" not in model.model_fields_set:
            options["dtype"] = None  # as it was built
        return Source("factory", identifier=call, **options)  # type: ignore[arg-type]
    kinds = ("path", "package", *FILE_KINDS)
    kind = next(name for name in kinds if getattr(model, name) is not None)
    return Source(kind, **options)  # type: ignore[arg-type]


def exporter_of(recipe: Recipe, export: models.Export) -> Exporter:
    """Return the exporter: a TorchScript archive has only one that reads it."""
    return "torchscript" if recipe.model.torchscript is not None else export.exporter


def _opset_of(recipe: Recipe, export: models.Export) -> int:
    """Return the opset to export in; 0 for an ONNX file that keeps its own."""
    if recipe.model.onnx is not None and "opset" not in export.model_fields_set:
        return 0
    return export.opset


def limits_by_output(recipe: Recipe, target: Target) -> dict[str, dict[str, float]]:
    """Return the limits for each output of a target."""
    return {output.name: limits_for(recipe, target, output.name, None) for output in recipe.outputs}


def _searched_limits(recipe: Recipe, target: Target) -> dict[str, dict[str, float]]:
    """Return the limits that a search for a precision has to meet. As many labels may differ as
    their type allows errors, if nobody wrote how many: what the original itself makes of the type
    decides in the end, and equality would leave everything in float32.
    """
    found = limits_by_output(recipe, target)
    low = low_type(target)
    for output, limits in found.items():
        is_strict = low is not None and limits.get("agreement") == 1.0
        if is_strict and follows_from_type(recipe, target, output, None):
            limits["agreement"] = 1 - usual_nrmse(str(low))
    return found


def _derived(recipe: Recipe, target: Target) -> tuple[str, ...]:
    """Return the outputs whose limits follow from a target's type."""
    names = (output.name for output in recipe.outputs)
    return tuple(name for name in names if follows_from_type(recipe, target, name, None))


def _clipped(recipe: Recipe, target: Target) -> tuple[str, ...]:
    """Return the kinds of cases that no output of a target is judged in, as in its verdict."""
    return (
        ()
        if len(_derived(recipe, target)) < len(recipe.outputs)
        else tuple(each for each in BEYOND_USUAL_RANGES if not is_calibrated_for(target, each))
    )


def named_files(recipe: Recipe) -> tuple[str, ...]:
    """Return the files that samples and targets refer to, as named in the recipe."""
    samples = [
        tensor.sample.file for tensor in recipe.inputs if isinstance(tensor.sample, models.File)
    ]
    prepared = [
        file
        for tensor in recipe.inputs
        if tensor.preprocess is not None
        for file in tensor.preprocess.named_files
    ]
    prepared += [
        file
        for tensor in recipe.outputs
        if tensor.postprocess is not None
        for file in tensor.postprocess.named_files
    ]
    files = [file for target in recipe.targets.values() for file in target.files]
    rows = recipe.evaluate.files if recipe.evaluate is not None else ()
    operators = [entry.file for entry in recipe.custom_ops if entry.file is not None]
    example = [recipe.verify.example] if recipe.verify.example is not None else []
    return tuple(dict.fromkeys([*samples, *example, *prepared, *files, *rows, *operators]))
