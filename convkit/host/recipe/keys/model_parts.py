"""`parts:` and `join:` of a recipe: one model of several graphs, and how they call each other."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from convkit.host.recipe.checks.names_axes_and_sizes import (
    KeyPath,
    RecipeFault,
    dimensions,
    mapping,
    perhaps,
)
from convkit.host.recipe.keys.call_steps import StepsModel
from convkit.host.recipe.keys.field_types import AxisName, Name, PartName, RecipeModel, TensorName
from convkit.host.recipe.keys.inputs_and_outputs import Input, Output
from convkit.host.recipe.keys.join_wiring import resolve_join
from convkit.host.recipe.keys.model_sources import Model
from convkit.host.recipe.keys.overridable_settings import (
    AnyAxis,
    ComputedType,
    Export,
    PrecisionLimits,
    Tolerance,
    Tools,
)
from convkit.host.recipe.keys.target_models import Target
from convkit.protocol.json_codec import Json

# What a part gets from the recipe unless it has its own. Limits by output and texts are about the
# outputs and inputs of the whole.
_OF_VERIFY = ("seed", "budget", "ladder", "skip", "timeout", "tolerance")
_OF_THE_WHOLE = ("outputs", "goals", "max_drop", "max_rise")

Values = Mapping[str, Any]


# Keys about one graph, and where to write them instead.
_OF_ONE_GRAPH = {
    "model": "a recipe has a model, or parts; write it under the part",
    "steps": "is about one graph; write it under the part, or a loop under `join`",
}


class Part(RecipeModel):
    """One graph of a model of several parts: exported, built and verified like a recipe's only
    model.
    """

    model: Model = Field(description="the part's model", examples=[{"path": "../my-encoder"}])
    original: Model | None = Field(
        None, description="with model.onnx: the model that the file was exported from"
    )
    tools: Tools | None = Field(None, description="tool versions, in place of the recipe's")
    export: Export | None = Field(None, description="in place of the recipe's export")
    axes: dict[AxisName, AnyAxis] = Field(
        default_factory=dict, description="the part's own axes; the recipe's are known, too"
    )
    inputs: Annotated[tuple[Input, ...], Field(min_length=1)] = Field(
        description="the part's inputs, in order"
    )
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)] = Field(
        description="the part's outputs, in order"
    )
    steps: StepsModel | None = Field(
        None, description="how the part is called in a loop when it is verified by itself"
    )
    tolerance: Tolerance | None = Field(None, description="in place of verify.tolerance")
    by_precision: dict[ComputedType, PrecisionLimits] = Field(
        default_factory=dict, description="in place of verify.by_precision"
    )
    targets: dict[Name, Target] = Field(
        default_factory=dict,
        description="in place of the recipe's targets of the same names, for this part",
        examples=[{"float16": {"runtime": "onnxruntime", "precision": "float32"}}],
    )


class JoinCall(RecipeModel):
    """One call of a part."""

    call: PartName = Field(description="the part to call")
    name: PartName | None = Field(
        None, alias="as", description="the call's name, if the part is called more than once"
    )
    inputs: dict[TensorName, TensorName] = Field(
        default_factory=dict,
        description=(
            "the value for each input: an input of the whole, or call.output; * stands for the same"
            " text in both. An input that is not listed gets the whole's input of its name"
        ),
        examples=[{"hidden": "encoder.hidden", "cross.*": "encoder.cross.*"}],
    )


class JoinEntry(RecipeModel):
    """A call of a part, or a loop of calls."""

    call: PartName | None = Field(None, description="the part to call", examples=["encoder"])
    name: PartName | None = Field(
        None, alias="as", description="the call's name, if the part is called more than once"
    )
    inputs: dict[TensorName, TensorName] = Field(
        default_factory=dict,
        description="the value for each input, as in the calls of a loop",
        examples=[{"hidden": "encoder.hidden"}],
    )
    loop: AxisName | None = Field(
        None,
        description=(
            "repeat `calls` once for each position along this axis; inputs of the whole that have"
            " it are cut"
        ),
        examples=["steps"],
    )
    feeds: dict[TensorName, TensorName | tuple[TensorName, ...]] = Field(
        default_factory=dict,
        description=(
            "in a loop: which value becomes which input of the next pass; * stands for the same"
            " text in both"
        ),
        examples=[{"decoder.present.*": "decoder.past.*"}],
    )
    calls: tuple[JoinCall, ...] = Field((), description="the calls of a loop, in order")
    outputs: dict[TensorName, TensorName] = Field(
        default_factory=dict,
        alias="return",
        description=(
            "at the end: the call.output that each output of the whole is; an output that is not"
            " listed is the one of its name"
        ),
        examples=[{"image": "vae.sample"}],
    )


def part_content(recipe: Values, name: str) -> dict[str, Json]:
    """Return a part as a recipe's plain values: its own keys, and the whole's for the others."""
    part = mapping(mapping(recipe.get("parts")).get(name))
    content: dict[str, Any] = {key: recipe[key] for key in ("schema", "name") if key in recipe}
    content |= {
        key: part[key] for key in ("model", "original", "inputs", "outputs", "steps") if key in part
    }
    if tools := {**mapping(recipe.get("tools")), **mapping(part.get("tools"))}:
        content["tools"] = tools
    if (export := part.get("export", recipe.get("export"))) is not None:
        content["export"] = export
    if "custom_ops" in recipe:
        content["custom_ops"] = recipe["custom_ops"]
    verify = mapping(recipe.get("verify"))
    content["verify"] = {key: verify[key] for key in _OF_VERIFY if key in verify}
    # Limits by output name outputs of the whole.
    of_types: dict[str, Any] = {
        kind: {"tolerance": mapping(each)["tolerance"]}
        for kind, each in mapping(verify.get("by_precision")).items()
        if "tolerance" in mapping(each) and "tolerance" not in part
    }
    if "tolerance" in part:
        content["verify"]["tolerance"] = part["tolerance"]
    if limits := of_types | dict(mapping(part.get("by_precision"))):
        content["verify"]["by_precision"] = limits
    own = mapping(part.get("targets"))
    content["targets"] = {
        target: own[target] if target in own else _shared(mapping(given))
        for target, given in mapping(recipe.get("targets")).items()
    }
    used = {axis for _, _, axes in dimensions(content) for axis in axes}
    shared = mapping(recipe.get("axes"))
    axes = {axis: size for axis, size in shared.items() if axis in used}
    if axes := axes | dict(mapping(part.get("axes"))):
        content["axes"] = axes
    return content


def _shared(target: Values) -> dict[str, Any]:
    return {key: value for key, value in target.items() if key not in _OF_THE_WHOLE}


def place_in_recipe(path: KeyPath, recipe: Values, name: str) -> KeyPath:
    """Return where the user wrote what is at a key path of `part_content`."""
    part = mapping(mapping(recipe.get("parts")).get(name))
    of_types = mapping(part.get("by_precision"))
    first = path[0] if path else ""
    if path[:2] == ("verify", "tolerance") and "tolerance" in part:
        return ("parts", name, *path[1:])
    if path[:2] == ("verify", "by_precision") and path[2:3] and path[2] in of_types:
        return ("parts", name, *path[1:])
    named = first in ("targets", "axes", "tools")
    own = mapping(part.get(str(first)))
    if (named and len(path) > 1 and path[1] in own) or (not named and first in part):
        return ("parts", name, *path)
    is_own = first in ("model", "original", "inputs", "outputs", "steps", "")
    return ("parts", name, *path) if is_own else path


def parts_faults(
    recipe: Mapping[str, object], check: Callable[[Mapping[str, object]], list[RecipeFault]]
) -> Iterator[RecipeFault]:
    """Yield the inconsistencies of a recipe's parts and of how they are joined. `check` returns
    those of a recipe of one graph.
    """
    parts = mapping(recipe.get("parts"))
    if not parts:
        if "join" in recipe:
            yield RecipeFault(("join",), "joins `parts`, and the recipe has none; remove it")
        return
    for key, message in _OF_ONE_GRAPH.items():
        if recipe.get(key) is not None:
            yield RecipeFault((key,), message)
    if mapping(recipe.get("verify")).get("example") is not None:
        yield RecipeFault(
            ("verify", "example"), "is one call of one model, and the recipe has parts; remove it"
        )
    targets = mapping(recipe.get("targets"))
    for name, part in parts.items():
        for target in mapping(mapping(part).get("targets")):
            if target not in targets:
                known = ", ".join(map(str, targets))
                yield RecipeFault(
                    ("parts", name, "targets", target),
                    f"is not one of the recipe's targets{perhaps(target, targets)}; targets:"
                    f" {known}. Every target joins all parts",
                )
        for fault in check(part_content(recipe, name)):
            yield RecipeFault(place_in_recipe(fault.path, recipe, name), fault.message)
    if not recipe.get("join"):
        yield RecipeFault(("parts",), "needs `join`: how the parts call each other")
        return
    yield from resolve_join(recipe).faults
