"""What a recipe must have for a language model's perplexity, or for what it generates. Reads plain
values, like `consistency`.
"""

from collections.abc import Iterator, Mapping

from convkit.recipe.consistency import Fault, mapping
from convkit.recipe.steps import growing_axes, mask_name, resolve_feeds, tensors_by_name, tokens_of


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
    """Return why a recipe that asks for perplexity, or for generated tokens, has none."""
    evaluate = mapping(recipe.get("evaluate"))
    generates = isinstance(evaluate.get("generate"), int)
    if not generates and evaluate.get("metric") != "perplexity":
        return
    what = "generate" if generates else "perplexity"
    place = ("evaluate", "generate" if generates else "metric")
    tokens = predicted_tokens(recipe, evaluate.get("output"))
    if tokens is None:
        message = (
            f"{what} needs scores of the shape [rows, positions, tokens] as the output, and an"
            " input with sample: token_ids of the shape [rows, positions]"
        )
        yield Fault(place, message)
    elif generates:
        yield from _generation_faults(recipe, tokens)
    for axis in _cache_axes(recipe):
        least = mapping(mapping(recipe.get("axes")).get(axis)).get("min", 0)
        if least != 0:
            message = f"{what} starts with an empty cache, and axes.{axis}.min is {least}; write 0"
            yield Fault(place, message)


def _generation_faults(recipe: Mapping[str, object], tokens: str) -> Iterator[Fault]:
    """Return why there is no place for the tokens to come."""
    evaluate, place = mapping(recipe.get("evaluate")), ("evaluate", "generate")
    count = int(str(evaluate["generate"]))
    inputs = tensors_by_name(recipe, "inputs")
    axis = inputs[tokens]["shape"][1]
    most = mapping(mapping(recipe.get("axes")).get(axis)).get("max")
    if not isinstance(axis, str) or not isinstance(most, int):
        yield Fault(place, f"the tokens in {tokens} need an axis to grow along; found {axis}")
    elif most <= count:
        yield Fault(place, f"{count} tokens and a row need more than axes.{axis}.max, {most}")
    if evaluate.get("texts") and mask_name(inputs, axis) is None:
        yield Fault(place, "texts differ in length: add an input with sample: padding_mask")


def _cache_axes(recipe: Mapping[str, object]) -> tuple[str, ...]:
    """Return the axes that grow as the model is called in a loop."""
    steps = mapping(recipe.get("steps"))
    inputs, outputs = (tensors_by_name(recipe, kind) for kind in ("inputs", "outputs"))
    given = {key: str(value) for key, value in mapping(steps.get("feeds")).items()}
    feeds, _ = resolve_feeds(given, list(outputs), list(inputs))
    axis = steps.get("axis")
    shapes = {name: tensor["shape"] for name, tensor in {**inputs, **outputs}.items()}
    return growing_axes(feeds, shapes, axis if isinstance(axis, str) else None)[0]
