"""Every weight of a graph, traced to the original's state dict without running anything."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import Graph, module_of, reads
from convkit.worker.cause.matching.weight_derivation import Likeness, how_different, resembles
from convkit.worker.cause.weights.fused_weights import Derived, derived_tensors
from convkit.worker.cause.weights.weight_layouts import SMALLEST, State, laid_out, layouts_of

# Kinds of similarity that say no more than that values differ.
VAGUE = ("other", "noise", "not-finite")


@dataclasses.dataclass(frozen=True)
class WeightMatch:
    """A weight of the graph with the original's values.

    `original` describes its content, `sources` are the entries of the state dict.
    """

    weight: str
    original: str
    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WeightDifference:
    """A weight of the graph that should have the original's values, but does not.

    `corrected` are the original's values in the graph's layout. `instead` names the weight of the
    original whose values were found, if it is another one.
    """

    weight: str
    original: str
    sources: tuple[str, ...]
    likeness: Likeness
    corrected: np.ndarray
    instead: str | None = None


@dataclasses.dataclass(frozen=True)
class WeightReport:
    """How a graph's weights relate to the original's.

    `unknown` are large weights of the graph that resemble nothing in the original (tables computed
    by an exporter, or another model's weights); `missing` are those of the original that the graph
    lacks.
    """

    matches: tuple[WeightMatch, ...]
    differences: tuple[WeightDifference, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]


def compare_weights(
    graph: Graph,
    state: State,
    epsilons: Mapping[str, float] | None = None,
    computed: Iterable[Derived] = (),
) -> WeightReport:
    """Match every weight of a graph with the original's, by name and content.

    A weight is compared with its namesake; without a name, with weights of equal values in any
    order of axes, or from which they can be derived (see `fused`); otherwise, with an unmatched
    weight that it resembles. `epsilons` are those of the original's batch norms by module path, if
    known; `computed` is what the original is known to compute from its weights alone.
    """
    return _Matching(graph, state, epsilons, computed).report()


class _Matching:
    def __init__(
        self,
        graph: Graph,
        state: State,
        epsilons: Mapping[str, float] | None,
        computed: Iterable[Derived],
    ) -> None:
        self._graph = graph
        self._computed = tuple(computed)
        self._epsilons = epsilons
        self._state = {name: array for name, array in state.items() if array.dtype.kind == "f"}
        read = {name for node in graph.nodes for name in reads(node)} | set(graph.outputs)
        self._weights = {
            name: array
            for name, array in graph.constants.items()
            if array.dtype.kind == "f"
            and name in read
            and (array.size >= SMALLEST or name in self._state)
        }
        self._named = {name: found for name in self._weights if (found := self._original(name))}
        self._matches: dict[str, WeightMatch] = {}
        self._differences: list[WeightDifference] = []

    def report(self) -> WeightReport:
        """Return the report."""
        open_weights = [
            name for name in self._weights if self._has_gates(name) or not self._match_by_name(name)
        ]
        by_content = self._contents(open_weights)
        rest: list[str] = []
        by_chance: dict[str, str] = {}
        for name in open_weights:
            found = by_content.get(_digest(self._weights[name]), [])
            original = self._named.get(name)
            if self._has_gates(name):
                rest.append(name)
                by_chance |= {name: found[0]} if found else {}
            elif found and original is None and (owned := self._of_module(name, found)) is not None:
                self._differ(name, owned, found[0])
            elif found and original is None and not self._outside_norm(name, found[0]):
                self._matches[name] = _match(name, found[0])
            elif original is not None and not self._match_computed(name, original):
                self._differ(name, original, found[0] if found else None)
            elif original is None:
                rest.append(name)
                by_chance |= {name: found[0]} if found else {}
        rest = self._match_derived(rest)
        for name in [each for each in rest if each in by_chance]:
            self._matches[name] = _match(name, by_chance[name])
            rest.remove(name)
        rest = self._match_resembling(rest)
        held = self._held()
        twins = self._twins(held)
        missing = [
            name
            for name, array in self._state.items()
            if name not in held | twins and array.size >= SMALLEST and self._is_read(name)
        ]
        return WeightReport(
            tuple(self._matches.values()), tuple(self._differences), tuple(rest), tuple(missing)
        )

    def _original(self, name: str) -> str | None:
        """Return the state's entry of this name: with another prefix, marked as transposed, or with
        underscores for dots.
        """
        plain = name.partition("//")[0].removesuffix(".T").removesuffix("_transposed")
        size = self._weights[name].size
        if plain in self._state:
            return plain if self._state[plain].size == size else None
        ends = [
            other
            for other in self._state
            if plain.endswith(f".{other}") or other.endswith(f".{plain}")
        ]
        ends = [other for other in ends if self._state[other].size == size]
        if ends and "." in plain:
            return max(ends, key=len)
        shape = sorted(self._weights[name].shape)
        flat = [
            other
            for other, array in self._state.items()
            if "." in other
            and f"_{plain}".endswith(f"_{other.replace('.', '_')}")
            and sorted(array.shape) == shape
        ]
        return max(flat, key=len, default=None)

    def _has_gates(self, name: str) -> bool:
        """Say whether a weight belongs to nodes whose gates ONNX orders differently from torch."""
        readers = {self._graph.nodes[i].op_type for i in self._graph.readers.get(name, ())}
        return bool(readers) and readers <= {"GRU", "LSTM"}

    def _outside_norm(self, name: str, original: str) -> bool:
        """Say whether a batch norm's weight is read by something else: a fold without the rest."""
        readers = {self._graph.nodes[i].op_type for i in self._graph.readers.get(name, ())}
        in_norm = f"{original.rpartition('.')[0]}.running_var" in self._state
        return in_norm and readers <= {"Conv", "ConvTranspose", "Gemm"}

    def _of_module(self, name: str, found: Sequence[str]) -> str | None:
        """Return the expected weight of a nameless one, by the module that reads it, if its values
        are another module's weight of the same role.
        """
        paths = {module_of(self._graph.nodes[i]) for i in self._graph.readers.get(name, ())}
        if len(paths) != 1 or not (path := paths.pop()):
            return None
        if any(other.rpartition(".")[0] == path for other in found):
            return None
        own = f"{path}.{found[0].rpartition('.')[2]}"
        if own not in self._state or self._state[own].shape != self._state[found[0]].shape:
            return None
        # The tied weights of a model have more names than the state's first.
        same = any(np.array_equal(self._state[own], self._state[other]) for other in found)
        return None if same else own

    def _match_by_name(self, name: str) -> bool:
        original = self._named.get(name)
        if original is None:
            return False
        values, expected = self._weights[name], self._state[original]
        for moved in layouts_of(expected, values.shape):
            if np.array_equal(values, moved):
                self._matches[name] = _match(name, original)
                return True
        return False

    def _contents(self, weights: list[str]) -> dict[bytes, list[str]]:
        """Return the originals by their content, in each order of axes that some weight has."""
        shapes = {self._weights[name].shape for name in weights}
        found: dict[bytes, list[str]] = {}
        for name, array in self._state.items():
            for shape in shapes:
                for moved in layouts_of(array, shape) if array.size >= SMALLEST else ():
                    found.setdefault(_digest(moved), []).append(name)
        return found

    def _differ(
        self, name: str, original: str, instead: str | None, *, untied: bool = False
    ) -> None:
        """Note how a weight differs from the one that it should be, the nearest layout of it."""
        values, expected = self._weights[name], self._state[original]
        moved = self._layouts(name, expected, None if instead == original else instead)
        if not moved:
            return  # a different shape: these cannot be its values, whatever its name
        compared = [(how_different(values, each), each) for each in moved]
        clear = [each for each in compared if each[0] is None or each[0].kind not in VAGUE]
        likeness, nearest = (clear or compared)[0]
        if likeness is None:
            self._matches[name] = _match(name, original)
            return
        corrected = nearest.astype(values.dtype)
        if instead == original:
            instead = None
        if instead is not None:
            likeness = Likeness("exchanged", f"it holds the values of {instead}")
        if untied:
            text = f"a second copy of a tied weight, and changed: {likeness.text}"
            likeness = Likeness("untied", text)
        self._differences.append(
            WeightDifference(name, original, (original,), likeness, corrected, instead)
        )

    def _layouts(
        self, name: str, original: np.ndarray, instead: str | None = None
    ) -> list[np.ndarray]:
        """Return an original in the orders of axes that a weight can have, the likeliest first:
        that in which it holds another of the same shape `instead`, or resembles the original, or
        else that of other weights of such nodes.
        """
        values = self._weights[name]
        moved = list(layouts_of(original, values.shape))
        if instead is not None and self._state[instead].shape == original.shape:
            others = layouts_of(self._state[instead], values.shape)
            pairs = [(np.array_equal(o, values), m) for o, m in zip(others, moved, strict=True)]
            return [each for _, each in sorted(pairs, key=lambda pair: not pair[0])]
        if len(moved) < 2 or values.ndim != 2:
            return moved
        near = [each for each in moved if resembles(np.nan_to_num(values), each)]
        if not near and self._turned(name):
            moved.reverse()
        return [*near, *(each for each in moved if not any(each is other for other in near))]

    def _turned(self, name: str) -> bool:
        """Return True if the matched matrices read by the same operator are transposed there."""

        def readers(weight: str) -> set[str]:
            return {self._graph.nodes[i].op_type for i in self._graph.readers.get(weight, ())}

        votes = 0
        for match in self._matches.values():
            array = self._weights[match.weight]
            original = self._state.get(match.original)
            if original is None or array.ndim != 2 or readers(match.weight) != readers(name):
                continue
            votes += 1 if not np.array_equal(array, original) else -1
        return votes > 0

    def _match_computed(self, name: str, original: str) -> bool:
        """Match a weight that holds what the original computes from its namesake alone."""
        values = self._weights[name]
        for computed in self._computed:
            if computed.sources != (original,):
                continue
            for each in laid_out(computed, {values.shape}):
                if how_different(values, each.values) is None:
                    self._matches[name] = WeightMatch(name, each.original, each.sources)
                    return True
        return False

    def _match_derived(self, weights: list[str]) -> list[str]:
        """Match values that an exporter computed from several weights: folded norms, joined
        layers.
        """
        wanted = {self._weights[name].shape for name in weights}
        derived = list(derived_tensors(self._state, wanted, self._epsilons)) if wanted else []
        derived += [laid for each in self._computed for laid in laid_out(each, wanted)]
        rest = []
        for name in weights:
            values = self._weights[name]
            fitting = [each for each in derived if each.shape == values.shape]
            right = next((e for e in fitting if how_different(values, e.values) is None), None)
            if right is not None:
                self._matches[name] = WeightMatch(name, right.original, right.sources)
                continue
            explained = next(((each, why) for each in fitting if (why := each.why(values))), None)
            nearest = explained[0] if explained is not None else _nearest(values, fitting)
            if nearest is None:
                rest.append(name)
                continue
            likeness = how_different(values, nearest.values)
            assert likeness is not None  # or it would be right
            if explained is not None:
                likeness = Likeness("folded", explained[1])
            corrected = nearest.values.astype(values.dtype)
            self._differences.append(
                WeightDifference(name, nearest.original, nearest.sources, likeness, corrected)
            )
        return rest

    def _match_resembling(self, weights: list[str]) -> list[str]:
        """Match nameless weights with similar ones that are still unmatched."""
        held = self._held()
        free = [name for name in self._state if name not in held | self._twins(held)]
        rest = []
        for name in weights:
            values = self._weights[name]
            found = [other for other in free if self._resembles(values, self._state[other])]
            if len(found) == 1:
                self._differ(name, found[0], None)
                free.remove(found[0])
            elif not found and values.ndim > 1 and (tied := self._untied(values, held)) is not None:
                self._differ(name, tied, None, untied=True)
            else:
                rest.append(name)
        return rest

    def _untied(self, values: np.ndarray, held: set[str]) -> str | None:
        """Return the one weight that this is a changed second copy of: of tied weights."""
        found = [name for name in sorted(held) if self._resembles(values, self._state[name])]
        return found[0] if len({_pointer(self._state[name]) for name in found}) == 1 else None

    @staticmethod
    def _resembles(values: np.ndarray, other: np.ndarray) -> bool:
        """Return True if two weights are versions of each other in some order of axes or
        elements.
        """
        for moved in layouts_of(other, values.shape):
            with np.errstate(all="ignore"):
                if resembles(np.nan_to_num(values), moved):
                    return True
            likeness = how_different(values, moved)
            if likeness is not None and likeness.kind not in VAGUE:
                return True
        return False

    def _held(self) -> set[str]:
        sources = [each.sources for each in self._matches.values()]
        sources += [each.sources for each in self._differences]
        return {name for each in sources for name in each if name in self._state}

    def _twins(self, held: set[str]) -> set[str]:
        """Return the names of weights that are others' under a second name: tied ones."""
        arrays = {_pointer(self._state[name]) for name in held}
        return {name for name, array in self._state.items() if _pointer(array) in arrays}

    def _is_read(self, name: str) -> bool:
        """Return True if a missing weight could matter: zeros and ones are folded away."""
        array = self._state[name]
        return bool(array.size and not (array == array.flat[0]).all())


def _nearest(values: np.ndarray, derived: Sequence[Derived]) -> Derived | None:
    """Return the expected value of a derived weight: the most similar one, or the only possible
    one.
    """
    given = np.nan_to_num(values.astype(np.float64))
    near = [
        each for each in derived if resembles(given, each.values) or resembles(-given, each.values)
    ]
    # Of the epsilons that a norm may have, the right one leaves the simplest difference.
    for each in derived:
        likeness = how_different(values, each.values)
        if likeness is not None and likeness.kind not in (*VAGUE, "rescaled"):
            return each
    if near:
        return min(near, key=lambda each: float(np.abs(given - each.values).mean()))
    sources = {each.sources for each in derived}
    plain = not given.any() or not np.isfinite(values).all()
    return derived[0] if len(sources) == 1 and plain else None


def _match(weight: str, original: str) -> WeightMatch:
    return WeightMatch(weight, original, (original,))


def _digest(array: np.ndarray) -> bytes:
    digest = hashlib.blake2b(repr((array.dtype.str, array.shape)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def _pointer(array: np.ndarray) -> tuple[int, tuple[int, ...]]:
    return array.__array_interface__["data"][0], array.shape
