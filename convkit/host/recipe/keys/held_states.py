"""What a recipe must have so that a built model can keep its states."""

from collections.abc import Iterator, Mapping

from convkit.host.recipe.checks.names_axes_and_sizes import RecipeFault, mapping
from convkit.host.recipe.keys.call_steps import resolve_feeds, tensors_by_name
from convkit.protocol.contract import DimensionError, dimension_axes


def state_faults(place: tuple[str, ...], recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return why a program cannot keep what steps feeds back."""
    place = (*place, "states")
    feeds = {
        output: given
        for output, given in mapping(mapping(recipe.get("steps")).get("feeds")).items()
        if isinstance(given, str)
    }
    if not feeds:
        message = "says that what steps feeds back stays in the model; add steps: {feeds: ...}"
        yield RecipeFault(place, message)
        return
    inputs, outputs = tensors_by_name(recipe, "inputs"), tensors_by_name(recipe, "outputs")
    pairs, wrong = resolve_feeds(feeds, list(outputs), list(inputs))
    if wrong:
        return  # reported under steps
    floats = [pair for pair in pairs if "float" in str(inputs[pair.input].get("dtype"))]
    if not floats:
        yield RecipeFault(place, "keeps floats only, and steps.feeds has none; remove states")
        return
    for pair in floats:
        for dimension in inputs[pair.input]["shape"]:
            if (axis := open_axis(dimension, recipe)) is not None:
                message = (
                    f"a state has one size, and {pair.input!r} has the axis {axis!r}; write"
                    f" axes.{axis} with equal min and max, or a number in the shape. A cache that"
                    " grows needs a model that writes into a cache of its full size"
                )
                yield RecipeFault(place, message)
                return
    for kind, tensors, kept in (
        ("input", inputs, {pair.input for pair in floats}),
        ("output", outputs, {pair.output for pair in floats}),
    ):
        if tensors.keys() <= kept:
            yield RecipeFault(place, f"leaves the program without an {kind}, which it needs")


def open_axis(dimension: object, recipe: Mapping[str, object]) -> str | None:
    """Return an axis of a dimension that has several sizes."""
    if not isinstance(dimension, int | str):
        return None
    try:
        names = dimension_axes(dimension)
    except DimensionError:
        return None  # reported where the dimension itself is checked
    axes = {name: mapping(mapping(recipe.get("axes")).get(name)) for name in names}
    return next((name for name, each in axes.items() if each.get("min") != each.get("max")), None)
