"""Names for the open dimensions of a file's inputs, and the sizes that are worth trying."""

import dataclasses
import keyword
import re
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import Dimension, DimensionError, TensorSpec, dimension_axes
from convkit.worker.survey.inputs.input_guesses import (
    channel_axis,
    is_audio,
    is_encoded_image,
    is_latent,
    is_length,
)
from convkit.worker.survey.inputs.input_usage import Usage

# Placeholders that exporters write for unnamed dimensions.
_NAMELESS = re.compile(
    r"\?|-1|none|unknown|unk_*\d*|dim_?\d*|s\d+|d\d+|.*dynamicdimension.*|.*_dim_\d+|.*_dyn_\d*",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STATE = re.compile(r"^(h|c|hn?|cn?|state|hidden|cell|cache|.*_state|.*state_?n?)$", re.IGNORECASE)

# A number for each row, or one for all: how far a generator has come.
_PER_ROW = re.compile(r"time_?steps?$|^sigmas?$|^t$", re.IGNORECASE)

# Sizes to try, most likely first, by the kind of axis.
CANDIDATES: dict[str, tuple[int, ...]] = {
    "batch": (1, 2, 4),
    "height": (224, 320, 64, 640, 48, 32, 256, 128, 96, 112, 28, 512, 384, 299, 80),
    "width": (224, 320, 64, 640, 48, 32, 256, 128, 96, 112, 28, 512, 384, 299, 80),
    "side": (32, 64, 16, 128, 8, 96, 48),
    "channels": (3, 1, 4, 2),
    "sequence": (16, 8, 32, 64, 128, 4, 2, 1, 512, 2048),
    "samples": (16000, 512, 1024, 8000, 1600, 1536, 32000, 4000, 256, 48000, 576, 1280, 160, 96000),
    "bytes": (16384, 4096, 1024),
    "": (16, 1, 64, 8, 100, 128, 32, 3, 2, 80, 4, 256, 200, 512, 1000, 400, 40, 160, 76),
}


@dataclasses.dataclass(frozen=True)
class OpenInputs:
    """The inputs with a name for every open dimension, and each name's role: a key of
    `CANDIDATES`.
    """

    inputs: tuple[TensorSpec, ...]
    roles: Mapping[str, str]


def open_dimension(dimension: Dimension | None) -> str | None:
    """Return the symbol of a dimension without a size, "" for a nameless one; None for a size.

    Paddle writes -1 where others omit the size.
    """
    if isinstance(dimension, int):
        return "" if dimension < 0 else None
    text = (dimension or "").strip()
    return "" if text in ("", "?", "-1", "None", "unknown") else text


def name_axes(
    inputs: Sequence[TensorSpec], usages: Mapping[str, Usage], *, tied: bool = True
) -> OpenInputs:
    """Name every open dimension.

    Equal symbols are one axis. Nameless dimensions of the same role are one axis if `tied`,
    otherwise separate ones.
    """
    namer = _Namer(inputs, tied=tied)
    named = [namer.spec(spec, usages[spec.name]) for spec in inputs]
    return OpenInputs(tuple(named), namer.roles)


class _Namer:
    def __init__(self, inputs: Sequence[TensorSpec], *, tied: bool) -> None:
        self._tied = tied
        self._by_symbol: dict[str, str] = {}
        self.roles: dict[str, str] = {}
        symbols = {open_dimension(size) for spec in inputs for size in spec.shape}
        self._symbols = {symbol for symbol in symbols if symbol}

    def spec(self, spec: TensorSpec, usage: Usage) -> TensorSpec:
        shape = tuple(
            self._dimension(spec, usage, axis, size) for axis, size in enumerate(spec.shape)
        )
        return dataclasses.replace(spec, shape=shape)

    def _dimension(self, spec: TensorSpec, usage: Usage, axis: int, size: Dimension) -> Dimension:
        symbol = open_dimension(size)
        if symbol is None:
            return size
        if axis in usage.sizes:
            return usage.sizes[axis]
        if symbol and self._is_arithmetic(symbol):
            return symbol
        if symbol in self._by_symbol:
            return self._by_symbol[symbol]
        role = _role(spec, usage, axis)
        named = bool(symbol) and not _NAMELESS.fullmatch(symbol)
        plain = "length" if axis == len(spec.shape) - 1 else "size"
        name = _identifier(symbol if named else role or plain)
        if symbol or not (self._tied and self.roles.get(name) == role and role):
            name = self._free(name)
        self.roles[name] = role or _role_of_name(name)
        if symbol:
            self._by_symbol[symbol] = name
        return name

    def _is_arithmetic(self, symbol: str) -> bool:
        """Return True if a symbol is an expression of other symbols of the inputs."""
        try:
            axes = dimension_axes(symbol)
        except DimensionError:
            return False
        return symbol not in axes and set(axes) <= self._symbols

    def _free(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self.roles:
            number += 1
            candidate = f"{name}_{number}"
        return candidate


def _role(spec: TensorSpec, usage: Usage, axis: int) -> str:
    rank = len(spec.shape)
    if is_encoded_image(spec, usage) and axis == rank - 1:
        return "bytes"
    if rank == 3 and axis == 1 and _STATE.match(spec.name):
        return "batch"
    is_per_row = rank > 1 or is_length(spec) or bool(_PER_ROW.search(spec.name))
    if axis == 0 and is_per_row and not _STATE.match(spec.name):
        return "batch"
    if is_latent(spec) and axis >= rank - 2:
        return "side"
    if rank == 4:
        channels = channel_axis(spec.shape)
        if axis == (1 if channels is None else channels):
            return "channels"
        after = 2 if channels in (None, 1) else 1
        return {after: "height", after + 1: "width"}.get(axis, "")
    if axis == rank - 1 and is_audio(spec, usage):
        return "samples"
    is_index = not spec.dtype.startswith(("float", "bfloat")) or "mask" in spec.name
    return "sequence" if is_index and rank == 2 and axis == 1 else ""


def _role_of_name(name: str) -> str:
    """Return the role that a file's own name for an axis speaks of."""
    text = name.lower()
    words = {
        "batch": ("batch", "n", "bs"),
        "height": ("height", "h"),
        "width": ("width", "w"),
        "sequence": ("seq", "sequence", "token", "tokens", "seq_len"),
        "samples": ("samples", "audio", "num_samples", "wave"),
    }
    for role, known in words.items():
        if text in known or any(len(word) > 3 and word in text for word in known):
            return role
    return ""


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "axis"
    if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name):
        name = f"axis_{name}"
    return name
