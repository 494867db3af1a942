"""Values that exporters compute from several weights: folded norms, joined layers, reordered
gates.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from convkit.worker.cause.matching.weight_derivation import is_near
from convkit.worker.cause.weights.folded_norms import folds

State = Mapping[str, np.ndarray]
Shape = tuple[int, ...]

# torch's order of an LSTM's gates is input, forget, cell, output and ONNX's input, output, forget,
# cell; of a GRU's reset, update, new against update, reset, new.
_GATES = {4: (0, 3, 1, 2), 3: (1, 0, 2)}
_GATE_NAMES = {4: ("input", "forget", "cell", "output"), 3: ("reset", "update", "new")}


@dataclasses.dataclass(frozen=True)
class Derived:
    """Values that an exporter may have computed, with a description and their source weights.

    `build` computes them: those of a large model would not all fit into memory. `why` returns the
    mistake in computing them that explains other values, if known.
    """

    original: str
    shape: Shape
    build: Callable[[], np.ndarray]
    sources: tuple[str, ...]
    why: Callable[[np.ndarray], str | None] = lambda found: None  # noqa: ARG005

    @property
    def values(self) -> np.ndarray:
        """The values, computed anew each time."""
        return self.build()


def derived_tensors(
    state: State, shapes: Collection[Shape], epsilons: Mapping[str, float] | None = None
) -> Iterator[Derived]:
    """Yield the values in one of the wanted shapes that can be derived from a state dict.

    `epsilons` are those of the original's batch norms, by module path.
    """
    folded = list(_folded_norms(state, epsilons))
    found = (
        *folded,
        *_folded_scales(state, folded),
        *_weight_norms(state),
        *_joined(state, shapes),
        *_gates(state),
    )
    yield from (derived for derived in found if derived.shape in shapes)


def _folded_norms(state: State, epsilons: Mapping[str, float] | None) -> Iterator[Derived]:
    """Fold every batch norm into every convolution and linear layer that it could follow."""
    for fold in folds(state, epsilons):
        prefix = f"{fold.norm.name}." if fold.norm.name else ""
        of_norm = [prefix + part for part in ("weight", "bias", "running_mean", "running_var")]
        for part, shape, build, why in (
            ("weight", fold.weight.shape, lambda f=fold: f.folded_weight, fold.why_weight),
            ("bias", fold.bias.shape, lambda f=fold: f.folded_bias, fold.why_bias),
        ):
            name = fold.layer + part
            sources = (name, *of_norm)
            yield Derived(f"{name} with {fold.norm.name} folded in", shape, build, sources, why)


def _folded_scales(state: State, folded: Iterable[Derived]) -> Iterator[Derived]:
    """Fold a factor of each input channel, as of normalized images, into the convolutions that
    could read it, as converters do.

    Only constants that are stored in a shape to broadcast, (3, 1, 1) for instance, count: other
    weights of that many elements are too many.
    """
    scales = {
        name: array.reshape(-1)
        for name, array in state.items()
        if array.ndim > 1 and array.size == max(array.shape) > 1
    }
    kernels = [Derived(n, a.shape, partial(np.asarray, a), (n,)) for n, a in state.items()]
    for kernel in (*kernels, *folded):
        if len(kernel.shape) < 3:
            continue
        for name, factors in scales.items():
            if factors.size != kernel.shape[1]:
                continue
            for verb, apply in (("multiplied", np.multiply), ("divided", np.divide)):
                yield Derived(
                    f"{kernel.original}, {verb} by {name}",
                    kernel.shape,
                    partial(_scaled, kernel, factors, apply),
                    (*kernel.sources, name),
                )


def _scaled(kernel: Derived, factors: np.ndarray, apply: np.ufunc) -> np.ndarray:
    """Apply the factors to the kernel's axis of input channels, the second."""
    wide = factors.astype(np.float64).reshape(-1, *[1] * (len(kernel.shape) - 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(apply(kernel.values, wide))


def _weight_norms(state: State) -> Iterator[Derived]:
    """Multiply out torch's weight norm: a direction per row (or column), and its length."""
    for lengths, directions in (
        ("parametrizations.weight.original0", "parametrizations.weight.original1"),
        ("weight_g", "weight_v"),
    ):
        for name, gain in state.items():
            stem = name.removesuffix(lengths)
            direction = state.get(stem + directions)
            if stem == name or direction is None or gain.ndim != direction.ndim:
                continue
            sources = (name, stem + directions)
            yield Derived(
                f"{stem}weight (weight norm)",
                direction.shape,
                partial(_normed, gain, direction),
                sources,
                partial(_unnormed, stem + "weight", gain, direction),
            )


def _normed(gain: np.ndarray, direction: np.ndarray) -> np.ndarray:
    axes = tuple(axis for axis, size in enumerate(gain.shape) if size == 1)
    wide = direction.astype(np.float64)
    return np.asarray(gain * wide / np.sqrt((wide * wide).sum(axis=axes, keepdims=True)))


def _unnormed(name: str, gain: np.ndarray, direction: np.ndarray, found: np.ndarray) -> str | None:
    """Return which part of a weight norm is missing from the values found, if any."""
    for text, values in (
        ("it lacks the gain of its weight norm", _normed(np.ones_like(gain), direction)),
        ("its weight norm was left out", direction),
        ("its weight norm was not divided by the length", gain * direction),
    ):
        if found.shape == values.shape and is_near(found.astype(np.float64), values):
            return f"{name}: {text}"
    return None


def _joined(state: State, shapes: Collection[Shape]) -> Iterator[Derived]:
    """Join two or three neighbors along their first axis: projections of one input."""
    names = list(state)
    kinds = [name.rpartition(".")[2] for name in names]
    for kind in dict.fromkeys(kinds):
        same = [name for name, each in zip(names, kinds, strict=True) if each == kind]
        for count in (2, 3):
            for start in range(len(same) - count + 1):
                parts = same[start : start + count]
                arrays = [state[name] for name in parts]
                if (
                    len({(array.ndim, array.shape[1:]) for array in arrays}) > 1
                    or not arrays[0].ndim
                ):
                    continue
                rows = sum(array.shape[0] for array in arrays)
                shape = (rows, *arrays[0].shape[1:])
                text = " and ".join(parts)
                if shape in shapes:
                    yield Derived(text, shape, partial(np.concatenate, arrays), tuple(parts))
                if len(shape) == 2 and shape[::-1] in shapes and shape != shape[::-1]:
                    yield Derived(text, shape[::-1], partial(_turned, arrays), tuple(parts))


def _gates(state: State) -> Iterator[Derived]:
    """Reorder the gates of recurrent layers; ONNX stacks both directions and joins the biases."""
    for name, array in state.items():
        kind = name.rpartition(".")[2]
        if not kind.startswith(("weight_ih_l", "weight_hh_l", "bias_ih_l")) or "reverse" in kind:
            continue
        hidden = state.get(name.replace(kind.partition("_l")[0], "weight_hh"))
        if hidden is None or hidden.ndim != 2 or array.shape[0] % hidden.shape[1]:
            continue
        order = _GATES.get(array.shape[0] // hidden.shape[1])
        if order is None:
            continue
        names = [each for each in (name, f"{name}_reverse") if each in state]
        parts, sources = [], []
        for each in names:
            part = _reordered(state[each], order)
            sources.append(each)
            if kind.startswith("bias"):
                other = each.replace("bias_ih", "bias_hh")
                if other not in state:
                    break
                part = np.concatenate([part, _reordered(state[other], order)])
                sources.append(other)
            parts.append(part)
        if len(parts) == len(names):
            stacked = np.stack(parts)
            text = " and ".join(sources)
            why = partial(_gate_order, stacked, order)
            yield Derived(text, stacked.shape, partial(np.asarray, stacked), tuple(sources), why)


def _gate_order(right: np.ndarray, order: tuple[int, ...], found: np.ndarray) -> str | None:
    """Say in which order found weights have their gates, if that is what is wrong with them."""
    names = _GATE_NAMES[len(order)]
    # Biases of the input and of the state follow one another.
    halves = 2 if right.ndim == 2 else 1
    blocks = right.reshape(right.shape[0], halves, len(order), -1)
    other = found.reshape(blocks.shape)
    for places in itertools.permutations(range(len(order))):
        if places != tuple(sorted(places)) and is_near(other, blocks[:, :, list(places)]):
            own = ", ".join(names[order[place]] for place in places)
            return (
                f"its gates are in the order {own}, and ONNX's is"
                f" {', '.join(names[place] for place in order)}"
            )
    return None


def _turned(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays).T


def _reordered(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    parts = np.split(array, len(order))
    return np.concatenate([parts[place] for place in order])
