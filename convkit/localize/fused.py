"""What exporters compute from several weights: folded norms, joined layers, reordered gates."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

import numpy as np

State = Mapping[str, np.ndarray]
Shape = tuple[int, ...]

# torch's order of an LSTM's gates is input, forget, cell, output and ONNX's input, output, forget,
# cell; of a GRU's reset, update, new against update, reset, new.
_GATES = {4: (0, 3, 1, 2), 3: (1, 0, 2)}
_EPSILONS = (1e-5, 1e-3, 1e-6, 1e-12)


@dataclasses.dataclass(frozen=True)
class Derived:
    """Values that an exporter may have computed, in words, and the weights that they come from."""

    original: str
    values: np.ndarray
    sources: tuple[str, ...]


def derived_tensors(state: State, shapes: Collection[Shape]) -> Iterator[Derived]:
    """Yield what can be derived from a state dict in one of the wanted shapes."""
    for derived in (*_folded_norms(state, shapes), *_joined(state, shapes), *_gates(state)):
        if derived.values.shape in shapes:
            yield derived


def _folded_norms(state: State, shapes: Collection[Shape]) -> Iterator[Derived]:
    """Fold every batch norm into every convolution and linear layer that it could follow.

    A state dict has neither the order of modules nor epsilons: all that fit are tried, and which
    one was folded is told by its values.
    """
    norms = [name.removesuffix("running_var") for name in state if name.endswith("running_var")]
    for norm in norms:
        variance, mean = state[f"{norm}running_var"], state.get(f"{norm}running_mean")
        if mean is None:
            continue
        of_norm = [norm + part for part in ("weight", "bias", "running_mean", "running_var")]
        gain = state.get(f"{norm}weight", np.ones_like(variance)).astype(np.float64)
        shift = state.get(f"{norm}bias", np.zeros_like(variance)).astype(np.float64)
        for name, weight in _before(state, norm, variance.size):
            stem = name.removesuffix("weight")
            bias = state.get(f"{stem}bias", np.zeros_like(variance))
            for epsilon in _EPSILONS:
                scale = gain / np.sqrt(variance.astype(np.float64) + epsilon)
                if weight.shape in shapes:
                    folded = weight * scale.reshape(-1, *(1 for _ in weight.shape[1:]))
                    yield Derived(f"{name} with {norm}* folded in", folded, (name, *of_norm))
                shifted = (bias - mean) * scale + shift
                sources = (f"{stem}bias", *of_norm)
                yield Derived(f"{stem}bias with {norm}* folded in", shifted, sources)


def _before(state: State, norm: str, channels: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the layers whose outputs have a norm's channels, nearest before it first."""
    names = list(state)
    place = names.index(f"{norm}running_var")
    near = sorted(
        (name for name in names if name.endswith("weight") and state[name].ndim > 1),
        key=lambda name: abs(names.index(name) - place),
    )
    for name in near[:4]:
        if state[name].shape[0] == channels:
            yield name, state[name]


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
                    yield Derived(text, np.concatenate(arrays), tuple(parts))
                if len(shape) == 2 and shape[::-1] in shapes and shape != shape[::-1]:
                    yield Derived(text, np.concatenate(arrays).T, tuple(parts))


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
            yield Derived(" and ".join(sources), np.stack(parts), tuple(sources))


def _reordered(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    parts = np.split(array, len(order))
    return np.concatenate([parts[place] for place in order])
