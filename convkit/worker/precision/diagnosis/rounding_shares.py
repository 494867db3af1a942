"""Which value's rounding makes a low-precision target miss its limits.

Every value's rounding can be switched on and off by itself (`SwitchedValues`). The search looks at
the kinds of modules that cost most alone, and puts their values in float32 one after the other,
always the one that helps most, until the limits are met: that is the proof.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from convkit.protocol.module_naming import general_path
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.tensor_statistics import MOVING_OPERATORS

# Returns the overshoot (see `metrics.limits`) with these values rounded.
Share = Callable[[Collection[str]], float]

# The values named must leave at most this part of the overshoot, each at most that of what is left.
_LEAVES, _HELPS = 0.6, 0.95
# A value that alone makes this part of the overshoot is enough to make it.
_ENOUGH = 0.5
# How many values are named, how many kinds of modules are looked at, and of values in them.
_MOST_NAMED, _MOST_GROUPS, _MOST_KINDS = 6, 3, 64
# How many kinds are looked at again once one is in float32: those that helped most so far.
_MOST_AGAIN = 16
# What values in different layers have in common.
_Kind = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class RoundingCause:
    """The values whose rounding matters most, the first of them by itself. Each represents its
    reshaped copies and its counterparts in other layers, of which there are `counterparts`.

    `kept` are the modules that make or read them, with their counterparts in other layers.
    Overshoots are of the worst output: `before` as the target is, `after` with these values in
    float32, `after_kept` with the modules in float32.
    """

    values: tuple[str, ...]
    counterparts: tuple[int, ...]
    kept: tuple[str, ...]
    before: float
    after: float
    after_kept: float


def rounding_cause(
    model: ir.Model, touched: Mapping[str, frozenset[str]], share: Share
) -> RoundingCause | None:
    """Find the cause in a prepared float32 model that meets its limits; None if it does with
    rounding as well, or if no few values stand out.

    `touched` are the modules that make or read each value that is rounded. Needs one run per kind
    of module, one per kind of value in the costliest of them, and a few for each value that it
    names.
    """
    before = share(touched)
    if not math.isfinite(before) or not before > 1:
        return None
    return _Search(model, touched, share, before).found()


class _Search:
    def __init__(
        self, model: ir.Model, touched: Mapping[str, frozenset[str]], share: Share, before: float
    ) -> None:
        self._touched = touched
        self._share = share
        self._before = before
        self._leaders = _same_values(model)
        self._kinds = _kinds(model)
        self._modules = list(dict.fromkeys(m for e in touched.values() for m in sorted(e)))

    def found(self) -> RoundingCause | None:
        """Put values in float32, always the one that helps most, until the limits are met."""
        suspects = self._suspects()
        chosen: list[_Kind] = []
        after = self._before
        while suspects and len(chosen) < _MOST_NAMED and not after <= 1:
            left = {kind: self._without([*chosen, kind]) for kind in suspects}
            best = [min(left, key=lambda kind: left[kind])]
            if not left[best[0]] <= _HELPS * after:
                best = self._alike(suspects)
                if not best or not self._without([*chosen, *best]) <= _HELPS * after:
                    break
            chosen += best
            again = sorted(set(suspects) - set(best), key=lambda kind: left[kind])[:_MOST_AGAIN]
            suspects = [kind for kind in suspects if kind in again]
            after = self._without(chosen)
        if not chosen or not after <= _LEAVES * self._before:
            return None
        names = [name for kind in chosen for name in self._of(kind)]
        modules = {general_path(each) for name in names for each in self._touched[name]}
        kept = tuple(each for each in self._modules if general_path(each) in modules)
        after_kept = self._rounded_without(self._values_of(kept))
        values = [list(dict.fromkeys(map(self._leader, self._of(kind)))) for kind in chosen]
        return RoundingCause(
            tuple(each[0] for each in values),
            tuple(len(each) - 1 for each in values),
            kept,
            self._before,
            after,
            after_kept,
        )

    def _alike(self, suspects: Iterable[_Kind]) -> list[_Kind]:
        """Return the values of which each alone does most of the harm: positions, and half of them.
        One of them in float32 changes nothing, as the others still round the same digits away.
        """
        enough = [k for k in suspects if self._share(self._of(k)) >= _ENOUGH * self._before]
        return enough if 1 < len(enough) <= _MOST_NAMED else []

    def _suspects(self) -> list[_Kind]:
        """Return the kinds of values of the modules that cost most alone, in the graph's order."""
        groups: dict[str, list[str]] = {}
        for module in self._modules:
            groups.setdefault(general_path(module), []).append(module)
        values = [self._values_of(group) for group in groups.values()]
        found: set[_Kind] = set()
        for names in sorted(values, key=lambda each: -self._share(each))[:_MOST_GROUPS]:
            kinds = {self._kind(name) for name in names}
            if len(found) + len(kinds) <= _MOST_KINDS:
                found |= kinds
        return [k for k in dict.fromkeys(map(self._kind, self._touched)) if k in found]

    def _leader(self, value: str) -> str:
        return self._leaders.get(value, value)

    def _kind(self, value: str) -> _Kind:
        leader = self._leader(value)
        return self._kinds.get(leader, (general_path(leader),))

    def _of(self, kind: _Kind) -> list[str]:
        return [name for name in self._touched if self._kind(name) == kind]

    def _without(self, kinds: Iterable[_Kind]) -> float:
        return self._rounded_without([name for each in kinds for name in self._of(each)])

    def _rounded_without(self, values: Collection[str]) -> float:
        left = set(values)
        return self._share([name for name in self._touched if name not in left])

    def _values_of(self, modules: Iterable[str]) -> list[str]:
        wanted = set(modules)
        return [name for name, each in self._touched.items() if each & wanted]


def _kinds(model: ir.Model) -> dict[str, _Kind]:
    """Return what values of nodes have in common with their counterparts in other layers: the
    module up to its number, the operator, and which of the module's it is.
    """
    found: dict[str, _Kind] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for node, module in nodes_with_modules(model):
        if node.graph is not model.graph:
            continue
        counts[module, node.op_type] += 1
        for place, value in enumerate(node.outputs):
            number = counts[module, node.op_type]
            found[value.name or ""] = (general_path(module), node.op_type, number, place)
    return found


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
