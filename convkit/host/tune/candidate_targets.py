"""The targets that `convkit tune` considers, as a recipe has them. Pure."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from convkit.host.recipe.editing.key_changes import Content, changed
from convkit.host.recipe.editing.text_editing import edited
from convkit.host.recipe.keys.targets import BaseTarget
from convkit.host.recipe.keys.tolerances import too_fine
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.record.tune_record import Candidate
from convkit.protocol.contract import is_whole
from convkit.protocol.errors import RecipeError
from convkit.protocol.json_codec import Json
from convkit.protocol.runtimes.runtime_registry import runtimes

Target = dict[str, Json]

# What says how good a target must be, not what it is.
_JUDGED = ("tolerance", "outputs", "max_drop", "max_rise", "goals")
_SUFFIX = "-tune"


@dataclasses.dataclass(frozen=True)
class Space:
    """The candidates of a recipe.

    A candidate without limits of its own has those of the recipe's target `like`, or of the target
    that is most like it: with the same precision and runtime, the same precision, or else the same
    kind of precision. Without such a target, the recipe's own limits apply.
    """

    loaded: LoadedRecipe
    only: tuple[str, ...] = ()  # runtimes; all by default
    like: str | None = None

    @property
    def own(self) -> dict[str, Target]:
        """The recipe's own targets of the runtimes that are considered."""
        targets: dict[str, Target] = self.loaded.document.content["targets"]
        return {
            name: target
            for name, target in targets.items()
            if not self.only or target["runtime"] in self.only
        }

    def first(self) -> dict[str, Target]:
        """Return the targets to start from: the recipe's own, and every runtime's."""
        found = dict(self.own)
        for runtime, row in runtimes().items():
            if self.only and runtime not in self.only:
                continue
            if row.module_of("bench") is None:
                continue
            for target in _target_class(runtime).variants():
                self._add(found, {"runtime": runtime, **target})
        return found

    def searched(self, known: Mapping[str, Target], name: str) -> dict[str, Target]:
        """Return a target that keeps what it must in float32, for one that fails without that."""
        target, found = known[name], dict(known)
        precision = target.get("precision", "float32")
        if precision == "float32":
            return {}
        if isinstance(precision, str):
            precision = {"default": precision}
        if not isinstance(precision, dict) or "keep_float32" in precision:
            return {}
        self._add(found, target | {"precision": precision | {"keep_float32": "auto"}})
        return _new(found, known)

    def refined(self, known: Mapping[str, Target], name: str) -> dict[str, Target]:
        """Return a good target's other settings: the same precision, built or run differently."""
        target, found = known[name], dict(known)
        for change in _target_class(str(target["runtime"])).refinements(target):
            self._add(found, {**target, **change})
        return _new(found, known)

    def recipe(self, targets: Mapping[str, Target]) -> LoadedRecipe:
        """Return the recipe with these targets; raises RecipeError. It has another name, so that
        its runs do not become the recipe's last ones.
        """
        content: dict[str, Any] = dict(self.loaded.document.content)
        content |= {"name": f"{content['name']}{_SUFFIX}", "targets": dict(targets)}
        content.pop("waive", None)  # a waived error is no reason to choose a target
        return parse_recipe(json.dumps(content), self.loaded.path)  # JSON is YAML

    def refusal(self, name: str, target: Target) -> str | None:
        """Return why the recipe cannot have a target; None if it can."""
        try:
            self.recipe({name: target})
        except RecipeError as error:
            return error.problems[0].message
        return None

    def unreachable_limit(self, name: str, target: Target) -> str | None:
        """Return why a search for what must stay in float32 would end with nothing in low
        precision: the limit is far below its resolution. None if it may succeed.
        """
        recipe = self.recipe({name: target}).recipe
        for output in recipe.outputs:
            fine = too_fine(recipe, recipe.targets[name], output.name, None)
            if fine is not None and fine.by_far and not is_whole(output.dtype):
                return (
                    f"the limit of {fine.limit:g} on {fine.output!r} is far below the resolution"
                    f" of {fine.type}; give a target with this precision its own tolerance, or use"
                    " --like TARGET"
                )
        return None

    def _add(self, found: dict[str, Target], target: Target) -> None:
        """Add a target under its own name, unless it is there already."""
        target = self._limited(target)
        if any(_same(target, each) for each in found.values()):
            return
        name = base = target_name(target)
        number = 2
        while name in found or name in self.loaded.recipe.targets:
            name, number = f"{base}-{number}", number + 1
        found[name] = target

    def _limited(self, target: Target) -> Target:
        if self.like is not None:
            model: Target | None = self.loaded.document.content["targets"][self.like]
        else:
            model = self._most_like(target)
        own = {key: target[key] for key in _JUDGED if key in target}
        given = {key: model[key] for key in _JUDGED if key in model} if model is not None else {}
        return {**target, **(own or given)}

    def _most_like(self, target: Target) -> Target | None:
        targets: dict[str, Target] = self.loaded.document.content["targets"]
        alike = [each for each in targets.values() if _kind(each) == _kind(target)]

        def likeness(each: Target) -> tuple[bool, bool]:
            same = _type(each) == _type(target)
            return same, same and each["runtime"] == target["runtime"]

        return max(alike, key=likeness, default=None)


def target_name(target: Target) -> str:
    """Return a name that says what a target is: 'onnxruntime-dynamic-int8', and what else it has
    besides runtime, precision and limits.
    """
    precision = target.get("precision", "float32")
    kept = isinstance(precision, dict) and precision.get("keep_float32") == "auto"
    words = [str(target["runtime"]), _type(target), *(["auto"] if kept else [])]
    for key, value in target.items():
        if key in ("runtime", "precision", *_JUDGED) or value == "cpu":
            continue
        words.append(str(value) if isinstance(value, str) else key.replace("_", "-"))
        if value == "none":
            words[-1] = f"no-{key}"
    return "-".join(words)


def _type(target: Target) -> str:
    """Return the element type, or the kind of quantization."""
    precision = target.get("precision", "float32")
    if isinstance(precision, dict):
        return str(precision.get("quantize") or precision.get("default"))
    return str(precision)


def _kind(target: Target) -> str:
    found = _type(target)
    return {"float16": "low", "bfloat16": "low", "float32": "float32"}.get(found, "quantized")


def _same(one: Target, other: Target) -> bool:
    """Return whether two targets are the same thing, however good each must be."""

    def what(target: Target) -> Target:
        known = {key: value for key, value in target.items() if key not in _JUDGED}
        return {"precision": "float32", "device": "cpu", **known}

    return what(one) == what(other)


def _new(found: Mapping[str, Target], known: Mapping[str, Target]) -> dict[str, Target]:
    return {name: target for name, target in found.items() if name not in known}


def _target_class(runtime: str) -> type[BaseTarget]:
    row = runtimes()[runtime]
    found: type[BaseTarget] = row.load(row.target)
    return found


def threads_name(name: str, threads: int) -> str:
    """Return the name of a candidate with another number of threads."""
    return f"{name}-{threads}-thread{'s' if threads > 1 else ''}"


def thread_counts(most: int) -> Iterator[int]:
    """Yield the other numbers of threads to try: one, and half of what is there."""
    yield from dict.fromkeys(count for count in (1, most // 2) if 0 < count < most)


def with_candidate(loaded: LoadedRecipe, candidate: Candidate) -> str:
    """Return the recipe's text with a candidate among its targets; unchanged if it is there.

    A candidate that differs in its number of threads is the target itself: threads belong to where
    a model is served. Raises EditError if the text cannot be edited, RecipeError if the result is
    no recipe.
    """
    content: Content = loaded.document.content
    if candidate.target in content["targets"].values():
        return loaded.text
    wanted = changed(content, {f"targets.{candidate.name}": candidate.target})
    text = edited(loaded.text, wanted)
    parse_recipe(text, loaded.path)
    return text
