"""Finds the first place where a graph diverges from its original, proven by substituting the
original's value there.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.worker.cause.graphs.isolated_trials import spent
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    module_of,
    reads,
)
from convkit.worker.cause.matching.axis_layouts import AxisLayout, correlation, likeliest_layout
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.cause.matching.value_matching import (
    ValueMatch,
    match_values,
    worst_output_error,
)
from convkit.worker.cause.place.block_ends import bridges, nearest_known
from convkit.worker.cause.place.error_growth import error_growth
from convkit.worker.cause.place.recomputed_values import wrong_values
from convkit.worker.cause.place.trusted_values import trusted_names, trusted_values
from convkit.worker.cause.recording.recorded_call import VIEWS, Recording
from convkit.worker.cause.recording.tensor_sketches import Sketches
from convkit.worker.cause.search_types.divergence_place import FLOOR, REMAINS, Parting
from convkit.worker.cause.search_types.graph_edits import BEFORE

# Within this, a value is taken for the original's, to be computed anew from the original's own.
_ALIGNED = 1e-2
# How many values of the original, and of the graph for each, are tried as the place.
_ORIGINALS, _CANDIDATES = 32, 6
_PROVEN = 2
# What another order of the same elements changes in a sketch.
_REORDERED = 1e-9
# Correlated more than this, the graph's value may be the original's, changed.
_ALIKE = 0.9
# Among several faults: values tried as the first; how many must match again below, and surely do.
_SEVERAL, _RESTORED, _CERTAIN = 8, 2, 5
# Operations that a graph may lack in a row, and how many values before them are tried.
_STEPS_BACK, _EARLIER = 6, 2


class Divergence:
    """The search on one case: the original's recording and the graph, run on the same inputs.

    `feeds` are the graph's inputs by name; the recording's outputs have the graph's names. The
    search stops after `seconds`.
    """

    def __init__(
        self, recording: Recording, graph: Graph, feeds: Values, *, seconds: float = 60.0
    ) -> None:
        self._recording = recording
        self._graph = graph
        self._feeds = dict(feeds)
        self._deadline = spent() + seconds
        names = [name for node in graph.nodes for name in node.output]
        self._names = [name for name in names if _is_own(name)]
        self.found: dict[str, np.ndarray] = {}
        self.found = self._run_all(self._feeds)
        self.error = worst_output_error(self._recording, self.found)

    def partings(self) -> Iterator[Parting]:
        """Yield the proven places, likely causes first; nothing if the outputs agree.

        If no place is proven, yields the one that explains most, or the first output that is off.
        """
        if self.error <= 10 * FLOOR:
            return
        # A fault must not pass for a match: the smaller the error, the closer values must be.
        own = Sketches(self.found)
        known = self._known(own, min(max(self.error / 10, 4 * FLOOR), CLOSE))
        small = self._recomputed(self._known(own, _ALIGNED), known)
        proven = False
        # An output that is put right explains itself, whatever else is wrong above it.
        alone = len(small) == 1
        for parting in small:
            if parting.is_proven and (alone or parting.name not in self._recording.outputs):
                proven = True
                yield self._with_growth(parting)
        for parting in () if proven else self._together(small):
            proven = True
            yield self._with_growth(parting)
        for parting in itertools.islice(self._hypotheses(known), _PROVEN):
            proven = True
            yield self._with_growth(parting)
        # With several faults, a place below the last one is proven as well, and explains nothing.
        for parting in self._restoring(known):
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
        given = {**self._unchanged(replaced), **replaced}
        names = [name for name in self._names if name not in given]
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

    def _unchanged(self, replaced: Values) -> dict[str, np.ndarray]:
        """Return the graph's values that replacing some, whatever their shapes, does not change."""
        changed = self._graph.below(replaced)
        return {name: values for name, values in self.found.items() if name not in changed}

    def _changed(self, replaced: Values) -> dict[str, np.ndarray]:
        """Return the graph's values with some replaced, those alone that this may change."""
        same = self._unchanged(replaced)
        return {name: v for name, v in self._run_all(replaced).items() if name not in same}

    def _known(self, values: Sketches, within: float) -> dict[str, ValueMatch]:
        """Return the values that match, with the inputs, which are the same by definition."""
        known = match_values(self._recording, values, within)
        for value in self._recording.values:
            if value.kind == "input" and value.name in self._feeds:
                shape = self._feeds[value.name].shape
                layout = AxisLayout(tuple(range(value.array.ndim)), shape)
                known[value.name] = ValueMatch(value.name, value.index, layout, 0.0)
        return known

    def originals(self, known: Mapping[str, ValueMatch]) -> dict[str, np.ndarray]:
        """Return the original's own values of the known ones, in the graph's layout."""
        return {
            name: match.layout.apply(self._recording.values[match.value].array).astype(
                self.found[name].dtype, copy=False
            )
            for name, match in known.items()
        }

    def _recomputed(
        self, aligned: Mapping[str, ValueMatch], known: Mapping[str, ValueMatch]
    ) -> list[Parting]:
        """Compute every aligned value from the original's own values of the others: anything off by
        more than the last bits is wrong here, however small the error, and not inherited.
        """
        own = {
            name: values
            for name, values in self.originals(aligned).items()
            if name not in self._feeds
        }
        if not own:
            return []
        try:
            wrong = wrong_values(self._graph, self._feeds, own)
        except PieceFailedError:
            return []
        found = []
        for name, error in wrong[:8]:
            after = self.after({name: own[name]})
            match = aligned[name]
            others = self.upstream(name, known)
            found.append(Parting(name, match.value, match.layout, others, error, self.error, after))
        return found

    def after(self, replaced: Values) -> float:
        """Return the outputs' error with the original's values in some places."""
        outputs = [name for name in self._recording.outputs if name not in replaced]
        try:
            values = self._graph.run(outputs, {**self._unchanged(replaced), **replaced})
        except PieceFailedError:
            return math.inf
        return worst_output_error(self._recording, {**values, **replaced})

    def _hypotheses(self, known: Mapping[str, ValueMatch]) -> Iterator[Parting]:
        """Yield places at which substituting the original's value makes the outputs correct.

        The original's values without a match in the graph are tried in order, each for the graph's
        unmatched values with the same number of elements, most likely first.
        """
        lost = self._lost(known)
        first = lost[:_ORIGINALS]
        for value in dict.fromkeys((*first, *bridges(self._recording, lost))):
            expected = self._recording.values[value].array
            for name, layout in self.candidates(value, expected, known):
                if spent() > self._deadline:
                    return
                wanted = layout.apply(expected)
                if name in self.found:
                    wanted = wanted.astype(self.found[name].dtype)
                after = self.after({name: wanted})
                parting = Parting(
                    name,
                    value,
                    layout,
                    self.upstream(name, known),
                    relative_error(self.found.get(name, wanted[:0]), wanted),
                    self.error,
                    after,
                )
                if parting.is_proven:
                    yield parting

    def _together(self, small: Sequence[Parting]) -> Iterator[Parting]:
        """Yield several small faults, if with all of them corrected the outputs are right."""
        values = self.originals({each.name: _match(each) for each in small})
        if len(small) > 1 and self.after(values) <= max(REMAINS * self.error, 10 * FLOOR):
            yield from (dataclasses.replace(each, restored=1) for each in small)

    def _restoring(self, known: Mapping[str, ValueMatch]) -> Iterator[Parting]:
        """Yield the first values of the original's that, put into the graph, make values below
        them match again, up to the next fault.
        """
        matched = {match.value for match in known.values()}
        for value in self._lost(known, views=False)[:_SEVERAL]:
            expected = self._recording.values[value].array
            below = self._computed_from(value)
            best: Parting | None = None
            for name, layout in self.candidates(value, expected, known):
                if spent() > self._deadline or name not in self.found:
                    break
                wanted = layout.apply(expected).astype(self.found[name].dtype)
                right = match_values(self._recording, self._changed({name: wanted}))
                restored = len({match.value for match in right.values()} & below - matched)
                if restored >= _RESTORED and (best is None or restored > best.restored):
                    error = relative_error(self.found[name], wanted)
                    after = self.after({name: wanted})
                    upstream = self.upstream(name, known)
                    best = Parting(
                        name, value, layout, upstream, error, self.error, after, (), restored
                    )
                if restored >= _CERTAIN:
                    break
            if best is not None:
                yield best

    def _computed_from(self, value: int) -> set[int]:
        """Return the original's values that depend on one, its own elements elsewhere left out."""
        values = self._recording.values
        found, own = {value}, values[value].sketch
        for operation in self._recording.operations:
            if found.intersection(operation.inputs):
                found.update(operation.outputs)
        return {
            each
            for each in found - {value}
            if values[each].array.dtype.kind in "fiub"
            and values[each].array.size > 1
            and not np.allclose(values[each].sketch, own, rtol=0, atol=_REORDERED * own[0])
        }

    def _lost(self, known: Mapping[str, ValueMatch], *, views: bool = True) -> list[int]:
        """Return the values needed by the outputs below which nothing is matched."""
        recording = self._recording
        matched = {match.value for match in known.values()}
        reaches = trusted_values(recording, matched)
        final = set(recording.outputs.values())
        return [
            value.index
            for value in recording.values
            if value.index in recording.needed_values
            and (value.index not in reaches or value.index in final)
            and value.index not in recording.fixed
            and value.index not in matched
            and value.array.dtype.kind in "fiub"
            and (views or not self._is_view(value.producer))
        ]

    def _is_view(self, producer: int | None) -> bool:
        return producer is not None and self._recording.operations[producer].kind in VIEWS

    def candidates(
        self, value: int, expected: np.ndarray, known: Mapping[str, ValueMatch]
    ) -> list[tuple[str, AxisLayout]]:
        """Return values of the graph that might be this one, the likeliest first."""
        final = [n for n, index in self._recording.outputs.items() if index == value]
        producer = self._recording.values[value].producer
        module = self._recording.operations[producer].module if producer is not None else ""
        ranked = []
        leads = trusted_names(self._graph, self.found, known)
        for place, name in enumerate(self._names):
            found = self.found.get(name)
            if found is None or name in leads or found.size != expected.size:
                continue
            if found.size <= 1 and name not in final:
                continue
            layout = likeliest_layout(expected, found)
            owner = module_of(self._graph.nodes[self._graph.producers[name]])
            foreign = bool(owner) and owner != module
            # A scale, another activation or a small change preserve most of a value.
            unlike = not correlation(layout, expected, found) > _ALIKE
            ranked.append(
                (
                    *(name not in final, foreign, unlike, found.shape != expected.shape, place),
                    *(name, layout),
                )
            )
        ranked.sort(key=lambda each: each[:5])
        chosen = [(name, layout) for *_, name, layout in ranked[:_CANDIDATES]]
        # A value that has lost its shape is found by its place alone.
        plain = AxisLayout(tuple(range(expected.ndim)), expected.shape)
        kind = expected.dtype.kind
        # In a graph that runs this would only make nodes fail, some of them by ending the process.
        near = [
            name
            for name in (self._frontier(known) if math.isinf(self.error) else ())
            if name not in self.found or self.found[name].dtype.kind == kind
        ]
        tried = {name for name, _ in chosen}
        # If the graph lacks a step, its readers get the value before it instead.
        matched = {match.value for match in known.values()}
        nearest = nearest_known(self._recording, value, matched)
        sources = [*self._recording.sources(value, _STEPS_BACK), *nearest]
        before = [
            (sources.index(match.value), name)
            for name, match in known.items()
            if match.value in sources and name in self._graph.producers
        ]
        earlier = [
            (name, likeliest_layout(expected, self.found[name]))
            for _, name in sorted(before)
            if self.found[name].size == expected.size
        ][:_EARLIER]
        return [*chosen, *((name, plain) for name in near[:4] if name not in tried), *earlier]

    def _frontier(self, known: Mapping[str, ValueMatch]) -> list[str]:
        """Return the first unmatched values that lead to no known one: those computed from known
        values, and those computed from them.
        """
        right = {*known, *self._graph.constants, *self._graph.exotic, *self._feeds}
        leads = trusted_names(self._graph, self.found, known)
        found: list[str] = []
        for _ in range(2):
            added: list[str] = []
            for node in self._graph.nodes:
                if right.issuperset(reads(node)):
                    lost = [name for name in node.output if _is_own(name) and name not in leads]
                    added += [name for name in lost if name not in right]
                    right.update(name for name in node.output if name in leads)
            right.update(added)
            found += added
        return found

    def upstream(self, name: str, known: Mapping[str, ValueMatch]) -> dict[str, ValueMatch]:
        """Return the known values without those that depend on a value."""
        below = self._graph.below([name], by_shape=False)
        return {each: match for each, match in known.items() if each not in below}

    def _at_output(self, known: Mapping[str, ValueMatch]) -> Parting | None:
        """Return the first output that is off: there the graph has certainly parted."""
        for name, value in self._recording.outputs.items():
            expected = self._recording.values[value].array
            if name not in self._graph.producers or name not in self.found:
                continue
            if expected.size != self.found[name].size:
                continue
            error = relative_error(self.found[name], expected)
            if not error <= 10 * FLOOR:
                layout = AxisLayout(tuple(range(expected.ndim)), self.found[name].shape)
                return Parting(
                    name, value, layout, self.upstream(name, known), error, self.error, math.nan
                )
        return None

    def _with_growth(self, parting: Parting) -> Parting:
        wanted = parting.layout.apply(self._recording.values[parting.value].array)
        if parting.name in self.found:
            wanted = wanted.astype(self.found[parting.name].dtype)
        below = list(itertools.dropwhile(lambda name: name != parting.name, self._names))
        right = self._changed({parting.name: wanted})
        growth = error_growth(self._recording, below, self.found, right)
        return dataclasses.replace(parting, growth=growth)


def _is_own(name: str) -> bool:
    """Say whether a node's output is a value of the model, and not what a correction replaced."""
    return bool(name) and not name.endswith(BEFORE)


def _match(parting: Parting) -> ValueMatch:
    return ValueMatch(parting.name, parting.value, parting.layout, parting.local)
