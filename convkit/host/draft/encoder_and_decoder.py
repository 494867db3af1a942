"""Drafts a recipe for an encoder and a decoder that are files of one model."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from convkit.host.draft.exported_onnx_folder import Halves
from convkit.host.draft.model_origins import recipe_name, relative_path
from convkit.host.draft.recipe_lines import (
    PYTHON,
    TOOLS,
    axis_lines,
    item_lines,
    keys_of,
    listed,
    tolerance_lines,
)
from convkit.host.draft.surveyed_model import signature_of_survey, tolerances_of
from convkit.host.draft.target_names import asked_targets, target_lines
from convkit.host.draft.transformers_families import DraftInput, DraftOutput, DraftSignature
from convkit.host.recipe.reading.yaml_scalars import yaml_scalar
from convkit.protocol.contract import Dimension
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import SurveyResult

_STATES, _MASK = "encoder_hidden_states", "encoder_attention_mask"
_TOKENS = ("input_ids", "inputs_embeds")
_SCORES = "logits"


@dataclasses.dataclass(frozen=True)
class _Joined:
    """Two signatures under common axes, what feeds the decoder, and the inputs and outputs of both
    together.
    """

    encoder: DraftSignature
    decoder: DraftSignature
    feeds: Mapping[str, str]
    inputs: tuple[DraftInput, ...]
    outputs: tuple[DraftOutput, ...]

    @property
    def axes(self) -> dict[str, tuple[int, int, int]]:
        """The sizes that both support."""
        axes = dict(self.encoder.axes)
        for name, own in self.decoder.axes.items():
            other = axes.get(name, own)
            least, most = max(own[0], other[0]), min(own[2], other[2])
            axes[name] = least, max(least, min(own[1], other[1], most)), most
        return axes


def draft_joined(
    folder: Path,
    halves: Halves,
    surveys: tuple[SurveyResult, SurveyResult],
    *,
    destination: Path,
    task: str | None = None,
    targets: Sequence[str] = (),
) -> str:
    """Return the text of a recipe that joins an encoder with its decoder, from their surveys."""
    joined = _joined(*map(signature_of_survey, surveys))
    lines = _render(folder, halves, joined, surveys, destination.absolute().parent, task)
    return "\n".join([*lines, "", *target_lines(asked_targets(targets))]) + "\n"


def _joined(encoder: DraftSignature, decoder: DraftSignature) -> _Joined:
    given = {each.name: each for each in decoder.inputs}
    states = encoder.outputs[0]
    if _STATES in given:
        decoder = _renamed(decoder, _same_axes(given[_STATES].shape, states.shape))
    feeds: dict[str, str] = {}
    inputs = list(encoder.inputs)
    taken = {each.name for each in inputs}
    for each in decoder.inputs:
        own = f"decoder_{each.name}" if each.name in _TOKENS or each.name in taken else each.name
        if each.name == _STATES:
            feeds[each.name] = f"encoder.{states.name}"
        elif each.name == _MASK and "attention_mask" in taken:
            feeds[each.name] = "attention_mask"
        else:
            inputs.append(dataclasses.replace(each, name=own))
            if own != each.name:
                feeds[each.name] = own
    scores = [each for each in decoder.outputs if each.name == _SCORES] or [decoder.outputs[0]]
    return _Joined(encoder, decoder, feeds, tuple(inputs), tuple(scores))


def _same_axes(mine: tuple[Dimension, ...], wanted: tuple[Dimension, ...]) -> dict[str, str]:
    """Return other names for axes, by which a shape becomes the one of what is fed to it."""
    return {
        own: other
        for own, other in zip(mine, wanted, strict=False)
        if isinstance(own, str) and isinstance(other, str) and own.isidentifier()
    }


def _renamed(signature: DraftSignature, names: Mapping[str, str]) -> DraftSignature:
    def shape(dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
        return tuple(
            " ".join(names.get(word, word) for word in each.split(" "))
            if isinstance(each, str)
            else each
            for each in dimensions
        )

    return dataclasses.replace(
        signature,
        inputs=tuple(
            dataclasses.replace(each, shape=shape(each.shape)) for each in signature.inputs
        ),
        outputs=tuple(
            dataclasses.replace(each, shape=shape(each.shape)) for each in signature.outputs
        ),
        axes={names.get(name, name): sizes for name, sizes in signature.axes.items()},
    )


def _render(
    folder: Path,
    halves: Halves,
    joined: _Joined,
    surveys: tuple[SurveyResult, SurveyResult],
    beside: Path,
    task: str | None,
) -> Iterator[str]:
    yield from _heading(recipe_name(folder.resolve().name), halves, task or _task(joined))
    yield from _tools()
    yield from axis_lines(joined.axes, {})
    yield ""
    yield "parts:"
    files = (halves.encoder, halves.decoder)
    signatures = (joined.encoder, joined.decoder)
    for part, file, signature, survey in zip(
        ("encoder", "decoder"), files, signatures, surveys, strict=True
    ):
        yield f"  {part}:"
        yield from (f"    {line}" for line in _part(relative_path(file, beside), signature, survey))
        yield ""
    yield "join:"
    yield "  - call: encoder"
    yield "  - call: decoder"
    if joined.feeds:
        yield "    inputs:"
        yield from (f"      {name}: {value}" for name, value in joined.feeds.items())
    yield ""
    yield "# The inputs and outputs of both together, as the original calls them."
    yield from _tensors(joined.inputs, joined.outputs)
    yield ""
    yield "verify:"
    ours = {each.name for each in joined.outputs}
    limits = {name: each for name, each in tolerances_of(surveys[1]).items() if name in ours}
    yield from tolerance_lines(limits)


def _heading(name: str, halves: Halves, task: str) -> Iterator[str]:
    yield (
        f"# A recipe for {name}, drafted by `convkit init`. docs/parts.md describes recipes with"
        " parts."
    )
    if halves.others:
        yield "#"
        yield "# Left out: other variants of the same model. Each can be verified by itself:"
        yield from (f"#   convkit init {other}" for other in halves.others)
    yield "schema: 1"
    yield f"name: {yaml_scalar(name)}"
    yield ""
    yield "# TODO: the folder of the model that the files were made from, with its weights. Without"
    yield "# it, each file is its own original: conversions are verified, but not the files."
    yield f"# original: {{ path: FOLDER, task: {task} }}"
    yield ""


def _tools() -> Iterator[str]:
    yield "tools:"
    yield f'  python: "{PYTHON}"'
    yield f'  onnxruntime: "{TOOLS["onnxruntime"]}"'
    for package in ("torch", "transformers"):
        yield f'  # {package}: "{TOOLS[package]}" # for the original'
    yield ""


def _part(file: str, signature: DraftSignature, survey: SurveyResult) -> Iterator[str]:
    fixed = ", random: fixed" if survey.draws else ""
    yield f"model: {{ onnx: {yaml_scalar(file)}{fixed} }}"
    if limits := _loosest(tolerances_of(survey)):
        yield "by_precision: # what float16, int8, ... may be off follows from the type"
        yield f"  float32: {{ tolerance: {{ {listed(limits)} }} }} # from the largest values seen"
    yield from _tensors(signature.inputs, signature.outputs)


def _loosest(limits: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Return the limit that suits every output of a part: a relative error if one of them has no
    other.
    """
    for metric in ("nrmse", "max_abs"):
        found = [each[metric] for each in limits.values() if metric in each]
        if found:
            return {metric: max(each for each in found if isinstance(each, float))}
    return {}


def _tensors(inputs: tuple[DraftInput, ...], outputs: tuple[DraftOutput, ...]) -> Iterator[str]:
    yield "inputs:"
    for given in inputs:
        yield from item_lines([*keys_of(given)], [])
    yield "outputs:"
    for output in outputs:
        yield from item_lines([*keys_of(output)], [])


def _task(joined: _Joined) -> str:
    names = {each.name for each in joined.encoder.inputs}
    if "input_features" in names or "input_values" in names:
        return "automatic-speech-recognition"
    return "image-text-to-text" if "pixel_values" in names else "text2text-generation"
