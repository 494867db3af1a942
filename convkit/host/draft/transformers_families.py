"""Inputs and outputs of transformers' models by family: enough to draft a recipe for review.

Sizes come from a model's config.json if there is one, else from the family's small configuration.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from convkit.protocol.json_codec import Json
from convkit.protocol.messages import OperatorLibrary
from convkit.protocol.postprocessing_constants import LabelConstants

Dimension = int | str


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A sample of a kind that has numbers: `{uniform: [0, 1]}`. `held` are those with a meaning,
    and how many elements have them; `filled`: the longest of some lengths uses its whole axis.
    """

    kind: str
    numbers: Json
    held: tuple[tuple[int, Dimension], ...] = ()
    filled: bool = False


# As in a recipe; a pair is a range of integers.
DraftSample = str | tuple[int, int] | Drawn


@dataclasses.dataclass(frozen=True)
class DraftInput:
    """An input of a draft; `sample` as in a recipe, None for normally distributed values. `origin`:
    the model's own name, if different.
    """

    name: str
    dtype: str
    shape: tuple[Dimension, ...]
    sample: DraftSample | None = None
    origin: str | None = None


@dataclasses.dataclass(frozen=True)
class DraftOutput:
    """An output of a draft."""

    name: str
    shape: tuple[Dimension, ...]
    dtype: str = "float32"
    origin: str | None = None
    mask: str | None = None


@dataclasses.dataclass(frozen=True)
class DraftSignature:
    """Inputs, outputs, task and the sizes of the axes (min, typical, max). `steps` are the lines of
    a recipe that say how a model is called in a loop, `data_axes` as in a recipe. `libraries`
    implement its custom operators, `labels` are those that the model names, by output. `skip` are
    cases to leave out, `exporter` is the exporter to use if it is not torch's, `axis_notes` are
    sentences about axes.
    """

    task: str
    inputs: tuple[DraftInput, ...]
    outputs: tuple[DraftOutput, ...]
    axes: Mapping[str, tuple[int, int, int]]
    steps: tuple[str, ...] = ()
    data_axes: Mapping[str, Mapping[str, Json]] = dataclasses.field(default_factory=dict)
    libraries: tuple[OperatorLibrary, ...] = ()
    labels: Mapping[str, LabelConstants] = dataclasses.field(default_factory=dict)
    skip: tuple[str, ...] = ()
    exporter: str | None = None
    axis_notes: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Family:
    """Models with the same interface.

    `small` is a configuration of the family that is quick to convert, for a recipe without weights.
    `width` is the configuration's key for the size of the hidden state, `positions` that for the
    longest sequence, of which `reserved` are never used (RoBERTa counts positions from 2).
    `extra_tokens` precede an image's patches. `cache_first`: forward has the cache before the mask,
    and a draft lists inputs in forward's order.
    """

    kind: Literal["text encoder", "decoder", "vision transformer", "vision pyramid"]
    small: Mapping[str, Json]
    width: str = "hidden_size"
    positions: str = "max_position_embeddings"
    reserved: int = 0
    token_types: bool = False
    extra_tokens: int = 1
    patch: str = "patch_size"
    cache_first: bool = False


_SMALL_TEXT: dict[str, Json] = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
_SMALL_LLAMA: dict[str, Json] = {**_SMALL_TEXT, "num_key_value_heads": 2}
_SMALL_VISION: dict[str, Json] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 64,
    "patch_size": 16,
    "num_channels": 3,
}
_SMALL_DISTILBERT: dict[str, Json] = {
    "vocab_size": 1000,
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 128,
    "max_position_embeddings": 128,
}
_SMALL_GPT2: dict[str, Json] = {
    "vocab_size": 1000,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
}

_SMALL_QWEN3: dict[str, Json] = {**_SMALL_LLAMA, "head_dim": 16}

_BERT = Family("text encoder", _SMALL_TEXT, token_types=True)
_DISTILBERT = Family("text encoder", _SMALL_DISTILBERT, width="dim")
_ROBERTA = Family("text encoder", {**_SMALL_TEXT, "max_position_embeddings": 130}, reserved=2)
_MPNET = _ROBERTA
_LLAMA = Family("decoder", _SMALL_LLAMA)
_VIT = Family("vision transformer", _SMALL_VISION)
_DINOV2 = Family(
    "vision transformer",
    {key: value for key, value in _SMALL_VISION.items() if key != "intermediate_size"},
)
_DEIT = Family("vision transformer", _SMALL_VISION, extra_tokens=2)
_PYRAMID = Family(
    "vision pyramid", {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "num_channels": 3}
)
_RESNET = Family(
    "vision pyramid",
    {
        "embedding_size": 16,
        "hidden_sizes": [16, 32, 48, 64],
        "depths": [1, 1, 1, 1],
        "num_channels": 3,
    },
)

# By transformers' model_type. Tests run a small model of each family against these signatures.
FAMILIES: dict[str, Family] = {
    "albert": Family("text encoder", {**_SMALL_TEXT, "embedding_size": 32}, token_types=True),
    "bert": _BERT,
    "camembert": _ROBERTA,
    "deberta-v2": Family("text encoder", {**_SMALL_TEXT, "type_vocab_size": 2}, token_types=True),
    "distilbert": _DISTILBERT,
    "electra": Family("text encoder", {**_SMALL_TEXT, "embedding_size": 32}, token_types=True),
    "mpnet": _MPNET,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "gpt2": Family(
        "decoder", _SMALL_GPT2, width="n_embd", positions="n_positions", cache_first=True
    ),
    "gpt_neox": Family("decoder", _SMALL_TEXT),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": Family("decoder", _SMALL_QWEN3),
    "beit": _VIT,
    "deit": _DEIT,
    "dinov2": _DINOV2,
    "vit": _VIT,
    "convnext": _PYRAMID,
    "resnet": _RESNET,
}

# Heads that a checkpoint can carry, by the ending of its architecture's name, and the task that
# loads them.
_HEADS: dict[str, str] = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForImageClassification": "image-classification",
}

DEFAULT_TASK = "feature-extraction"
# The tasks whose outputs `signature_of` knows.
KNOWN_TASKS = frozenset(
    {DEFAULT_TASK, "text-generation", "fill-mask", "question-answering", *_HEADS.values()}
)

_BATCH = (1, 4, 16)


def task_of(family: Family, config: Mapping[str, Json]) -> str:
    """Return the task that a checkpoint was trained for, as far as the draft knows its outputs.

    It ignores masked-language heads: such checkpoints are nearly always converted for their hidden
    states.
    """
    if family.kind == "decoder":
        return "text-generation"
    names = config.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    return next(
        (task for ending, task in _HEADS.items() if first.endswith(ending)), "feature-extraction"
    )


def signature_of(
    family: Family, config: Mapping[str, Json], task: str | None = None
) -> DraftSignature:
    """Return the signature of a model of the family, for a configuration as in config.json.

    Raises KeyError, TypeError or ValueError for a configuration in which a size is missing or of
    the wrong type.
    """
    task = task or task_of(family, config)
    if family.kind in ("vision transformer", "vision pyramid"):
        return _vision(family, config, task)
    return _text(family, config, task)


def _text(family: Family, config: Mapping[str, Json], task: str) -> DraftSignature:
    ids: tuple[Dimension, ...] = ("batch", "sequence")
    inputs = [
        DraftInput("input_ids", "int64", ids, "token_ids"),
        DraftInput("attention_mask", "int64", ids, "padding_mask"),
    ]
    if family.token_types and int(config.get("type_vocab_size", 2)) > 0:
        inputs.append(
            DraftInput("token_type_ids", "int64", ids, (0, int(config.get("type_vocab_size", 2))))
        )
    match task:
        case "text-generation" | "fill-mask":
            outputs = [DraftOutput("logits", (*ids, int(config["vocab_size"])))]
        case "text-classification":
            outputs = [DraftOutput("logits", ("batch", _labels(config)))]
        case "token-classification":
            outputs = [DraftOutput("logits", (*ids, _labels(config)))]
        case "question-answering":
            outputs = [DraftOutput("start_logits", ids), DraftOutput("end_logits", ids)]
        case _:
            outputs = [DraftOutput("last_hidden_state", (*ids, int(config[family.width])))]
    longest = max(min(int(config.get(family.positions, 512)) - family.reserved, 512), 2)
    axes = {"batch": _BATCH, "sequence": (min(2, longest), min(128, longest), longest)}
    return DraftSignature(task, tuple(inputs), tuple(outputs), axes)


def _vision(family: Family, config: Mapping[str, Json], task: str) -> DraftSignature:
    height, width = _pair(config.get("image_size", 224))
    pixels = DraftInput(
        "pixel_values", "float32", ("batch", int(config.get("num_channels", 3)), height, width)
    )
    if task == "image-classification":
        outputs = (DraftOutput("logits", ("batch", _labels(config))),)
    elif family.kind == "vision transformer":
        patch = _pair(config[family.patch])
        tokens = (height // patch[0]) * (width // patch[1]) + family.extra_tokens
        outputs = (DraftOutput("last_hidden_state", ("batch", tokens, int(config[family.width]))),)
    else:
        channels = int(config["hidden_sizes"][-1])
        outputs = (
            DraftOutput("last_hidden_state", ("batch", channels, height // 32, width // 32)),
        )
    return DraftSignature(task, (pixels,), outputs, {"batch": _BATCH})


def _pair(value: Json) -> tuple[int, int]:
    return (int(value[0]), int(value[1])) if isinstance(value, list) else (int(value), int(value))


def _labels(config: Mapping[str, Json]) -> int:
    labels = config.get("id2label")
    return len(labels) if isinstance(labels, dict) and labels else int(config.get("num_labels", 2))
