"""Which lines of a recipe, or which files, make a stage run again: those that, taken back alone,
would give it another key.
"""

import copy
import dataclasses
from collections.abc import Collection, Iterator, Mapping

from pydantic import ValidationError

from convkit.host.facts.observed_files import opened_in
from convkit.host.home import Home
from convkit.host.plan.stage_keys import Facts, as_read, ingredients
from convkit.host.plan.stages import Stage, plan_stages
from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.loading import LoadedRecipe, completed
from convkit.host.recipe.reading.yaml_document import key_text, read_document
from convkit.protocol.errors import ConvkitError

_ABSENT = object()
# The ingredient that identifies a model by its content.
_OF_MODEL = ".source.path"


@dataclasses.dataclass(frozen=True)
class TakenBack:
    """The recipe with one change since its last run taken back, and the stages that it had then.
    `line` is where the change is.
    """

    line: str
    recipe: Recipe
    stages: Mapping[str, Stage]


def taken_back(
    loaded: LoadedRecipe, home: Home, only: tuple[str, ...], absent: Collection[str]
) -> list[TakenBack]:
    """Return one for each key that differs from the recipe of the last run, in the order of the
    text; those without which the recipe is wrong are left out.
    """
    before = _last_content(loaded, home)
    found = []
    for path, was in _differences(loaded.document.content, before) if before is not None else ():
        content = _with(loaded.document.content, path, was)
        if not isinstance(content, dict):
            continue
        try:
            recipe = Recipe.model_validate(completed(content, loaded.dirname))
            stages = plan_stages(recipe, only, frozenset(absent))
        except (ValidationError, ConvkitError):
            continue
        place = loaded.position(path)
        line = f"{loaded.path.name}:{place.line}: {key_text(path)}"
        found.append((place.line, TakenBack(line, recipe, {each.id: each for each in stages})))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def causes_of(
    stage: Stage,
    parts: Mapping[str, str],
    before: Mapping[str, str],
    inputs: Mapping[str, str],
    facts: Facts,
    changes: Collection[TakenBack],
    loaded: LoadedRecipe,
) -> list[str]:
    """Return the lines and files that make a stage run, whose key has the ingredients `parts`, and
    had `before`, which is empty for a new one. `inputs` are as in `ingredients`.
    """
    if adding := [each.line for each in changes if stage.id not in each.stages]:
        return adding
    lines = [each.line for each in changes if _moves(stage, parts, before, inputs, facts, each)]
    then, now = opened_in(before), opened_in(parts)
    files = [name for name in now if name in then and now[name] != then[name]]
    changed = [name for name in parts if name in before and before[name] != parts[name]]
    if not lines and any(name.endswith(_OF_MODEL) for name in changed):
        files = [f"{_model_line(stage, loaded)} (its files have changed)", *files]
    return [*lines, *files]


def _model_line(stage: Stage, loaded: LoadedRecipe) -> str:
    top: KeyPath = ("parts", stage.part) if stage.part is not None else ()
    original = stage.kind == "reference" and (*top, "original") in loaded.document.keys
    path = (*top, "original" if original else "model")
    return f"{loaded.path.name}:{loaded.position(path).line}: {key_text(path)}"


def _moves(
    stage: Stage,
    parts: Mapping[str, str],
    before: Mapping[str, str],
    inputs: Mapping[str, str],
    facts: Facts,
    change: TakenBack,
) -> bool:
    """Say whether a stage would have another key without a change in what it read before."""
    own = change.stages[stage.id]
    if own.environment != stage.environment:
        return True
    try:
        without = ingredients(own, change.recipe, facts, inputs)
        return without is None or as_read(without, before) != as_read(parts, before)
    except KeyError:  # it names a file that the recipe no longer names
        return True


def _last_content(loaded: LoadedRecipe, home: Home) -> object:
    """Return what the recipe of this name said in its last run; None if there is none."""
    runs = sorted(home.runs_of(loaded.recipe.name).glob("*/recipe.yaml"), reverse=True)
    try:
        return read_document(runs[0].read_text(encoding="utf-8"), str(runs[0])).content
    except (IndexError, OSError, ValueError, ConvkitError):
        return None


def _differences(now: object, was: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield the key paths at which two contents differ, with what was there."""
    if isinstance(now, dict) and isinstance(was, dict):
        for key in dict.fromkeys([*now, *was]):
            yield from _differences(now.get(key, _ABSENT), was.get(key, _ABSENT), (*path, key))
    elif isinstance(now, list) and isinstance(was, list) and len(now) == len(was):
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            yield from _differences(one, other, (*path, index))
    elif type(now) is not type(was) or now != was:
        yield path, was


def _with(content: object, path: KeyPath, value: object) -> object:
    """Return a copy of a content with another value at a key path, or none."""
    made = copy.deepcopy(content)
    inside = made
    for step in path[:-1]:
        inside = inside[step]  # type: ignore[index]
    if not path:
        return value
    if value is _ABSENT:
        del inside[path[-1]]  # type: ignore[attr-defined]
    else:
        inside[path[-1]] = value  # type: ignore[index]
    return made
