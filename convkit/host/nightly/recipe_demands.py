"""What a recipe demands of a run, as far as a run's results do not show it, and whether another
recipe demands less. Pure.

A limit on a score, a goal or a skipped case leaves no trace in a run that passes. So each demand is
read from the recipe itself, with everything that it takes from other keys or by default: a demand
that is written in another place, but holds the same, is no change.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Literal

from convkit.host.plan.stage_keys import flatten
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.keys.tolerances import limits_for
from convkit.host.verdict.findings.task_score import allowed_loss
from convkit.protocol.messages import PRODUCT_FAMILIES
from convkit.protocol.metrics.metric_registry import METRICS, ROWS

# Values by name, by what they are about: "ort y tolerance", "ort", "the recipe's verify".
Demands = Mapping[str, Mapping[str, float]]
TOLERANCE = " tolerance"

_LADDERS = ("quick", "full")
_SKIP = "skip "
_PROCESSORS = "processors "
_COUNTS = frozenset({"budget", "ladder", "rows", "generated tokens"})
# Of these, more is stricter. Of all others, which limit something, less is.
_MORE = frozenset(
    {name for name, metric in METRICS.items() if metric.larger_is_better}
    | _COUNTS
    | {f"{_PROCESSORS}{family}" for family in PRODUCT_FAMILIES}
)
# What holds without a value, if that is not the absence of any limit.
_WITHOUT = {"budget": math.inf}
# Keys that set one limit together: without one of them, it counts as 0.
_TOGETHER = tuple(names for row in ROWS if len(names := {each.name for each in row.parameters}) > 1)
# The keys that decide which model is converted, and to which it is compared.
_MODELS = ("model.", "original.")
# The keys that decide that, on which inputs a model is verified or scored, and what is compared.
_TRIED = (
    *_MODELS,
    "axes.",
    "inputs.",
    "outputs.",
    "steps.",
    "join.",
    "verify.seed",
    "verify.texts",
    "verify.example",
)
_SCORED = ("data", "metric", "inputs", "texts", "labels", "output", "generate")
# Keys of a target that are compared as what they demand, or by what the run recorded.
_COMPARED = frozenset(
    {
        *("runtime", "device", "precision", "versions", "tools", "processors"),
        *("tolerance", "outputs", "max_drop", "max_rise", "goals"),
    }
)
# A recipe without any of these keys compares less than one with them.
OPTIONAL = ("steps.", "evaluate.")


def demands_of(recipe: Recipe) -> dict[str, dict[str, float]]:
    """Return what a recipe demands; its parts' shares of a target are called `target/part`."""
    verify = recipe.verify
    found = {
        "the recipe's verify": {
            "ladder": float(_LADDERS.index(verify.ladder)),
            **({"budget": float(verify.budget)} if verify.budget is not None else {}),
            **{f"{_SKIP}{case}": 1.0 for case in verify.skip},
        }
    }
    if recipe.evaluate is not None:
        found["the recipe's evaluate"] = {"rows": float(recipe.evaluate.rows or math.inf)}
    for name in recipe.targets:
        found[name] = dict(_of_target(recipe, name))
        if (goals := recipe.goals_of(name)) is not None:
            found[f"{name} goals"] = goals.limits()
    for graph in (recipe, *recipe.graphs):
        for name, target in graph.targets.items():
            for output in graph.outputs:
                limits = limits_for(graph, target, output.name, None)
                found[f"{name} {output.name}{TOLERANCE}"] = limits
    return {subject: values for subject, values in found.items() if values}


def _of_target(recipe: Recipe, name: str) -> Iterator[tuple[str, float]]:
    target = recipe.targets[name]
    if recipe.evaluate is not None:
        key = "max_rise" if recipe.evaluate.rises else "max_drop"
        yield key, allowed_loss(recipe, target)
    if target.generated_tokens:
        yield "generated tokens", float(target.generated_tokens)
    if target.quantization is not None:
        yield from ((f"{_PROCESSORS}{family}", 1.0) for family in target.families)


def options_of(recipe: Recipe, target: str) -> dict[str, str]:
    """Return how a target is built and where it must run, as text: the oldest system, states, an
    exporter; without what the run's results show or `demands_of` compares.
    """
    if target not in recipe.targets:
        return {}
    content = recipe.targets[target].model_dump(mode="json", by_alias=True, exclude_defaults=True)
    options = flatten({key: each for key, each in content.items() if key not in _COMPARED})
    return {key: value for key, value in options.items() if key}


def tried_by(recipe: Recipe) -> dict[str, str]:
    """Return the keys that decide what is tried and compared, as text; those that say the default
    are left out.
    """
    content = recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    goals = any(recipe.goals_of(name) is not None for name in recipe.targets)
    return {
        key: value
        for key, value in flatten(content).items()
        if _is_tried(key) or (goals and key.startswith("bench."))
    }


def names_model(key: str) -> bool:
    """Return whether a recipe's key says which model it is about, or one of its parts."""
    first, _, rest = key.partition(".")
    return (rest.partition(".")[2] if first == "parts" else key).startswith(_MODELS)


def _is_tried(key: str) -> bool:
    first, _, rest = key.partition(".")
    if first == "parts":
        return rest.partition(".")[2].startswith(_TRIED)
    if first == "evaluate":
        return rest.partition(".")[0] in _SCORED
    return key.startswith(_TRIED)


@dataclasses.dataclass(frozen=True)
class ChangedDemand:
    """A demand that two recipes do not share. `limits`: it limits a figure; the others decide what
    is tried.
    """

    subject: str
    name: str
    change: Literal["looser", "stricter"]
    message: str

    @property
    def limits(self) -> bool:
        tried = self.name in _COUNTS or self.name.startswith((_SKIP, _PROCESSORS))
        return not tried


def changed_demands(before: Demands, now: Demands) -> Iterator[ChangedDemand]:
    """Yield what another recipe demands less or more of the same things."""
    for subject in dict.fromkeys([*before, *now]):
        was, found = (_completed(each.get(subject, {})) for each in (before, now))
        for name in dict.fromkeys([*was, *found]):
            old, new = was.get(name), found.get(name)
            if old != new:
                looser = not _is_stricter(name, old, new)
                message = _message(subject, name, old, new)
                yield ChangedDemand(subject, name, "looser" if looser else "stricter", message)


def _completed(values: Mapping[str, float]) -> Mapping[str, float]:
    """Return limits with the value of each key that is left out beside one that is given."""
    given = [names for names in _TOGETHER if names & values.keys()]
    return {**{name: 0.0 for names in given for name in sorted(names)}, **values}


def _is_stricter(name: str, before: float | None, now: float | None) -> bool:
    more = name in _MORE
    without = _WITHOUT.get(name, -math.inf if more else math.inf)
    if name.startswith(_SKIP):
        without = 0.0
    was, found = (without if each is None else each for each in (before, now))
    return found > was if more else found < was


def _message(subject: str, name: str, before: float | None, now: float | None) -> str:
    if name.startswith((_SKIP, _PROCESSORS)):
        return f"{subject}: {name}" if before is None else f"{subject}: no longer {name}"
    if name not in _WITHOUT:
        if now is None:
            return f"{subject}: the limit {name} {_shown(name, before)} was removed"
        if before is None:
            return f"{subject}: {name} {_shown(name, now)} is new"
    return f"{subject}: {name} {_shown(name, before, now)} -> {_shown(name, now, before)}"


def _shown(name: str, value: float | None, other: float | None = None) -> str:
    """Return a value with just enough digits to differ from another one."""
    if value is None:
        return "(absent)"
    if math.isinf(value):
        return "all"
    if name == "ladder":
        return _LADDERS[int(value)]
    for digits in (6, 9):
        if other is None or f"{value:.{digits}g}" != f"{other:.{digits}g}":
            return f"{value:.{digits}g}"
    return repr(value)
