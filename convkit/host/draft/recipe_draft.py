"""Drafts a recipe for a model: complete, commented and valid, as a starting point to edit."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from convkit.host.draft.cached_decoder_draft import LOOP_AXIS, decoder_signature
from convkit.host.draft.cached_decoder_draft import TASK as GENERATION
from convkit.host.draft.model_origins import ModelOrigin, origin_of, with_overrides
from convkit.host.draft.model_tools import ModelTool
from convkit.host.draft.postprocess_section import label_lines, postprocess_lines
from convkit.host.draft.preprocess_section import preprocess_lines
from convkit.host.draft.recipe_lines import (
    PYTHON,
    TOOLS,
    axis_lines,
    item_lines,
    keys_of,
    tolerance_lines,
)
from convkit.host.draft.surveyed_model import (
    comments_of,
    example_lines,
    signature_of_survey,
    tolerances_of,
)
from convkit.host.draft.target_names import asked_targets, reads_pictures, target_lines
from convkit.host.draft.transformers_families import (
    DEFAULT_TASK,
    FAMILIES,
    KNOWN_TASKS,
    DraftSignature,
    Family,
    signature_of,
    task_of,
)
from convkit.host.recipe.reading.yaml_scalars import yaml_scalar
from convkit.host.toolchain.versions.stage_requirements import runtime_packages
from convkit.protocol.errors import UsageError
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import OperatorLibrary, SurveyResult

_LIBRARIES = {"onnxruntime-extensions": "==0.15.*"}

_UNKNOWN_MODEL = (
    (
        "# TODO: convkit does not know this kind of model. The inputs, outputs and axes below are a"
        " guess: compare them"
    ),
    "# with the model's forward and its config.json before you trust a run.",
)
_UNKNOWN_SIZES = (
    (
        "# TODO: the model's config.json could not be read. The sizes below are a guess:"
        " replace those of the outputs"
    ),
    "# and axes with the model's own.",
)


def draft_recipe(
    model: str,
    *,
    destination: Path = Path("recipe.yaml"),
    name: str | None = None,
    task: str | None = None,
    architecture: str | None = None,
    survey: SurveyResult | None = None,
    tools: Mapping[str, ModelTool] | None = None,
    example: Path | None = None,
    targets: Sequence[str] = (),
) -> str:
    """Return the text of a recipe to be written at `destination`; its paths are relative to that.

    `model` is a folder in transformers' layout, an ONNX file (with its `survey`),
    `file.py:callable`, `package==version:path`, `owner/name@commit` on a hub, or one of
    transformers' architectures such as `bert`. A `survey` says what running the model revealed, and
    goes before what is known of its family. `architecture` is the model_type of a model whose
    configuration is not available here. `tools` are packages that its own code needs. `example` is
    the file beside the recipe that has the values of the survey's example, `targets` names as for
    `asked_targets`. Guesses are marked TODO. Raises UsageError.
    """
    origin = origin_of(model, destination.absolute().parent, architecture, survey)
    doubt: tuple[str, ...] | None = None
    if survey is not None:
        signature, doubt = signature_of_survey(survey, example), comments_of(survey)
        if survey.weights is not None:
            line = f"dtype: {survey.weights} # the module's own weights are in another type"
            origin = dataclasses.replace(origin, lines=(*origin.lines, line))
        if survey.overrides:
            origin = with_overrides(origin, model, survey.overrides)
    elif origin.family is None:
        signature, doubt = _guess(origin.config, task), _UNKNOWN_MODEL
    elif not origin.config:
        signature, doubt = _signature(origin.family, origin.family.small, task), _UNKNOWN_SIZES
    else:
        try:
            signature = _signature(origin.family, origin.config, task)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UsageError(
                f"{model}: config.json does not fit its model_type: {error!r}"
            ) from error
    if imports := [name for name in tools or () if name in runtime_packages()]:
        line = f"imports: [{', '.join(map(yaml_scalar, imports))}] # by its own code"
        origin = dataclasses.replace(origin, lines=(*origin.lines, line))
    tolerances = tolerances_of(survey) if survey is not None else {}
    kept = example_lines(survey, example) if survey is not None else ()
    is_looped = bool(signature.steps) and signature.axes.get(LOOP_AXIS, (0,))[0] == 1
    asked = asked_targets(
        targets,
        convolves=(survey is not None and survey.convolves) or reads_pictures(signature.inputs),
        loop_axis=LOOP_AXIS if is_looped else None,
    )
    lines = _render(origin, name or origin.name, signature, doubt, tolerances, tools or {}, kept)
    return "\n".join([*lines, "", *target_lines(asked)]) + "\n"


def needs_survey(model: str, *, destination: Path, task: str | None = None) -> bool:
    """Return True if only running a model shows its inputs: it is of no known family, or its
    configuration is not here. Raises UsageError as `draft_recipe` does.
    """
    if model.endswith(".onnx"):
        return True
    origin = origin_of(model, destination.absolute().parent, None, None)
    return origin.family is None or not origin.config or (task or DEFAULT_TASK) not in KNOWN_TASKS


def _signature(family: Family, config: Mapping[str, Json], task: str | None) -> DraftSignature:
    """Return a family's signature; a decoder's has its cache."""
    wanted = task or task_of(family, config)
    if family.kind == "decoder" and wanted == GENERATION:
        return decoder_signature(family, config)
    return signature_of(family, config, wanted)


def _guess(config: Mapping[str, Json], task: str | None) -> DraftSignature:
    family = (
        FAMILIES["vit"]
        if "image_size" in config and "vocab_size" not in config
        else FAMILIES["roberta"]
    )
    numbers = {key: value for key, value in config.items() if type(value) is int and value > 0}
    return signature_of(family, {**family.small, **numbers}, task or "feature-extraction")


def _render(
    origin: ModelOrigin,
    name: str,
    signature: DraftSignature,
    doubt: tuple[str, ...] | None,
    tolerances: Mapping[str, Mapping[str, Json]],
    tools: Mapping[str, ModelTool],
    example: Sequence[str] = (),
) -> Iterator[str]:
    yield (
        f"# A recipe for {_one_line(name)}, drafted by `convkit init`. docs/recipe.md describes"
        " every key."
    )
    for comments in (doubt, origin.remarks):
        if comments:
            yield "#"
            yield from comments
    yield "schema: 1"
    yield f"name: {yaml_scalar(name)}"
    yield ""
    yield "model:"
    yield from (f"  {line}" for line in origin.lines)
    if signature.task and not origin.is_own_code:
        yield f"  task: {yaml_scalar(signature.task)} # the head that transformers loads"
    yield ""
    yield "# Every stage runs in its own environment, built from these versions."
    yield "tools:"
    yield f'  python: "{PYTHON}"'
    left_out = _left_out(origin, tools)
    usual = {name: ModelTool(own, "") for name, own in TOOLS.items() if name not in left_out}
    for package, tool in {**usual, **tools}.items():
        comment = f" # {tool.why}" if tool.why else ""
        yield f'  {yaml_scalar(package)}: "{tool.specifier or TOOLS.get(package, "")}"{comment}'
    yield from _render_libraries(signature.libraries)
    yield ""
    if signature.exporter is not None:
        yield from ("export:", f"  exporter: {signature.exporter}", "")
    yield from _render_signature(signature, origin)
    yield from _render_rest(origin, signature.skip, tolerances, example)


def _render_libraries(libraries: tuple[OperatorLibrary, ...]) -> Iterator[str]:
    """Yield the packages with a model's custom operators, which end `tools`, and `custom_ops`."""
    packaged = [(each.package, each.path) for each in libraries if each.package is not None]
    for package, _ in packaged:
        yield f'  {package}: "{_LIBRARIES[package]}"'
    if packaged:
        yield ""
        yield "# The model has operators that are not onnxruntime's own."
        yield "custom_ops:"
        for package, path in packaged:
            yield f"  - {{ package: {package}, library: {yaml_scalar(path)} }}"


def _left_out(origin: ModelOrigin, tools: Mapping[str, ModelTool]) -> frozenset[str]:
    """Return the usual tools that no stage of the model needs."""
    if origin.is_onnx:
        return frozenset({"torch", "transformers"})
    if origin.is_own_code and "transformers" not in tools:
        return frozenset({"transformers"})
    return frozenset()


def _render_signature(signature: DraftSignature, origin: ModelOrigin) -> Iterator[str]:
    if signature.axes or signature.data_axes:
        yield from axis_lines(signature.axes, signature.axis_notes)
        for axis, written in signature.data_axes.items():
            yield f"  {yaml_scalar(axis)}: {json.dumps(written)}"
        yield ""
    yield "# The order of inputs and outputs is part of the contract."
    yield "inputs:"
    for tensor in signature.inputs:
        below = [*preprocess_lines(origin.processor, tensor)]
        yield from item_lines([*keys_of(tensor)], below)
    yield ""
    yield "outputs:"
    for output in signature.outputs:
        below = [*postprocess_lines(origin.config, signature.task, output)]
        if (labels := signature.labels.get(output.name)) is not None:
            below = [*label_lines(labels, "metadata")]
        yield from item_lines([*keys_of(output)], below)
    yield ""
    if signature.steps:
        yield from signature.steps
        yield ""


def _render_rest(
    origin: ModelOrigin,
    skip: Sequence[str],
    tolerances: Mapping[str, Mapping[str, Json]],
    example: Sequence[str],
) -> Iterator[str]:
    yield "verify:"
    yield from example
    if origin.has_tokenizer and (origin.family is None or "vision" not in origin.family.kind):
        yield "  # texts: texts.txt   # real texts, one per line, through the model's own tokenizer"
    if skip:
        yield f"  skip: [{', '.join(skip)}] # see the comments at the top"
    yield from tolerance_lines(tolerances)


def _one_line(text: str) -> str:
    return " ".join(text.split())
