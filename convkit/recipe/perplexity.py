"""What a recipe must have for a language model's perplexity. Reads plain values, like
`consistency`.
"""

from collections.abc import Iterator, Mapping

from convkit.recipe.consistency import Fault, mapping
from convkit.recipe.steps import growing_axes, resolve_feeds, tensors_by_name, tokens_of


def predicted_tokens(recipe: Mapping[str, object], output: object = None) -> str | None:
    """Return the input whose tokens an output (by default the first) predicts: token ids along the
    second axis of its scores, [rows, positions, tokens]; None if there is none.
    """
    outputs = tensors_by_name(recipe, "outputs")
    scores = outputs.get(str(output)) if output is not None else next(iter(outputs.values()), None)
    if scores is None or len(scores["shape"]) != 3:
        return None
    return tokens_of(tensors_by_name(recipe, "inputs"), scores["shape"][1])


def perplexity_faults(recipe: Mapping[str, object]) -> Iterator[Fault]:
    """Return why a recipe that asks for perplexity has none."""
    evaluate, place = mapping(recipe.get("evaluate")), ("evaluate", "metric")
    if evaluate.get("metric") != "perplexity":
        return
    if predicted_tokens(recipe, evaluate.get("output")) is None:
        message = (
            "perplexity needs scores of the shape [rows, positions, tokens] as the output, and an"
            " input with sample: token_ids of the shape [rows, positions]"
        )
        yield Fault(place, message)
    for axis in _cache_axes(recipe):
        least = mapping(mapping(recipe.get("axes")).get(axis)).get("min", 0)
        if least != 0:
            message = (
                f"perplexity starts with an empty cache, and axes.{axis}.min is {least}; write 0"
            )
            yield Fault(place, message)


def _cache_axes(recipe: Mapping[str, object]) -> tuple[str, ...]:
    """Return the axes that grow as the model is called in a loop."""
    steps = mapping(recipe.get("steps"))
    inputs, outputs = (tensors_by_name(recipe, kind) for kind in ("inputs", "outputs"))
    given = {key: str(value) for key, value in mapping(steps.get("feeds")).items()}
    feeds, _ = resolve_feeds(given, list(outputs), list(inputs))
    axis = steps.get("axis")
    shapes = {name: tensor["shape"] for name, tensor in {**inputs, **outputs}.items()}
    return growing_axes(feeds, shapes, axis if isinstance(axis, str) else None)[0]
