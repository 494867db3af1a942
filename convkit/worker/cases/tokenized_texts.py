"""Encodes real texts with the model's own tokenizer."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from convkit.protocol.contract import Axis, Contract, Dimension, TensorSpec, dimension_axes
from convkit.protocol.numpy_dtypes import numpy_dtype
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import StageFailedError

# Loads a transformers tokenizer, which has no useful type.
Tokenizer = Callable[[], Any]
PaddingSide = Literal["left", "right"]


def text_cases(
    made_from: CaseInputs, texts: Sequence[str], tokenizer: Tokenizer | None
) -> list[Case] | str:
    """Return one case per batch of texts (`texts`, `texts:2`, ..., `texts:unusual`), or the reason
    if there is none.

    Inputs that the tokenizer does not produce are sampled; axes that it does not determine have
    their typical sizes.
    """
    if not texts:
        return "the recipe has no texts (verify.texts)"
    made = _encoding(made_from, tokenizer)
    if isinstance(made, str):
        return made
    contract, encode, rows = made_from.contract, made.encode, made.rows
    cases = []
    for number, (batch, sizes, tokens) in enumerate(_encoded(made, contract, texts), start=1):
        name = "texts" if number == 1 else f"texts:{number}"
        description = f"{len(batch)} texts through the model's tokenizer ({sizes_text(sizes)})"
        cases.append(_case(made_from, name, description, sizes, tokens))
    unusual = next(
        _batches(_unusual_texts(made.encoder), Axis("rows", rows.min, rows.min, rows.max))
    )
    sizes, tokens = _fitted(contract, made.specs, encode(unusual))
    description = f"no text, one letter, unknown and special tokens ({sizes_text(sizes)})"
    edges = _case(made_from, "texts:unusual", description, sizes, tokens)
    return [*cases, dataclasses.replace(edges, may_be_refused=True, may_be_nan=True)]


def text_batches(
    made_from: CaseInputs,
    texts: Sequence[str],
    tokenizer: Tokenizer | None,
    side: PaddingSide | None = None,
) -> list[tuple[list[str], dict[str, int], Feeds]] | str:
    """Return the texts in batches that the axes allow, each with its sizes and its tokens; or why
    they cannot be encoded. The last batch may repeat the first texts. They are padded on `side`, by
    default the tokenizer's own.
    """
    made = _encoding(made_from, tokenizer, side)
    return made if isinstance(made, str) else [*_encoded(made, made_from.contract, texts)]


@dataclasses.dataclass(frozen=True)
class _Encoding:
    """How texts become tokens. `specs` are the inputs that the tokenizer makes, `rows` the sizes of
    their first axis.
    """

    encoder: Any
    encode: "_Encode"
    rows: Axis
    specs: Sequence[TensorSpec]


def _encoding(
    made_from: CaseInputs, tokenizer: Tokenizer | None, side: PaddingSide | None = None
) -> _Encoding | str:
    """Return how texts are encoded, or why they cannot be."""
    if tokenizer is None:
        return "the model has no tokenizer"
    contract = made_from.contract
    encoder = tokenizer()
    if side is not None:
        encoder.padding_side = side
    made = {str(name) for name in encoder.model_input_names}
    specs = [
        spec
        for spec in contract.inputs
        if (spec.origin or spec.name) in made and len(spec.shape) == 2
    ]
    if not specs:
        return f"the tokenizer makes {', '.join(sorted(made))}: none of them is an input"
    if encoder.pad_token is None:
        return (
            "the model's tokenizer has no padding token, so texts of different lengths cannot share"
            " a batch"
        )
    rows, positions = (extent(contract, specs[0].shape[place]) for place in (0, 1))
    encode = _Encode(encoder, specs, positions, made_from.facts)
    return _Encoding(encoder, encode, rows, specs)


def _encoded(
    made: _Encoding, contract: Contract, texts: Sequence[str]
) -> Iterator[tuple[list[str], dict[str, int], Feeds]]:
    for batch in _batches(texts, made.rows):
        yield batch, *_fitted(contract, made.specs, made.encode(batch))


def _unusual_texts(encoder: Any) -> list[str]:  # noqa: ANN401 - a tokenizer or processor
    """Return extreme texts for a tokenizer: as few tokens as possible, unknown tokens, and its
    special tokens as text.
    """
    special = getattr(encoder, "all_special_tokens", None) or [encoder.pad_token]
    return ["", "a", "\u2042 \U0001f9ea \u4e2d\u6587", " ".join(map(str, special[:8]))]


def _case(
    made_from: CaseInputs, name: str, description: str, sizes: dict[str, int], tokens: Feeds
) -> Case:
    return Case(name, description, sizes, lambda: made_from.draw(sizes, Draw(name)) | tokens)


def extent(contract: Contract, dimension: Dimension) -> Axis:
    """Return the sizes a dimension can have: an axis's, or else only its typical size."""
    for axis in contract.axes:
        if axis.name == dimension:
            return axis
    size = TensorSpec("", "int64", (dimension,)).concrete_shape(contract.typical_sizes())[0]
    return Axis(str(dimension), size, size, size)


def _batches(texts: Sequence[str], rows: Axis) -> Iterator[list[str]]:
    """Split the texts into batches that the axis allows; the last is filled up with the first texts
    if necessary.
    """
    for start in range(0, len(texts), rows.max):
        batch = list(texts[start : start + rows.max])
        while len(batch) < rows.min:
            batch.append(texts[len(batch) % len(texts)])
        yield batch


def _fitted(
    contract: Contract, specs: Sequence[TensorSpec], tokens: Feeds
) -> tuple[dict[str, int], Feeds]:
    """Return the axes' sizes for an encoded batch, and its tensors that have the declared shapes.

    Axes that the first input lacks, such as a cache's length in `past + sequence`, are as small as
    possible: texts start without a past.
    """
    first, *others = specs
    sizes = contract.typical_sizes() | first.sizes_from(tokens[first.name].shape)
    for spec in others:
        if spec.concrete_shape(sizes) == tokens[spec.name].shape:
            continue
        used = {axis for dimension in spec.shape for axis in dimension_axes(dimension)}
        known = {axis for dimension in first.shape for axis in dimension_axes(dimension)}
        sizes |= {axis.name: axis.min for axis in contract.axes if axis.name in used - known}
    fitting = {
        spec.name: tokens[spec.name]
        for spec in specs
        if spec.concrete_shape(sizes) == tokens[spec.name].shape
    }
    return sizes, fitting


class _Encode:
    """Tokenizes batches to a length within the sequence axis, in the contract's dtypes."""

    def __init__(
        self,
        encoder: Any,  # noqa: ANN401 - a tokenizer or processor
        specs: Sequence[TensorSpec],
        positions: Axis,
        facts: ModelFacts,
    ) -> None:
        self._encoder = encoder
        self._specs = specs
        self._longest = min(positions.max, facts.max_positions or positions.max)
        self._shortest = positions.min

    def __call__(self, batch: Sequence[str]) -> Feeds:
        encoded = self._tokenize(batch, padding=True, length=self._longest)
        if next(iter(encoded.values())).shape[1] < self._shortest:
            encoded = self._tokenize(batch, padding="max_length", length=self._shortest)
        tokens = {}
        for spec in self._specs:
            values = encoded[spec.origin or spec.name]
            tokens[spec.name] = values.astype(numpy_dtype(spec.dtype))
            if not np.array_equal(tokens[spec.name], values):
                raise StageFailedError(
                    f"input {spec.name!r}: {spec.dtype} cannot hold the tokenizer's values"
                )
        return tokens

    def _tokenize(self, batch: Sequence[str], *, padding: bool | str, length: int) -> Feeds:
        encoded = self._encoder(
            list(batch), padding=padding, truncation=True, max_length=length, return_tensors="np"
        )
        return {str(name): np.asarray(values) for name, values in encoded.items()}
