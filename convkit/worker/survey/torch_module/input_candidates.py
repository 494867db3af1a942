"""What an input of a torch module may look like: guesses, likeliest first, for trials to decide."""

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch

from convkit.protocol.contract import Dimension, DType
from convkit.protocol.messages import Sample
from convkit.worker.original.loading.loaded_model import Config, LoadedModel
from convkit.worker.survey.inputs.input_guesses import is_length_name
from convkit.worker.survey.inputs.layer_hints import HintingLayer, layers_of, own_widths
from convkit.worker.survey.torch_module.argument_roles import Role

# Sizes of the axes with which a module is tried, likeliest first, by the axis's role. A batch of
# two shows a size that is the batch's, and one that is not.
SIZES: dict[str, tuple[int, ...]] = {
    "batch": (2, 1),
    "sequence": (32, 16, 8, 64, 128),
    "side": (224, 32, 28, 64, 256, 128, 96, 384, 512, 112, 48, 299, 16),
    "samples": (16000, 4000, 1024, 48000),
    "length": (128, 32, 256, 1024, 100, 16, 64, 512),
    "frames": (8, 4, 16, 2, 32),
    "points": (64, 128, 256, 32, 16, 1024),
    "letters": (12, 5),
    "edges": (8, 3),
    "entries": (24, 8, 64),
    "rows": (3, 2, 4),
}
ROLES: dict[str, str] = {
    "batch": "batch",
    "sequence": "sequence",
    "decoder_sequence": "sequence",
    "steps": "sequence",
    "side": "side",
    "height": "side",
    "width": "side",
    "samples": "samples",
    "length": "length",
    "frames": "frames",
    "points": "points",
    "letters": "letters",
    "edges": "edges",
    "entries": "entries",
    "features": "rows",
}
_NORMAL = Sample("normal", (0.0, 1.0))
_MASK_NAME = re.compile(r"mask", re.IGNORECASE)
_MASK_LIKE_NAME = re.compile(r"mask|^pad|padding|valid|keep|visible|att\w*_bias", re.IGNORECASE)
_HIDDEN = -math.inf  # in a mask that is added to scores
# The shapes of masks of positions, and of pairs of them.
_MASK_SHAPES: tuple[tuple[Dimension, ...], ...] = (
    ("batch", "sequence"),
    ("sequence", "sequence"),
    ("batch", "sequence", "sequence"),
    ("batch", 1, "sequence", "sequence"),
    ("batch", 1, 1, "sequence"),
)
_AUDIO_NAME = re.compile(r"audio|wave|wav\b|speech|pcm|sound", re.IGNORECASE)
_IMAGE_NAME = re.compile(r"image|img|pixel|picture|photo", re.IGNORECASE)
_VIDEO_NAME = re.compile(r"video|clip|frames", re.IGNORECASE)
# The step, or the amount of noise, that a diffusion model is called for.
_STEP_NAME = re.compile(r"^t$|^ts$|time|sigma|noise_level|^steps?$", re.IGNORECASE)
_DIFFUSION_STEPS = 1000
# A number for each row: whose row it is, or how much of something.
_ROW_ID_NAME = re.compile(
    r"_(id|index|idx|label|class|kind|type|category)$|^(label|class|category)$", re.IGNORECASE
)
_ROW_AMOUNT_NAME = re.compile(r"speed|scale|temperature|rate$|ratio|alpha|strength|^dt$|factor")
# Whether something holds for a row.
_FLAG_NAME = re.compile(r"^(has|is|use|with)_|(^|_)flag$", re.IGNORECASE)
_FLAG_TYPES: tuple[DType, ...] = ("float32", "bool", "int64")
# Pairs of nodes, as in PyTorch Geometric.
_EDGES_NAME = re.compile(r"edge_index|edges$|adj_t$", re.IGNORECASE)
_IMAGE_CHANNELS = (1, 3, 4)
# Clouds of points, which layers read point by point.
_POINTS_NAME = re.compile(
    r"^(points?|xyz|cloud|point_?cloud|pcd?|coords?|coordinates)$", re.IGNORECASE
)
_READS_POINTS = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)
_COORDINATES = 3
# At which element each bag of embeddings begins.
_OFFSETS_NAME = re.compile(r"(^|_)(offsets?|starts)$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class InputCandidate:
    """A shape in terms of `ROLES`, an element type, and how values are drawn. `padding` is the
    value by which a mask marks padding.
    """

    dtype: DType
    shape: tuple[Dimension, ...]
    sample: Sample = _NORMAL
    padding: int = 0


_OFFSETS = [InputCandidate("int64", ("batch",), Sample("offsets", along="entries"))]


def by_name(name: str, config: Config) -> list[InputCandidate]:
    """Return what an input of transformers' models is that has this name; none if it is not known.

    Names and shapes are those of transformers' model documentation.
    """
    ids: tuple[Dimension, ...] = ("batch", "sequence")
    match name:
        case "input_ids":
            return [InputCandidate("int64", ids, Sample("token_ids"))]
        case "decoder_input_ids":
            return [InputCandidate("int64", ("batch", "decoder_sequence"), Sample("token_ids"))]
        case "attention_mask":
            return [InputCandidate("int64", ids, Sample("padding_mask"))]
        case "token_type_ids":
            kinds = float(_number(config, "type_vocab_size") or 1)
            return [InputCandidate("int64", ids, Sample("integers", (0.0, kinds)))]
        case "pixel_values":
            return list(_pictures(config))
        case "input_features" | "input_values":
            return list(_sound(config))
        case "past_values":
            steps = _number(config, "context_length")
            width = _number(config, "num_input_channels", "input_size")
            return [InputCandidate("float32", ("batch", steps, width))] if steps and width else []
        case _:
            return []


def by_layers(
    parameter: inspect.Parameter, loaded: LoadedModel, role: Role | None = None
) -> list[InputCandidate]:
    """Return what an input of any module may be, from its name, its role if that was seen, and the
    layers that could read it.

    None without either: a module may accept shapes that mean nothing to it.
    """
    layers = list(layers_of(loaded.module))
    found = list(_of_role(role, layers))
    found += _points(parameter.name, layers)
    found += _flags_and_pixels(parameter.name, layers)
    if _MASK_NAME.search(parameter.name):
        shape: tuple[Dimension, ...] = ("batch", "sequence")
        # A tokenizer's attention_mask holds integers, and so do those of models written for it.
        whole = "attention_mask" in parameter.name or "input_mask" in parameter.name
        types: tuple[DType, ...] = ("int64", "bool") if whole else ("bool", "int64")
        found += [
            InputCandidate(dtype, shape, Sample("padding_mask"), padding)
            for dtype in (*types, "float32")
            for padding in (0, 1)
        ]
    if _MASK_LIKE_NAME.search(parameter.name):
        found += _masks(_MASK_SHAPES)
    if _AUDIO_NAME.search(parameter.name):
        sound = Sample("audio", (-1.0, 1.0))
        found += [
            InputCandidate("float32", ("batch", "samples"), sound),
            InputCandidate("float32", ("batch", 1, "samples"), sound),
        ]
    if _IMAGE_NAME.search(parameter.name):
        shape = ("batch", _channels(layers), "side", "side")
        found.append(InputCandidate("float32", shape, Sample("image", (0.0, 1.0))))
    if _VIDEO_NAME.search(parameter.name):
        found += _videos(_channels(layers))
    if _STEP_NAME.search(parameter.name):
        found += [
            InputCandidate("int64", ("batch",), Sample("integers", (0.0, float(_DIFFUSION_STEPS)))),
            InputCandidate("float32", ("batch",), Sample("uniform", (0.0, 1.0))),
        ]
    if _EDGES_NAME.search(parameter.name):
        found.append(InputCandidate("int64", (2, "edges"), Sample("integers", (0.0, 2.0))))
    found += _bounded(parameter.name, layers)
    if _ROW_AMOUNT_NAME.search(parameter.name):
        amount = Sample("uniform", (0.5, 2.0))
        found += [InputCandidate("float32", shape, amount) for shape in (("batch",), ("batch", 1))]
    attends = any(layer.kind is torch.nn.MultiheadAttention for layer in layers)
    embedded = sum(layer.columns for layer in layers)
    # An argument `country` is read by `self.country` or `self.country_embedding`, if there is one.
    own = [layer for layer in layers if _is_named_after(layer, parameter.name)]
    if not own and _ROW_ID_NAME.search(parameter.name):
        tables = sorted(layer.width for layer in layers if layer.columns)
        found += [
            InputCandidate("int64", ("batch",), Sample("integers", (0.0, float(rows))))
            for rows in tables
        ]
    for layer in own or layers:
        found += _of_layer(layer, attends=attends, embedded=embedded)
    # A picture need not be square: a spectrogram has bins, and a table of positions.
    grids = dict.fromkeys(each.width for each in layers if each.kind is torch.nn.Conv2d)
    found += [InputCandidate("float32", ("batch", each, "height", "width")) for each in grids]
    # Less likely: a picture for each point in time, and a number for each row.
    if any(layer.kind in (torch.nn.Conv2d, torch.nn.Conv3d) for layer in layers):
        found += _videos(_channels(layers))
    # What a module of the user's own has a number for each of: statistics of a series' channels.
    for width in own_widths(loaded.module):
        found += [
            InputCandidate("float32", ("batch", "sequence", width)),
            InputCandidate("float32", ("batch", width, "length")),
            InputCandidate("float32", ("batch", width)),
        ]
    if found:
        found.append(InputCandidate("float32", ("batch",)))
    return list(dict.fromkeys(found))


def _points(name: str, layers: Sequence[HintingLayer]) -> Iterator[InputCandidate]:
    """Yield clouds of points for an input of such a name, of the width that the first layer reads:
    one cloud without a batch runs, too, in most models, and means something else.
    """
    if not _POINTS_NAME.search(name):
        return
    first = next((each for each in layers if each.kind in _READS_POINTS), None)
    width = first.width if first is not None else _COORDINATES
    last: tuple[Dimension, ...] = ("batch", "points", width)
    before: tuple[Dimension, ...] = ("batch", width, "points")
    is_linear = first is not None and first.kind is torch.nn.Linear
    for shape in (last, before) if is_linear else (before, last):
        yield InputCandidate("float32", shape)


def _of_role(role: Role | None, layers: Sequence[HintingLayer]) -> Iterator[InputCandidate]:
    match role.name if role is not None else None:
        case "lengths":
            yield from _lengths()
        case "offsets":
            yield from _OFFSETS
        case "rows" if role is not None and role.from_each is None:
            widths = [layer.width for layer in layers if layer.kind is torch.nn.Linear]
            for width in dict.fromkeys(widths if role.width is None else [role.width]):
                yield InputCandidate("float32", ("features", width))
                yield InputCandidate("float32", ("batch", "features", width))
        case "padding":
            yield from _masks(_MASK_SHAPES[:1])
        case "mask":
            yield from _masks(_MASK_SHAPES)


def _bounded(name: str, layers: Sequence[HintingLayer]) -> Iterator[InputCandidate]:
    """Yield lengths of rows, and where bags of embeddings begin, for an input of such a name."""
    if is_length_name(name):
        yield from _lengths()
    if _OFFSETS_NAME.search(name) and any(each.kind is torch.nn.EmbeddingBag for each in layers):
        yield from _OFFSETS


def _lengths() -> Iterator[InputCandidate]:
    """Yield lengths of rows, along each axis that may be one of time."""
    for axis in ("sequence", "length", "samples"):
        yield InputCandidate("int64", ("batch",), Sample("lengths", along=axis))


def _masks(shapes: Sequence[tuple[Dimension, ...]]) -> Iterator[InputCandidate]:
    """Yield masks: of bools, True where padding is or is not, and of what is added to scores."""
    for shape in shapes:
        kind: Literal["causal_mask", "padding_mask"] = (
            "causal_mask" if shape == ("sequence", "sequence") else "padding_mask"
        )
        yield InputCandidate("bool", shape, Sample(kind), 1)
        yield InputCandidate("bool", shape, Sample(kind), 0)
        yield InputCandidate("float32", shape, Sample(kind, (_HIDDEN,)), 1)


def _flags_and_pixels(name: str, layers: Sequence[HintingLayer]) -> Iterator[InputCandidate]:
    """Yield what says whether something holds for a row, and masks of pixels, such as one that a
    model drew before.
    """
    if _FLAG_NAME.search(name):
        for dtype in _FLAG_TYPES:
            yield InputCandidate(dtype, ("batch",), Sample("integers", (0.0, 2.0)))
            yield InputCandidate(dtype, ("batch", 1), Sample("integers", (0.0, 2.0)))
    reads_one_channel = any(layer.kind is torch.nn.Conv2d and layer.width == 1 for layer in layers)
    if _MASK_NAME.search(name) and reads_one_channel:
        yield InputCandidate("float32", ("batch", 1, "side", "side"))


def _videos(channels: int) -> list[InputCandidate]:
    """Return pictures in a row, each with its channels first, then with the channels before all."""
    pictures = Sample("image", (0.0, 1.0))
    return [
        InputCandidate("float32", ("batch", "frames", channels, "side", "side"), pictures),
        InputCandidate("float32", ("batch", channels, "frames", "side", "side"), pictures),
    ]


def _channels(layers: Sequence[HintingLayer]) -> int:
    """Return the channels of images that the first convolution reads; three if it reads none."""
    first = next((each.width for each in layers if each.kind is torch.nn.Conv2d), 0)
    return first if first in _IMAGE_CHANNELS else 3


def _is_named_after(layer: HintingLayer, parameter: str) -> bool:
    """Return whether an embedding's own name contains a parameter's, as whole words."""
    words = layer.path.rpartition(".")[2].split("_")
    wanted = parameter.split("_")
    places = range(len(words) - len(wanted) + 1)
    return layer.columns > 0 and any(words[at : at + len(wanted)] == wanted for at in places)


def _of_layer(layer: HintingLayer, *, attends: bool, embedded: int) -> Iterator[InputCandidate]:
    """Yield inputs that a layer itself would accept. `embedded`: the columns of all embeddings."""
    kind, width = layer.kind, layer.width
    if kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
        ids = Sample("integers", (0.0, float(width)))
        yield InputCandidate("int64", ("batch", "sequence"), ids)
        if kind is torch.nn.EmbeddingBag:
            yield InputCandidate("int64", ("entries",), ids)
        yield InputCandidate("int64", ("batch",), ids)
        yield InputCandidate("int64", ("batch", "sequence", "letters"), ids)
    elif kind is torch.nn.Conv1d:
        yield InputCandidate("float32", ("batch", width, "length"))
        yield InputCandidate("float32", ("batch", "length", width))
        if width == 1:
            yield InputCandidate("float32", ("batch", "samples"), Sample("audio", (-1.0, 1.0)))
    elif kind is torch.nn.Conv2d:
        shape = ("batch", width, "side", "side")
        is_picture = width in _IMAGE_CHANNELS
        picture = Sample("image", (0.0, 1.0)) if is_picture else _NORMAL
        yield InputCandidate("float32", shape, picture)
        yield InputCandidate("float32", ("batch", "side", "side", width), picture)
    elif kind is torch.nn.Conv3d:
        yield InputCandidate("float32", ("batch", width, 8, "side", "side"))
    elif kind in (torch.nn.RNNBase, torch.nn.MultiheadAttention):
        yield _rows(width, batch_first=layer.batch_first)
    elif kind is torch.nn.Linear:
        flat = InputCandidate("float32", ("batch", width))
        rows = InputCandidate("float32", ("batch", "sequence", width))
        # Attention takes two axes for one sequence without a batch.
        yield from (rows, flat) if attends else (flat, rows)
        if 0 < embedded < width:
            # Numbers that are joined to the embeddings of categories, as in tables.
            yield InputCandidate("float32", ("batch", width - embedded))
    elif kind is torch.nn.BatchNorm1d:
        yield InputCandidate("float32", ("batch", width))


def _rows(width: int, *, batch_first: bool) -> InputCandidate:
    return InputCandidate(
        "float32", ("batch", "sequence", width) if batch_first else ("sequence", "batch", width)
    )


def _pictures(config: Config) -> Iterator[InputCandidate]:
    channels = _number(config, "num_channels") or 3
    height, width = _pair(_setting(config, "image_size")) or ("side", "side")
    yield InputCandidate("float32", ("batch", channels, height, width))
    yield InputCandidate("float32", ("batch", channels, "side", "side"))
    frames = _number(config, "num_frames")
    if frames:
        yield InputCandidate("float32", ("batch", frames, channels, height, width))


def _sound(config: Config) -> Iterator[InputCandidate]:
    """Yield a waveform, then spectrograms with either axis first."""
    bins = _number(
        config,
        *("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_dim"),
    )
    if bins:
        half = _number(config, "max_source_positions")
        if half:
            yield InputCandidate("float32", ("batch", bins, 2 * half))
        frames = _number(config, "max_length")
        if frames:
            yield InputCandidate("float32", ("batch", frames, bins))
        yield InputCandidate("float32", ("batch", "length", bins))
        yield InputCandidate("float32", ("batch", bins, "length"))
    sound = Sample("audio", (-1.0, 1.0))
    yield InputCandidate("float32", ("batch", "samples"), sound)
    yield InputCandidate(
        "float32", ("batch", _number(config, "audio_channels") or 1, "samples"), sound
    )


def _setting(config: Config, name: str) -> object:
    """Return a configuration's value, else that of the first part that has one."""
    if config is None:
        return None
    for part in (config, *(getattr(config, key, None) for key in _parts(config))):
        if (value := getattr(part, name, None)) is not None:
            return value
    return None


def _parts(config: Config) -> Mapping[str, object]:
    """Return the names of a configuration's parts, such as the vision and text of CLIP."""
    return getattr(config, "sub_configs", {})


def _number(config: Config, *names: str) -> int | None:
    values = (_setting(config, name) for name in names)
    return next(
        (v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None
    )


def _pair(value: object) -> tuple[int, int] | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    if isinstance(value, list | tuple) and len(value) == 2:
        return int(value[0]), int(value[1])
    return None
