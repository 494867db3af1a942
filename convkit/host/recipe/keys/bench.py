"""What a recipe says about speed: how `convkit bench` measures, and the goals it judges."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import RecipeFault, mapping, perhaps
from convkit.host.recipe.keys.field_types import (
    GOAL_PATTERN,
    AxisName,
    RecipeModel,
    Seconds,
    SizeOrNone,
)

BenchSizeName = Literal["smallest", "typical", "largest"]
Goal = Annotated[str, Field(pattern=GOAL_PATTERN)]


class Bench(RecipeModel):
    """How `convkit bench` measures."""

    sizes: Annotated[
        tuple[BenchSizeName | dict[AxisName, SizeOrNone], ...], Field(min_length=1)
    ] = Field(
        ("typical", "largest"),
        description="the inputs' sizes; axes that a mapping leaves out have their typical size",
        examples=[["typical", {"batch": 1}]],
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = Field(
        None, description="compute threads of every model; default: the processors of this process"
    )
    seconds: Seconds = Field(
        20, description="seconds of measurement per size, for all models together"
    )


class LatencyGoals(RecipeModel):
    """Limits on percentiles of the latency, at every size that is measured."""

    p50: Goal | None = Field(
        None, description="limit on the median latency", examples=["<= 0.8x original"]
    )
    p90: Goal | None = Field(None, description="limit on the 90th percentile of the latency")
    p99: Goal | None = Field(None, description="limit on the 99th percentile of the latency")


class Goals(RecipeModel):
    """Limits in terms of the original, which `convkit bench` judges."""

    latency: LatencyGoals | None = Field(None, description="limits on the time of one call")
    memory: Goal | None = Field(
        None, description="limit on the peak memory of the process", examples=["<= 0.5x original"]
    )
    size: Goal | None = Field(
        None, description="limit on the size on disk", examples=["<= 0.3x original"]
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.limits():
            raise ValueError("has no goal; write at least one, such as size: <= 0.5x original")
        return self

    def limits(self) -> dict[str, float]:
        """Return the largest allowed ratio to the original by figure: p50, p90, p99, memory,
        size.
        """
        latency = self.latency.model_dump() if self.latency is not None else {}
        goals = {**latency, "memory": self.memory, "size": self.size}
        return {
            figure: float(goal.removeprefix("<=").removesuffix("x original"))
            for figure, goal in goals.items()
            if goal is not None
        }


def bench_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return the sizes of a benchmark that the recipe's axes do not have."""
    axes = {name: mapping(axis) for name, axis in mapping(recipe.get("axes")).items()}
    sizes = mapping(recipe.get("bench")).get("sizes")
    for number, size in enumerate(sizes if isinstance(sizes, list | tuple) else ()):
        for name, value in mapping(size).items():
            place = ("bench", "sizes", number, name)
            if name not in axes:
                declared = ", ".join(axes) or "none"
                yield RecipeFault(place, f"is not an axis{perhaps(name, axes)}; axes: {declared}")
                continue
            low, high = axes[name].get("min"), axes[name].get("max")
            if (
                isinstance(value, int)
                and isinstance(low, int)
                and isinstance(high, int)
                and not low <= value <= high
            ):
                yield RecipeFault(place, f"found {value}; the axis ranges from {low} to {high}")
