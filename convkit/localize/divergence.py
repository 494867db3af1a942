"""The first place at which a graph parts from its original, proven by putting the original's value
there.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.localize.graph import Graph, PieceFailedError, Values, module_of, reads
from convkit.localize.growth import error_growth
from convkit.localize.matching import (
    CLOSE,
    Layout,
    Match,
    is_flat,
    layouts,
    match_values,
    relative_error,
)
from convkit.localize.original import Recording

# What float32 arithmetic can explain, in parts of a tensor's rms: this much always, and this many
# times what a change of the last bit in the inputs makes of it.
FLOOR = 2e-6
_NOISE = 30.0
_LAST_BIT = 2.0**-24
# The share of the outputs' error that may remain where a place explains it all.
_REMAINS = 0.02
# Within this, a value is taken for the original's, to be computed anew from the original's own.
_ALIGNED = 1e-2
# How many values of the original, and of the graph for each, are tried as the place.
_ORIGINALS, _CANDIDATES = 32, 5


@dataclasses.dataclass(frozen=True)
class Parting:
    """A value of the graph that is wrong although everything it is computed from is right.

    `value` is the original's value that belongs there, laid out by `layout`. `known` are the values
    of the graph that are the original's, `local` the error of this value computed from them alone.
    `before` and `after` are the outputs' errors as the graph is, and with the original's value
    here; errors are in parts of the rms. `growth` leads from here to the outputs.
    """

    name: str
    value: int
    layout: Layout
    known: Mapping[str, Match]
    local: float
    before: float
    after: float
    growth: tuple[tuple[str, float], ...] = ()

    @property
    def is_proven(self) -> bool:
        """True where the original's value here makes the outputs' error vanish."""
        remains = _REMAINS * min(self.before, 1.0)  # infinite where the graph cannot run
        return self.after <= max(remains, 10 * FLOOR)


class Divergence:
    """The search, on one case: the original's recording beside the graph, both run on it.

    `feeds` are the graph's inputs by name; the recording's outputs have the graph's names. Stops
    looking after `seconds`.
    """

    def __init__(
        self, recording: Recording, graph: Graph, feeds: Values, *, seconds: float = 60.0
    ) -> None:
        self._recording = recording
        self._graph = graph
        self._feeds = dict(feeds)
        self._deadline = time.monotonic() + seconds
        self._names = [name for node in graph.nodes for name in node.output if name]
        self.found = self._run_all({})
        self.error = self._outputs_error(self.found)

    def partings(self) -> Iterator[Parting]:
        """Yield the places that are proven, likely causes first; nothing where outputs agree.

        Where no place is proven, yields the one that explains most, or the first output that is
        off.
        """
        if self.error <= 10 * FLOOR:
            return
        # A fault must not pass for a match: the smaller the error, the closer values must be.
        known = self._known(self.found, min(max(self.error / 10, 4 * FLOOR), CLOSE))
        small = self._recomputed(self._known(self.found, _ALIGNED), known)
        proven = False
        for parting in small:
            if parting.is_proven:
                proven = True
                yield self._with_growth(parting)
        for parting in self._hypotheses(known):
            proven = True
            yield self._with_growth(parting)
        if proven:
            return
        best = min(small, key=lambda p: p.after, default=None)
        if best is not None and best.after < self.error / 2:
            yield self._with_growth(best)
        elif (last := self._at_output(known)) is not None:
            yield last

    def _run_all(self, replaced: Values) -> dict[str, np.ndarray]:
        """Return all values of the graph, or those before the first node that fails."""
        names = [name for name in self._names if name not in replaced]
        given = {**self._feeds, **replaced}
        try:
            return {**self._graph.run(names, given), **given}
        except PieceFailedError:
            pass
        works, fails = 0, len(names)
        values: dict[str, np.ndarray] = {}
        while fails - works > 1:
            middle = (works + fails) // 2
            try:
                values = self._graph.run(names[:middle], given)
                works = middle
            except PieceFailedError:
                fails = middle
        return {**values, **given}

    def _outputs_error(self, values: Values) -> float:
        """Return the largest error of the outputs; infinite where one is missing."""
        return max(
            (
                relative_error(values[name], self._recording.output(name))
                if name in values
                else math.inf
            )
            for name in self._recording.outputs
        )

    def _known(self, values: Values, within: float) -> dict[str, Match]:
        """Return the values that match, with the inputs, which are the same by definition."""
        known = match_values(self._recording, values, within)
        for value in self._recording.values:
            if value.kind == "input" and value.name in self._feeds:
                shape = self._feeds[value.name].shape
                layout = Layout(tuple(range(value.array.ndim)), shape)
                known[value.name] = Match(value.name, value.index, layout, 0.0)
        return known

    def originals(self, known: Mapping[str, Match]) -> dict[str, np.ndarray]:
        """Return the original's own values of what is known, as the graph lays them out."""
        return {
            name: match.layout.apply(self._recording.values[match.value].array).astype(
                self.found[name].dtype, copy=False
            )
            for name, match in known.items()
        }

    def _recomputed(
        self, aligned: Mapping[str, Match], known: Mapping[str, Match]
    ) -> list[Parting]:
        """Compute every aligned value from the original's own values of the others: what is off by
        more than the last bits is wrong here, however small the error, and not inherited.
        """
        own = {
            name: values
            for name, values in self.originals(aligned).items()
            if name not in self._feeds
        }
        if not own:
            return []
        random = np.random.default_rng(0)
        nudged = {
            name: values
            * (1 + _LAST_BIT * random.choice([-1, 1], values.shape)).astype(values.dtype)
            if values.dtype.kind == "f"
            else values
            for name, values in own.items()
        }
        try:
            first = self._graph.run_replaced(list(own), self._feeds, own)
            second = self._graph.run_replaced(list(own), self._feeds, nudged)
        except PieceFailedError:
            return []
        wrong = []
        for name in sorted(own, key=lambda each: self._graph.producers[each]):
            error = relative_error(first[name], own[name])
            noise = relative_error(second[name], first[name])
            if error > max(FLOOR, _NOISE * noise):
                wrong.append((name, error))
        found = []
        for name, error in wrong[:8]:
            after = self._after({name: own[name]})
            match = aligned[name]
            others = self._upstream(name, known)
            found.append(Parting(name, match.value, match.layout, others, error, self.error, after))
        return found

    def _after(self, replaced: Values) -> float:
        """Return the outputs' error with the original's values in some places."""
        outputs = [name for name in self._recording.outputs if name not in replaced]
        try:
            values = self._graph.run(outputs, {**self._feeds, **replaced})
        except PieceFailedError:
            return math.inf
        return self._outputs_error({**values, **replaced})

    def _hypotheses(self, known: Mapping[str, Match]) -> Iterator[Parting]:
        """Yield places at which the original's value, put there, makes the outputs right.

        The original's values that nothing in the graph matches are tried in order; each in place of
        the graph's unmatched values of as many elements, the likeliest first.
        """
        for value in self._lost(known):
            expected = self._recording.values[value].array
            for name, layout in self._candidates(value, expected, known):
                if time.monotonic() > self._deadline:
                    return
                wanted = layout.apply(expected)
                if name in self.found:
                    wanted = wanted.astype(self.found[name].dtype)
                after = self._after({name: wanted})
                parting = Parting(
                    name,
                    value,
                    layout,
                    self._upstream(name, known),
                    relative_error(self.found.get(name, wanted[:0]), wanted),
                    self.error,
                    after,
                )
                if parting.is_proven:
                    yield parting

    def _lost(self, known: Mapping[str, Match]) -> list[int]:
        """Return the first values that the outputs need and below which nothing is matched."""
        recording = self._recording
        matched = {match.value for match in known.values()}
        reaches: set[int] = set(matched)
        for operation in reversed(recording.operations):
            if reaches.intersection(operation.outputs):
                reaches.update(operation.inputs)
        final = set(recording.outputs.values())
        return [
            value.index
            for value in recording.values
            if value.index in recording.needed_values
            and (value.index not in reaches or value.index in final)
            and value.index not in recording.fixed
            and value.index not in matched
            and value.array.dtype.kind in "fiub"
        ][:_ORIGINALS]

    def _candidates(
        self, value: int, expected: np.ndarray, known: Mapping[str, Match]
    ) -> list[tuple[str, Layout]]:
        """Return values of the graph that might be this one, the likeliest first."""
        final = [n for n, index in self._recording.outputs.items() if index == value]
        producer = self._recording.values[value].producer
        module = self._recording.operations[producer].module if producer is not None else ""
        ranked = []
        leads = self._leading(known)
        for place, name in enumerate(self._names):
            found = self.found.get(name)
            if found is None or name in leads or found.size != expected.size:
                continue
            if found.size <= 1 and name not in final:
                continue
            layout = _likeliest(expected, found)
            owner = module_of(self._graph.nodes[self._graph.producers[name]])
            foreign = bool(owner) and owner != module
            ranked.append(
                (name not in final, foreign, found.shape != expected.shape, place, name, layout)
            )
        ranked.sort(key=lambda each: each[:4])
        chosen = [(name, layout) for *_, name, layout in ranked[:_CANDIDATES]]
        # A value that has lost its shape is found by its place alone.
        plain = Layout(tuple(range(expected.ndim)), expected.shape)
        kind = expected.dtype.kind
        # In a graph that runs this would only make nodes fail, some of them by ending the process.
        near = [
            name
            for name in (self._frontier(known) if math.isinf(self.error) else ())
            if name not in self.found or self.found[name].dtype.kind == kind
        ]
        tried = {name for name, _ in chosen}
        return [*chosen, *((name, plain) for name in near[:4] if name not in tried)]

    def _frontier(self, known: Mapping[str, Match]) -> list[str]:
        """Return the first unmatched values that lead to no known one: what is computed from known
        values, and what is computed from that.
        """
        right = {*known, *self._graph.constants, *self._graph.exotic, *self._feeds}
        leads = self._leading(known)
        found: list[str] = []
        for _ in range(2):
            added: list[str] = []
            for node in self._graph.nodes:
                if right.issuperset(reads(node)):
                    lost = [name for name in node.output if name and name not in leads]
                    added += [name for name in lost if name not in right]
                    right.update(name for name in node.output if name in leads)
            right.update(added)
            found += added
        return found

    def _leading(self, known: Mapping[str, Match]) -> set[str]:
        """Return the known values and all that they are computed from."""
        leads = set(known)
        for node in reversed(self._graph.nodes):
            if leads.intersection(node.output):
                leads.update(reads(node))
        return leads

    def _upstream(self, name: str, known: Mapping[str, Match]) -> dict[str, Match]:
        """Return the known values without those that depend on a value."""
        below = {name}
        for node in self._graph.nodes[self._graph.producers.get(name, 0) :]:
            if below.intersection(node.input):
                below.update(node.output)
        return {each: match for each, match in known.items() if each not in below}

    def _at_output(self, known: Mapping[str, Match]) -> Parting | None:
        """Return the first output that is off: there the graph has certainly parted."""
        for name, value in self._recording.outputs.items():
            expected = self._recording.values[value].array
            if name not in self._graph.producers or name not in self.found:
                continue
            if expected.size != self.found[name].size:
                continue
            error = relative_error(self.found[name], expected)
            if not error <= 10 * FLOOR:
                layout = Layout(tuple(range(expected.ndim)), self.found[name].shape)
                return Parting(
                    name, value, layout, self._upstream(name, known), error, self.error, math.nan
                )
        return None

    def _with_growth(self, parting: Parting) -> Parting:
        wanted = parting.layout.apply(self._recording.values[parting.value].array)
        if parting.name in self.found:
            wanted = wanted.astype(self.found[parting.name].dtype)
        below = self._names[self._names.index(parting.name) :]
        right = self._run_all({parting.name: wanted})
        growth = error_growth(self._recording, below, self.found, right)
        return dataclasses.replace(parting, growth=growth)


def _likeliest(expected: np.ndarray, found: np.ndarray) -> Layout:
    """Return the layout under which two tensors correlate best, or the plain one."""
    options = layouts(expected.shape, found.shape)
    if expected.shape == found.shape or len(options) == 1 or is_flat(found):
        return options[0]
    values = found.astype(np.float64).ravel()
    return max(options, key=lambda layout: _correlation(layout.apply(expected).ravel(), values))


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    one, two = np.nan_to_num(first - first.mean()), np.nan_to_num(second - second.mean())
    return float(abs(one @ two) / max(np.linalg.norm(one) * np.linalg.norm(two), 1e-30))
