"""Every metric of an output, and every limit that a tolerance can set: one row each.

Everything reads these rows: the recipe's schema and defaults, the verdict and its messages, the
searches for a precision, the terminal, the report, MLflow and `convkit diff`. A new metric is one
row here and a field of `TensorMetrics` (CONTRIBUTING.md). Standard library only.
"""

import math

from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limit_kinds import Allclose, Limit, Limits, Metric, Parameter, Row


def _angle(cosine: float) -> float:
    """Return the angle between two vectors in radians; it obeys the triangle inequality."""
    return cosine if math.isnan(cosine) else math.acos(max(-1.0, min(1.0, cosine)))


def _disagreement(share: float) -> float:
    """Return the share of elements that differ, from that of equal ones, and the other way round.

    Two outputs that differ from a third in some elements each differ from each other in no more
    than both together.
    """
    return 1.0 - share


_METRICS = (
    Metric(
        name="max_abs",
        description="largest absolute error",
        heading="max abs",
        logged_as="max_abs_err",
        unit="output",
        default="1.0e-4",
        # Twenty roundings, as for the low-precision types: what 400 independent ones add up to.
        ulps=Parameter(
            "ulps",
            "largest absolute error that max_abs always allows, in units in the last place of"
            " float32 at the size of the values around each error",
            default="10",
        ),
    ),
    Metric(
        name="max_rel",
        description="largest error relative to the reference element",
        heading="max rel",
        logged_as="max_rel_err",
        unit="ratio",
    ),
    Metric(
        name="mean_abs",
        description="mean of the absolute errors",
        heading="mean abs",
        logged_as="mean_abs_err",
        unit="output",
    ),
    Metric(
        name="rms",
        description="root of the mean squared error",
        heading="RMS",
        logged_as="rms_err",
        unit="output",
    ),
    Metric(
        name="nrmse",
        description="root of the mean squared error, in parts of the reference's root mean square",
        heading="NRMSE",
        logged_as="nrmse",
        unit="ratio",
        most=1,  # zeros instead of the output have 1
    ),
    Metric(
        name="cosine",
        description="smallest cosine similarity",
        heading="1 − cosine",  # noqa: RUF001 - the mathematical minus sign
        logged_as="cosine",
        unit="ratio",
        digits=6,
        best=1.0,
        larger_is_better=True,
        # 1 - cos = |error|^2 / 2 |reference|^2 for a small error orthogonal to the reference.
        order=2,
        to_distance=_angle,
        from_distance=math.cos,
        farthest=math.pi,
        least=-1,
        least_is_allowed=False,
        most=1,
        default="0.99999",
    ),
    Metric(
        name="agreement",
        description="smallest share of elements that are equal: for labels",
        heading="unequal",
        logged_as="agreement",
        unit="ratio",
        digits=6,
        best=1.0,
        larger_is_better=True,
        to_distance=_disagreement,
        from_distance=_disagreement,
        farthest=1.0,
        least_is_allowed=False,
        most=1,
        by_scores=Parameter(
            "by_scores",
            "largest share of labels that may differ from the original's, whatever agreement says,"
            " where they are what the model's own scores in another output choose",
            most=1,
        ),
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}

_ALLCLOSE = Allclose(
    atol=Parameter("atol", "allclose: absolute part; 0 if only rtol is given"),
    rtol=Parameter(
        "rtol", "allclose: part relative to the reference element; 0 if only atol is given"
    ),
)
ROWS: tuple[Row, ...] = (*_METRICS, _ALLCLOSE)

PARAMETERS: dict[str, Parameter] = {
    parameter.name: parameter for row in ROWS for parameter in row.parameters
}
# The limits for recipes without a tolerance, as written in YAML.
DEFAULTS: dict[str, str] = {
    name: parameter.default
    for name, parameter in PARAMETERS.items()
    if parameter.default is not None
}

# The keys that limit the absolute error of every element, most specific first.
_ABSOLUTE = ("max_abs", "atol")


def limits_set(limits: Limits, metrics: TensorMetrics | None = None) -> list[Limit]:
    """Return the limits that a tolerance sets on an output with these metrics, in row order.

    Without metrics, no limit follows the output's magnitude.
    """
    return [limit for row in ROWS if (limit := row.limit(limits, metrics)) is not None]


def absolute_limit(limits: Limits) -> float | None:
    """Return the limit on the absolute error of every element; None if there is none."""
    return next((limits[name] for name in _ABSOLUTE if name in limits), None)
