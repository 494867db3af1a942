"""Batch norms folded into preceding layers, and mistakes in such folds."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.worker.cause.matching.weight_derivation import is_near

State = Mapping[str, np.ndarray]

# Epsilons of the frameworks' batch norms, tried if the norm's own is unknown.
_EPSILONS = (1e-5, 1e-3, 1e-6, 1e-12)
# Layers of a norm's width, nearest first, that it may have been folded into.
_LAYERS = 4
# A folded scale is compared within this many parts of its rms: it is solved for, then rounded.
_FITS = 1e-5


@dataclasses.dataclass(frozen=True)
class Norm:
    """A batch norm's tensors in float64, one element per channel."""

    name: str
    gain: np.ndarray
    shift: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    epsilon: float

    @property
    def scale(self) -> np.ndarray:
        """The norm's factor for each channel."""
        return np.asarray(self.gain / np.sqrt(self.variance + self.epsilon))


@dataclasses.dataclass(frozen=True)
class Fold:
    """A norm that may have been folded into a layer; `axis` is the weight's axis of channels."""

    layer: str
    weight: np.ndarray
    bias: np.ndarray
    axis: int
    norm: Norm
    others: tuple[Norm, ...]

    @property
    def folded_weight(self) -> np.ndarray:
        """The layer's weight with the norm in it."""
        return np.asarray(self.weight * self._along(self.norm.scale))

    @property
    def folded_bias(self) -> np.ndarray:
        """The layer's bias with the norm in it."""
        return np.asarray((self.bias - self.norm.mean) * self.norm.scale + self.norm.shift)

    def _along(self, values: np.ndarray) -> np.ndarray:
        shape = [1] * self.weight.ndim
        shape[self.axis] = -1
        return values.reshape(shape)

    def why_weight(self, found: np.ndarray) -> str | None:
        """Return the mistake in folding that explains the weight found; None if none does."""
        rest = tuple(axis for axis in range(found.ndim) if axis != self.axis)
        power = (self.weight.astype(np.float64) ** 2).sum(axis=rest)
        product = (self.weight.astype(np.float64) * found).sum(axis=rest)
        factors = product / np.where(power == 0, 1, power)
        if not is_near(found.astype(np.float64), self.weight * self._along(factors)):
            return None
        moving = power > 0
        scale = np.where(moving, factors, self.norm.scale)
        for text, wrong in self._scales(scale):
            if is_near(scale, np.where(moving, wrong, scale), _FITS):
                return text
        return None

    def why_bias(self, found: np.ndarray) -> str | None:
        """Return the mistake in folding that explains the bias found; None if none does."""
        norm = self.norm
        with np.errstate(all="ignore"):
            scale = (found - norm.shift) / (self.bias - norm.mean)
        for text, wrong in self._scales(np.where(np.isfinite(scale), scale, norm.scale)):
            if is_near(found, (self.bias - norm.mean) * wrong + norm.shift, _FITS):
                return text
        for text, mean, shift in self._shifts():
            if is_near(found, (self.bias - mean) * norm.scale + shift, _FITS):
                return text
        for other in self.others:
            both = dataclasses.replace(norm, mean=other.mean, variance=other.variance)
            if is_near(found, (self.bias - both.mean) * both.scale + both.shift, _FITS):
                return f"{norm.name} was folded in with {other.name}'s running_mean and running_var"
        return None

    def _scales(self, found: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Yield wrong scales; `found` is the one to explain, from which an epsilon is solved."""
        norm = self.norm
        with np.errstate(all="ignore"):
            epsilon = float(np.median((norm.gain / found) ** 2 - norm.variance))
        if np.isfinite(epsilon) and epsilon > -float(norm.variance.min()):
            folded_in = f"{norm.name} was folded in with epsilon {epsilon:.3g}"
            folded_in += f" instead of {norm.epsilon:g}"
            yield folded_in, dataclasses.replace(norm, epsilon=epsilon).scale
        own = norm.variance + norm.epsilon
        yield f"{norm.name} was folded in without its gain", 1 / np.sqrt(own)
        yield f"{norm.name} was folded in without its variance", norm.gain
        yield f"{norm.name} was folded in without the variance's root", norm.gain / own
        for other in self.others:
            for what, wrong in (
                ("running_var", dataclasses.replace(norm, variance=other.variance)),
                ("weight", dataclasses.replace(norm, gain=other.gain)),
                ("weight and running_var", other),
            ):
                yield f"{norm.name} was folded in with {other.name}'s {what}", wrong.scale

    def _shifts(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        norm = self.norm
        folded_in = f"{norm.name} was folded in"
        yield f"{folded_in} without its mean", np.zeros_like(norm.mean), norm.shift
        yield f"{folded_in} without its shift", norm.mean, np.zeros_like(norm.shift)
        yield f"{folded_in} with its mean's sign reversed", 2 * self.bias - norm.mean, norm.shift
        for other in self.others:
            yield f"{folded_in} with {other.name}'s running_mean", other.mean, norm.shift
            yield f"{folded_in} with {other.name}'s bias", norm.mean, other.shift


def folds(state: State, epsilons: Mapping[str, float] | None = None) -> Iterator[Fold]:
    """Yield every batch norm with every nearby layer of its width.

    A state dict does not record which layer a norm follows: all that fit are tried, and their
    values decide. `epsilons` are the norms' own by module path; without them, the usual ones are
    tried.
    """
    found = [norm for name in state if (norm := _norm(state, name)) is not None]
    places = {name: place for place, name in enumerate(state)}
    near = [(norm, _layers(state, places, norm)) for norm in found]
    # A norm's nearest layer is its own: a mistake in another fold can look like this one's.
    for rank in range(_LAYERS):
        for norm, layers in near:
            if rank >= len(layers):
                continue
            layer, axis = layers[rank]
            others = tuple(o for o in found if o is not norm and o.mean.size == norm.mean.size)
            known = (epsilons or {}).get(norm.name)
            weight = state[f"{layer}weight"]
            bias = state.get(f"{layer}bias", np.zeros_like(norm.mean)).astype(np.float64)
            for epsilon in _EPSILONS if known is None else (known,):
                own = dataclasses.replace(norm, epsilon=epsilon)
                yield Fold(layer, weight, bias, axis, own, others)


def _norm(state: State, name: str) -> Norm | None:
    prefix, _, part = name.rpartition("running_var")
    if part or not name.endswith("running_var") or f"{prefix}running_mean" not in state:
        return None
    variance = state[name].astype(np.float64)
    gain = state.get(f"{prefix}weight", np.ones_like(variance)).astype(np.float64)
    shift = state.get(f"{prefix}bias", np.zeros_like(variance)).astype(np.float64)
    mean = state[f"{prefix}running_mean"].astype(np.float64)
    return Norm(prefix.removesuffix("."), gain, shift, mean, variance, 0.0)


def _layers(state: State, places: Mapping[str, int], norm: Norm) -> list[tuple[str, int]]:
    """Return the layers that a norm may follow, nearest first, with their axis of channels."""
    prefix = f"{norm.name}." if norm.name else ""
    parts = ("weight", "bias", "running_mean", "running_var")
    place = min(places[prefix + part] for part in parts if prefix + part in places)
    width = norm.mean.size
    fitting = []
    for name, array in state.items():
        if name.endswith("weight") and array.ndim > 1:
            # A transposed convolution has its outputs on the second axis.
            layer = name.removesuffix("weight")
            axes = [axis for axis in (0, 1) if array.shape[axis] == width]
            bias = state.get(f"{layer}bias")
            wide = bias is None or bias.shape == (width,)
            if wide and axes and (axes[0] == 0 or array.ndim > 2):
                fitting.append((abs(places[name] - place), layer, axes[0]))
    return [(layer, axis) for _, layer, axis in sorted(fitting)[:_LAYERS]]
