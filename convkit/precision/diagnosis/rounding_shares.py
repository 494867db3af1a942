"""Which value's rounding makes a low-precision target miss its limits.

Every value's rounding can be switched on and off by itself (`SwitchedValues`). The search looks at
the kinds of modules that cost most alone, and puts their values in float32 one after the other,
always the one that helps most, until the limits are met: that is the proof.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from convkit.precision.naming import general_path
from convkit.precision.reductions import MOVING_OPERATORS

# Returns the overshoot (see `metrics.limits`) with these values rounded.
Share = Callable[[Collection[str]], float]

# The values named must leave at most this part of the overshoot, each at most that of what is left.
_LEAVES, _HELPS = 0.6, 0.95
# A value that alone makes this part of the overshoot is enough to make it.
_ENOUGH = 0.5
# How many values are named, how many kinds of modules are looked at, and how many of their values.
_MOST_NAMED, _MOST_KINDS, _MOST_VALUES = 6, 3, 64


@dataclasses.dataclass(frozen=True)
class RoundingCause:
    """The values whose rounding matters most, the first of them by itself; each stands for its
    reshaped copies, too.

    `kept` are the modules that make or read them, with their counterparts in other layers.
    Overshoots are of the worst output: `before` as the target is, `after` with these values in
    float32, `after_kept` with the modules in float32.
    """

    values: tuple[str, ...]
    kept: tuple[str, ...]
    before: float
    after: float
    after_kept: float


def rounding_cause(
    model: ir.Model, touched: Mapping[str, frozenset[str]], share: Share
) -> RoundingCause | None:
    """Find the cause in a prepared float32 model; None if rounding is not why it is off, or if no
    few values stand out.

    `touched` are the modules that make or read each value that is rounded. Takes one run per kind
    of module and per module of the costliest kinds, and for each value that it names one run per
    value of these modules.
    """
    before = share(touched)
    if not math.isfinite(before) or not before > 1 or not share(()) <= 1:
        return None
    return _Search(model, touched, share, before).found()


class _Search:
    def __init__(
        self, model: ir.Model, touched: Mapping[str, frozenset[str]], share: Share, before: float
    ) -> None:
        self._touched = touched
        self._share = share
        self._before = before
        self._classes = _same_values(model)
        self._modules = list(dict.fromkeys(m for e in touched.values() for m in sorted(e)))

    def found(self) -> RoundingCause | None:
        """Put values in float32, always the one that helps most, until the limits are met."""
        leaders = self._suspects()
        chosen: list[str] = []
        after = self._before
        while leaders and len(chosen) < _MOST_NAMED and not after <= 1:
            left = {name: self._without([*chosen, name]) for name in leaders}
            best = [min(left, key=lambda name: left[name])]
            if not left[best[0]] <= _HELPS * after:
                best = self._alike(leaders)
                if not best or not self._without([*chosen, *best]) <= _HELPS * after:
                    break
            chosen += best
            leaders = [name for name in leaders if name not in best]
            after = self._without(chosen)
        if not chosen or not after <= _LEAVES * self._before:
            return None
        names = [name for leader in chosen for name in self._copies(leader)]
        kinds = {general_path(each) for name in names for each in self._touched[name]}
        kept = tuple(each for each in self._modules if general_path(each) in kinds)
        after_kept = self._rounded_without(self._values_of(kept))
        return RoundingCause(tuple(chosen), kept, self._before, after, after_kept)

    def _alike(self, leaders: Iterable[str]) -> list[str]:
        """Return the values of which each alone does most of the harm: positions, and half of them.
        One of them in float32 changes nothing, as the others still round the same digits away.
        """
        enough = [n for n in leaders if self._share(self._copies(n)) >= _ENOUGH * self._before]
        return enough if 1 < len(enough) <= _MOST_NAMED else []

    def _suspects(self) -> list[str]:
        """Return the values of the modules that cost most alone, in the graph's order."""
        kinds: dict[str, list[str]] = {}
        for module in self._modules:
            kinds.setdefault(general_path(module), []).append(module)
        ranked = sorted(kinds.values(), key=lambda group: -self._share(self._values_of(group)))[
            :_MOST_KINDS
        ]
        found: set[str] = set()
        for group in ranked:
            costs = {module: self._share(self._values_of([module])) for module in group}
            for module in sorted(group, key=lambda each: -costs[each]):
                values = self._leaders_of(module)
                if len(found) + len(values) > _MOST_VALUES:
                    break
                found.update(values)
        return [name for name in self._touched if name in found]

    def _leaders_of(self, module: str) -> set[str]:
        named = {self._classes.get(name, name) for name in self._values_of([module])}
        return {name if name in self._touched else self._copies(name)[0] for name in named}

    def _without(self, leaders: Iterable[str]) -> float:
        return self._rounded_without([n for each in leaders for n in self._copies(each)])

    def _rounded_without(self, values: Collection[str]) -> float:
        left = set(values)
        return self._share([name for name in self._touched if name not in left])

    def _values_of(self, modules: Iterable[str]) -> list[str]:
        wanted = set(modules)
        return [name for name, each in self._touched.items() if each & wanted]

    def _copies(self, value: str) -> list[str]:
        leader = self._classes.get(value, value)
        return [name for name in self._touched if self._classes.get(name, name) == leader]


def _same_values(model: ir.Model) -> dict[str, str]:
    """Return the value that each is a rearranged copy of: rounding one twice changes nothing."""
    found: dict[str, str] = {}
    for node in model.graph:
        if node.op_type in MOVING_OPERATORS and node.inputs and node.inputs[0] is not None:
            given = node.inputs[0].name or ""
            for value in node.outputs:
                found[value.name or ""] = found.get(given, given)
    return found


def readers(model: ir.Model, names: Sequence[str]) -> list[ir.Node]:
    """Return the nodes of the main graph that read one of the values, without those that only
    rearrange it.
    """
    return [
        node
        for node in model.graph
        if node.op_type not in MOVING_OPERATORS
        and any(value is not None and value.name in names for value in node.inputs)
    ]


def copies_of(model: ir.Model, value: str) -> list[str]:
    """Return a value and its rearranged copies."""
    classes = _same_values(model)
    return [value, *(name for name, leader in classes.items() if leader == value)]
