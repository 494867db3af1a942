"""Turns a recipe's `steps` into what the workers run. Pure."""

from collections.abc import Mapping, Sequence

from convkit.host.recipe.keys.call_steps import (
    Lengths,
    growing_axes,
    lengths_of,
    mask_name,
    resolve_feeds,
    tokens_of,
)
from convkit.host.recipe.keys.recipe import Axis, Recipe
from convkit.protocol.messages import Steps


def steps_of(recipe: Recipe) -> Steps | None:
    """Return how a recipe's model is called in a loop; None if it is called once."""
    if (given := recipe.steps) is None:
        return None
    inputs = {tensor.name: tensor.model_dump() for tensor in recipe.inputs}
    shapes = {tensor.name: tensor.shape for tensor in (*recipe.inputs, *recipe.outputs)}
    feeds, _ = resolve_feeds(given.feeds, [tensor.name for tensor in recipe.outputs], list(inputs))
    grows, _ = growing_axes(feeds, shapes, given.axis)
    axes = {
        name: {"min": axis.min, "max": axis.max}
        for name, axis in recipe.axes.items()
        if isinstance(axis, Axis)
    }
    lengths = lengths_of(
        given.prefill,
        given.count,
        axes[given.axis] if given.axis is not None else None,
        [axes[name] for name in grows],
    )
    assert not isinstance(lengths, str)  # the recipe's checks ask for the same
    return Steps(
        feeds=tuple(feeds),
        axis=given.axis,
        grows=grows,
        prefill=lengths.prefill,
        stride=lengths.stride,
        count=lengths.count,
        full=given.full,
        mask=mask_name(inputs, given.axis) if given.axis is not None else None,
        positions=tuple(tensor.name for tensor in recipe.inputs if tensor.sample == "positions"),
        tokens=tokens_of(inputs, given.axis) if given.greedy is not None else None,
        scores=given.greedy,
        generate=_generated(recipe, lengths, [axes[name] for name in grows]),
    )


def _generated(recipe: Recipe, lengths: Lengths, caches: Sequence[Mapping[str, int]]) -> int:
    """Return how many tokens are generated for targets that package the model, as the caches allow:
    the last call adds to caches that may be at their largest before it.
    """
    wanted = max((target.generated_tokens for target in recipe.targets.values()), default=0)
    room = min((cache["max"] - cache["min"] for cache in caches), default=0)
    return min(wanted, max(room - lengths.prefill + 2, 0))
