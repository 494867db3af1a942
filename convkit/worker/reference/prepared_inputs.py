"""Inputs that the original's own processor makes of real files: their cases, and whether the
constants of the contract say what the processor does.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import PreparedInput
from convkit.protocol.preprocessing_constants import ImageConstants
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.cases.tokenized_texts import extent
from convkit.worker.cases.values.pictures_and_sounds import draw_audio, draw_image
from convkit.worker.cases.values.sampled_values import Draw, generator
from convkit.worker.job_context import StageFailedError, UnfitDataError
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.pre_and_postprocessing.image_differences import image_findings
from convkit.worker.pre_and_postprocessing.images import normalized, read_image, sized
from convkit.worker.pre_and_postprocessing.original_processor import Kind, OriginalProcessor
from convkit.worker.pre_and_postprocessing.sounds import read_sound, sound_findings
from convkit.worker.pre_and_postprocessing.text_differences import text_findings
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError

# The rows and columns of drawn images: wider than high, so that swapped axes show.
_DRAWN_IMAGE = (240, 320, 3)
_DRAWN_SECONDS = 2
# Differences are searched on so many files.
_MOST_COMPARED = 4


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """An input, its place in the recipe, the processor, and the files' images or sounds."""

    spec: TensorSpec
    place: str
    processor: OriginalProcessor
    contents: tuple[np.ndarray, ...]

    @property
    def image(self) -> ImageConstants | None:
        return self.spec.preprocess.image if self.spec.preprocess is not None else None

    def wanted(self, content: np.ndarray) -> np.ndarray:
        """Return the original's own input for a file."""
        if self.image is not None:
            return self.processor.image(content)
        return self.processor.sound(content, _rate(self.spec, self.processor))

    def given(self, content: np.ndarray) -> np.ndarray:
        """Return the built model's input for a file."""
        if self.image is not None and self.spec.preprocess and self.spec.preprocess.fused:
            return sized(self.image, content)
        return self.wanted(content)


class PreparedInputs:
    """The prepared inputs of a recipe. Raises UnfitDataError for an unusable file."""

    def __init__(
        self, asked: Mapping[str, PreparedInput], contract: Contract, original: OriginalModel
    ) -> None:
        beside = original.processor if isinstance(original, TorchOriginal) else None
        self._contract = contract
        self._prepared: list[_Prepared] = []
        for index, spec in enumerate(contract.inputs):
            given = spec.preprocess
            if given is None or given.text is not None or spec.name not in asked:
                continue
            place = f"inputs.{index}.preprocess"
            kind: Kind = "image" if given.image is not None else "audio"
            processor = OriginalProcessor(asked[spec.name].processor, beside, place, kind)
            files = [Path(file) for file in asked[spec.name].files]
            keys = [f"{place}.files.{number}" for number in range(len(files))]
            contents = (
                [read_image(file, key, spec.name) for file, key in zip(files, keys, strict=True)]
                if given.image is not None
                else [
                    read_sound(file, _rate(spec, processor), key, spec.name)
                    for file, key in zip(files, keys, strict=True)
                ]
            )
            self._prepared.append(_Prepared(spec, place, processor, tuple(contents)))

    @property
    def processors(self) -> dict[str, OriginalProcessor]:
        """The processors, by the input's name."""
        return {each.spec.name: each.processor for each in self._prepared}

    def cases(self, made_from: CaseInputs, original: OriginalModel) -> list[Case] | None:
        """Return cases of real files; None if no input is prepared. `original` takes the unfused
        contract's inputs.
        """
        if not self._prepared:
            return None
        cases: list[Case] = []
        for prepared in self._prepared:
            for batch in _batches(prepared, self._contract):
                number = len(cases) + 1
                name = "files" if number == 1 else f"files:{number}"
                cases.append(_case(name, prepared, batch, made_from, original))
        return cases

    def findings(self, made_from: CaseInputs, original: OriginalModel) -> list[Finding]:
        """Return where the contract's constants differ from the processors', on the files and on a
        drawn image or sound, and what that does to the original's outputs.
        """
        found: list[Finding] = []
        for prepared in self._prepared:
            name, place, given = prepared.spec.name, prepared.place, prepared.spec.preprocess
            random = generator(made_from.seed, "preprocess", name)
            if given is not None and given.image is not None:
                drawn = (255 * draw_image(_DRAWN_IMAGE, random)).astype(np.uint8)
                pictures = [*prepared.contents[:_MOST_COMPARED], drawn]
                wrong = image_findings(name, place, given.image, prepared.processor, pictures)
                if wrong:
                    effect = _effect(prepared, pictures[0], made_from, original)
                    wrong = [_with_effect(each, effect) for each in wrong]
                found += wrong
            elif given is not None and given.audio is not None:
                rate = _rate(prepared.spec, prepared.processor)
                drawn = 2 * draw_audio((rate * _DRAWN_SECONDS,), random) - 1
                sounds = [*prepared.contents[:_MOST_COMPARED], drawn.astype(np.float32)]
                found += sound_findings(name, place, given.audio, prepared.processor, sounds)
        return found


def _effect(
    prepared: _Prepared, picture: np.ndarray, made_from: CaseInputs, original: OriginalModel
) -> tuple[str, float] | None:
    """Return the output that the declared constants move most on an image, and its cosine with
    what the processor's give; None if the original cannot be run on both.
    """
    constants, contract = prepared.image, made_from.contract.unfused()
    assert constants is not None
    spec = next(each for each in contract.inputs if each.name == prepared.spec.name)
    rows = max(1, extent(contract, spec.shape[0]).min)
    own, declared = prepared.processor.image(picture), sized(constants, picture)
    outputs = []
    try:
        for values in (own, normalized(constants, declared)):
            batch = np.stack([values] * rows)
            sizes = contract.typical_sizes() | _sizes(contract, spec, batch.shape, prepared.place)
            feeds = made_from.draw(sizes, Draw("preprocess")) | {spec.name: batch}
            outputs.append(original.run(feeds))
    except (StageFailedError, RunFailedError):
        return None
    cosines = {
        each.output: each.cosine for each in compare_outputs(contract, outputs[0], outputs[1])
    }
    return min(cosines.items(), key=lambda pair: pair[1])


def _with_effect(finding: Finding, effect: tuple[str, float] | None) -> Finding:
    if effect is None:
        return finding
    output, cosine = effect
    return dataclasses.replace(
        finding,
        message=f"{finding.message} As declared, {output!r} has a cosine of {cosine:.4f} with the"
        " original's.",
        evidence={**finding.evidence, "output": output, "cosine": cosine},
    )


def tokenizer_constants(
    contract: Contract, original: OriginalModel, texts: Sequence[str]
) -> list[Finding]:
    """Return where the contract's constants for texts differ from the model's tokenizer; raises
    UnfitDataError if there is none.
    """
    found: list[Finding] = []
    for index, spec in enumerate(contract.inputs):
        if spec.preprocess is None or spec.preprocess.text is None:
            continue
        place = f"inputs.{index}.preprocess"
        if original.tokenizer is None:
            fix = "Put the tokenizer's files beside the model's weights, or remove preprocess."
            problem = "the model has no tokenizer beside it"
            raise UnfitDataError(place, problem, fix, tensor=spec.name)
        declared = spec.preprocess.text
        found += text_findings(spec.name, place, declared, original.tokenizer(), texts)
    return found


def _rate(spec: TensorSpec, processor: OriginalProcessor) -> int:
    """Return the original's sampling rate; a function's is the declared one."""
    assert spec.preprocess is not None
    assert spec.preprocess.audio is not None
    return int(processor.settings.get("sampling_rate", spec.preprocess.audio.sampling_rate))


def _batches(prepared: _Prepared, contract: Contract) -> list[list[np.ndarray]]:
    """Return the files in batches that the axes allow: neighbors of one shape share one. The last
    of a shape is filled up with its first files, if the axis starts above one row.
    """
    rows = extent(contract, prepared.spec.shape[0])
    by_shape: dict[tuple[int, ...], list[np.ndarray]] = {}
    for content in prepared.contents:
        by_shape.setdefault(prepared.given(content).shape, []).append(content)
    batches = []
    for contents in by_shape.values():
        for start in range(0, len(contents), rows.max):
            batch = contents[start : start + rows.max]
            while len(batch) < rows.min:
                batch.append(contents[len(batch) % len(contents)])
            batches.append(batch)
    return batches


def _case(
    name: str,
    prepared: _Prepared,
    batch: Sequence[np.ndarray],
    made_from: CaseInputs,
    original: OriginalModel,
) -> Case:
    spec, contract = prepared.spec, made_from.contract
    values = np.stack([prepared.given(content) for content in batch])
    sizes = contract.typical_sizes() | _sizes(contract, spec, values.shape, prepared.place)
    plural = "s" if len(batch) > 1 else ""
    description = (
        f"{len(batch)} file{plural} through {prepared.processor.name} ({sizes_text(sizes)})"
    )

    def inputs() -> Feeds:
        return made_from.draw(sizes, Draw(name)) | {spec.name: values}

    def expected() -> Feeds:
        wanted = np.stack([prepared.wanted(content) for content in batch])
        return original.run(inputs() | {spec.name: wanted})

    is_fused = spec.preprocess is not None and spec.preprocess.fused
    return Case(name, description, sizes, inputs, expected=expected if is_fused else None)


def _sizes(
    contract: Contract, spec: TensorSpec, shape: tuple[int, ...], place: str
) -> dict[str, int]:
    """Return the axes' sizes that prepared files determine; raises UnfitDataError if the contract
    does not allow them.
    """
    found: dict[str, int] = {}
    fits = len(shape) == len(spec.shape)
    for dimension, size in zip(spec.shape, shape, strict=False):
        if isinstance(dimension, str) and dimension.isidentifier():
            axis = contract.axis(dimension)
            found[dimension] = size
            fits = fits and axis.min <= size <= axis.max
        elif isinstance(dimension, int):
            fits = fits and dimension == size
    if not fits:
        problem = f"the files become {list(shape)}, which {spec} does not allow"
        fix = "Correct the input's shape or the axes' sizes, or name files of other sizes."
        raise UnfitDataError(f"{place}.files", problem, fix, tensor=spec.name)
    return found
