"""The two kinds of limit that a recipe's tolerance can set: on one metric, and numpy's allclose.

A limit reads its figure, decides whether it is met and how much of it is used, and bounds the
difference between two outputs of one model. `convkit.protocol.metrics.metric_registry` has the
rows. Standard library only: host and workers judge with the same code.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from convkit.protocol.messages import ErrorAtScale, TensorMetrics
from convkit.protocol.metrics.number_text import distinct_texts

# The keys set in a recipe's tolerance, with their values.
Limits = Mapping[str, float]

# So few labels may all differ: two of three say nothing about what a share allows.
_FEW_LABELS = 4
# What a sum of float64 products may be off by.
_FLOAT64_NOISE = 1e-12


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A key of a recipe's `tolerance`, and the values that it accepts.

    `default` is the value for recipes without a tolerance, as written in YAML; None: no limit.
    """

    name: str
    description: str
    least: float = 0
    least_is_allowed: bool = True
    most: float | None = None
    default: str | None = None


class Limit(Protocol):
    """A limit with the values that a tolerance sets.

    A *distance* is a figure on a scale for which the triangle inequality holds: two outputs that
    are each within the limit of a third are within twice the limit of each other.
    """

    @property
    def name(self) -> str:
        """The name of a breach: the limit's key, or the first of two."""

    @property
    def allowed(self) -> float:
        """The value that the figure is compared with."""

    @property
    def allowed_distance(self) -> float:
        """The limit as a distance."""

    def found(self, metrics: TensorMetrics) -> float:
        """Return an output's figure; NaN if unknown."""

    def holds(self, found: float) -> bool:
        """Return True if a figure meets the limit. NaN never does."""

    def share(self, metrics: TensorMetrics) -> float:
        """Return the used share of the limit: 1 at the limit, infinity for NaN."""

    def overshoot(self, metrics: TensorMetrics) -> float:
        """Return the factor by which the error must shrink to meet the limit; infinity for NaN."""

    def distance(self, metrics: TensorMetrics, times: int = 1) -> float:
        """Return an output's distance, with the relative part of the tolerance allowed `times`
        times.
        """

    def at_distance(self, distance: float) -> float:
        """Return the figure at a distance, for display."""

    def comparison(self, found: float, allowed: float, *, passed: bool) -> str:
        """Format a figure with its limit: 'max_abs 1.2e-05 <= 0.0001'."""


class Row(Protocol):
    """A row of the registry: something that can be limited."""

    @property
    def name(self) -> str:
        """The name of the limit."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The tolerance keys that set it."""

    def limit(self, limits: Limits, metrics: TensorMetrics | None = None) -> Limit | None:
        """Return the limit that a tolerance sets on an output; None if it sets none."""


def _itself(value: float) -> float:
    return value


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number that `TensorMetrics` has for every output, and that a tolerance can limit.

    - `name`: the field of `TensorMetrics`, the key of the limit, the name in messages.
    - `description`: what the limit means, for the recipe's schema.
    - `heading`, `logged_as`: its column in the report (of `loss`) and its name in MLflow.
    - `unit`: `output`, the unit of the output's values, or `ratio`, dimensionless.
    - `digits`: significant digits in messages; more are added until two figures differ.
    - `best`: the figure of equal outputs.
    - `order`: the loss, |best - figure|, is proportional to this power of the error.
    - `to_distance`, `from_distance`: to a scale with the triangle inequality and back; distances
      end at `farthest`.
    - `least` (allowed itself or not), `most`, `default`: the values of its limit, as in
      `Parameter`.
    - `ulps`: a second key, which widens the limit for large outputs: it is at least this many units
      in the last place of float32 at the scale of each error, the size of the values around it.
      Values that are equal on both sides, such as a mask's -1e9, say nothing about the rounding of
      others.
    - `by_scores`: a second key, the share of labels that may differ where they are what the model's
      own scores choose: it lowers the limit on equal ones by as many.
    """

    name: str
    description: str
    heading: str
    logged_as: str
    unit: Literal["output", "ratio"]
    digits: int = 3
    best: float = 0.0
    larger_is_better: bool = False
    order: int = 1
    to_distance: Callable[[float], float] = _itself
    from_distance: Callable[[float], float] = _itself
    farthest: float = math.inf
    least: float = 0
    least_is_allowed: bool = True
    most: float | None = None
    default: str | None = None
    ulps: Parameter | None = None
    by_scores: Parameter | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The tolerance keys that limit it."""
        bounds = (self.least, self.least_is_allowed, self.most)
        own = Parameter(self.name, self.description, *bounds, default=self.default)
        return tuple(each for each in (own, self.ulps, self.by_scores) if each is not None)

    def read(self, metrics: TensorMetrics) -> float:
        """Return an output's figure."""
        return float(getattr(metrics, self.name))

    def loss(self, figure: float) -> float:
        """Return a figure's distance from that of equal outputs."""
        return abs(self.best - figure)

    def worst(self, figures: Sequence[float]) -> float:
        """Return the worst of several finite figures."""
        return min(figures) if self.larger_is_better else max(figures)

    def limit(self, limits: Limits, metrics: TensorMetrics | None = None) -> Limit | None:
        """Return the limit that a tolerance sets on it for an output; None if it sets none."""
        if not any(parameter.name in limits for parameter in self.parameters):
            return None
        written = limits.get(self.name, self.best)
        if metrics is None:
            return MetricLimit(self, written)
        if self.by_scores is not None and self.by_scores.name in limits:
            share = limits[self.by_scores.name]
            few = _FEW_LABELS / max(metrics.elements, _FEW_LABELS) if share else 0.0
            least = min(written, 1.0 - max(share, few))
            lowered = math.floor((written - metrics.scored) * 10**self.digits) / 10**self.digits
            return MetricLimit(self, max(lowered, least))
        if self.ulps is None or self.ulps.name not in limits:
            return MetricLimit(self, written)
        units = limits[self.ulps.name]
        return WidenedLimit(self, _judged(metrics, written, units)[1], written, units)


@dataclasses.dataclass(frozen=True)
class MetricLimit:
    """A limit on one metric."""

    metric: Metric
    allowed: float

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def allowed_distance(self) -> float:
        return self.metric.to_distance(self.allowed)

    def found(self, metrics: TensorMetrics) -> float:
        return self.metric.read(metrics)

    def holds(self, found: float) -> bool:
        return found >= self.allowed if self.metric.larger_is_better else found <= self.allowed

    def share(self, metrics: TensorMetrics) -> float:
        return _share(self.metric.loss(self.found(metrics)), self.metric.loss(self.allowed))

    def overshoot(self, metrics: TensorMetrics) -> float:
        return float(self.share(metrics) ** (1 / self.metric.order))

    def distance(self, metrics: TensorMetrics, times: int = 1) -> float:  # noqa: ARG002 - no relative part
        return self.metric.to_distance(self.found(metrics))

    def at_distance(self, distance: float) -> float:
        return self.metric.from_distance(min(distance, self.metric.farthest))

    def comparison(self, found: float, allowed: float, *, passed: bool) -> str:
        # `best` must be distinguishable too: a cosine of 0.9999998 must not read as 1, unless only
        # float64's own rounding is between them.
        best = (self.metric.best,) if abs(found - self.metric.best) > _FLOAT64_NOISE else ()
        texts = distinct_texts(found, allowed, *best, digits=self.metric.digits)
        holds, fails = (">=", "<") if self.metric.larger_is_better else ("<=", ">")
        return f"{self.name} {texts[0]} {holds if passed else fails} {texts[1]}"


@dataclasses.dataclass(frozen=True)
class WidenedLimit(MetricLimit):
    """A limit on errors that is at least `units` in the last place of float32 at the scale of each.

    `allowed` is the limit on the error that uses most of its own; that error is the figure.
    """

    written: float
    units: float

    def found(self, metrics: TensorMetrics) -> float:
        return _judged(metrics, self.written, self.units)[0].error


def largest_in_units(metrics: TensorMetrics) -> float:
    """Return the largest error in units in the last place of float32 at its scale; infinity if it
    is NaN, or if no scale is known for it.
    """
    error, unit = _judged(metrics, 0.0, 1.0)
    return _share(error.error, unit)


def judged_error(metrics: TensorMetrics, limits: Limits) -> ErrorAtScale:
    """Return the error that uses most of its limit, by `max_abs` and `ulps`."""
    return _judged(metrics, limits.get("max_abs", 0.0), limits.get("ulps", 0.0))[0]


def _judged(metrics: TensorMetrics, written: float, units: float) -> tuple[ErrorAtScale, float]:
    """Return the error that uses most of its limit, and that limit."""
    worst = metrics.worst_index, metrics.worst_reference, metrics.worst_candidate
    whole = ErrorAtScale(metrics.differing_max, metrics.max_abs, *worst)
    allowed = [
        (each, max(written, units * float32_unit(each.scale)))
        for each in metrics.by_scale or [whole]
    ]
    return max(allowed, key=lambda each: _share(each[0].error, each[1]))


@dataclasses.dataclass(frozen=True)
class Allclose:
    """numpy's allclose, a limit with two keys: |error| <= atol + rtol * |reference| for every
    element.

    Its figure is the largest |error| - rtol * |reference|, which atol limits.
    """

    atol: Parameter
    rtol: Parameter

    @property
    def name(self) -> str:
        """The key that limits its figure."""
        return self.atol.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its two keys; a missing one counts as 0."""
        return (self.atol, self.rtol)

    def limit(
        self,
        limits: Limits,
        metrics: TensorMetrics | None = None,  # noqa: ARG002 - no size of the output matters
    ) -> Limit | None:
        """Return the limit that a tolerance sets; None if it sets none."""
        if not any(parameter.name in limits for parameter in self.parameters):
            return None
        atol, rtol = (limits.get(parameter.name, 0.0) for parameter in self.parameters)
        return AllcloseLimit(self.name, atol, rtol)


@dataclasses.dataclass(frozen=True)
class AllcloseLimit:
    """A limit on every element, partly relative to the reference."""

    name: str
    allowed: float
    rtol: float

    @property
    def allowed_distance(self) -> float:
        return self.allowed

    def found(self, metrics: TensorMetrics) -> float:
        return allclose_excess(metrics, self.rtol)

    def holds(self, found: float) -> bool:
        return found <= self.allowed

    def share(self, metrics: TensorMetrics) -> float:
        shares = (
            _share(error, self.allowed + self.rtol * magnitude)
            for magnitude, error in metrics.frontier
        )
        return max(shares, default=math.inf)

    def overshoot(self, metrics: TensorMetrics) -> float:
        return self.share(metrics)

    def distance(self, metrics: TensorMetrics, times: int = 1) -> float:
        return allclose_excess(metrics, times * self.rtol)

    def at_distance(self, distance: float) -> float:
        return distance

    def comparison(self, found: float, allowed: float, *, passed: bool) -> str:
        texts = distinct_texts(found, allowed, 0.0)
        beside = f" with rtol {self.rtol:.3g}" if self.rtol else ""
        return f"{self.name} {texts[0]} {'<=' if passed else '>'} {texts[1]}{beside}"


def allclose_excess(metrics: TensorMetrics, rtol: float) -> float:
    """Return max(|candidate - reference| - rtol * |reference|) over all elements, exactly.

    numpy's allclose is met if this is at most atol. The maximum lies on the upper convex hull of
    the points (|reference|, |error|), stored in `TensorMetrics.frontier`. NaN if unknown.
    """
    if not metrics.frontier:
        return math.nan
    return max(error - rtol * magnitude for magnitude, error in metrics.frontier)


def float32_unit(magnitude: float) -> float:
    """Return the unit in the last place of float32 at a magnitude; 0 if that is 0 or unknown."""
    if not 0 < magnitude < math.inf:
        return 0.0
    return math.ldexp(1.0, math.frexp(magnitude)[1] - 24)  # 24 bits, with the hidden one


def _share(error: float, allowed: float) -> float:
    if math.isnan(error):
        return math.inf
    if allowed <= 0.0:
        return math.inf if error > 0.0 else 0.0
    return error / allowed
