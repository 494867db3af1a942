"""The comparisons and limits of an ONNX graph that was made elsewhere: a branch that its maker
added, or changed, is wrong only for inputs that take it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.numpy_dtypes import numpy_dtype
from convkit.worker.cases.axis_sizes import largest_sizes
from convkit.worker.cases.case import Feeds, case_cost
from convkit.worker.cases.condition_search import Condition, distance
from convkit.worker.cases.decision_sizes import Site, SizeDecision, Sizes
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, label, read_graph
from convkit.worker.graph.graph_session import open_model

if TYPE_CHECKING:
    import onnxruntime

_COMPARISONS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
_LIMITS = ("Clip", "Min", "Max")
# Of the largest case: it is made for every size that is tried.
_MOST_ELEMENTS = 2**18


class GraphConditions:
    """A graph's comparisons of what depends on its inputs' values, outside of bodies."""

    def __init__(self, graph: Graph, contract: Contract) -> None:
        self._graph = graph
        self._names = {spec.name: spec.origin or spec.name for spec in contract.inputs}
        depending = graph.below([*self._names.values()], by_shape=False)
        # The two values that each site compares: a site is a node, and which of its limits.
        self._compared: dict[Site, tuple[str, str]] = {}
        self._kinds: dict[Site, str] = {}
        for node in graph.nodes:
            limits = node.op_type in _LIMITS
            if node.domain or not (limits or node.op_type in _COMPARISONS):
                continue
            for place, name in enumerate(node.input[1:], 1):
                if name and {node.input[0], name} & depending:
                    site = (label(node), -place if limits else 0)
                    self._compared[site] = (node.input[0], name)
                    self._kinds[site] = node.op_type
        self._outputs = {label(node): node.output[0] for node in graph.nodes if node.output}

    def sides(self, feeds: Feeds) -> dict[Site, set[bool]]:
        """Return each comparison with the ways in which it turned out among its elements."""
        return {
            site: {bool((held > 0).any()), bool((held > 0).all())}
            for site, held in self._distances(feeds, *self._compared).items()
        }

    def matters(self, feeds: Feeds, site: Site) -> bool:
        """Return whether the graph computes something else with a comparison turned the other way,
        or does not run; False of limits.
        """
        if site[1] < 0:
            return False
        given, name = self._given(feeds), self._outputs[site[0]]
        try:
            value = self._graph.run([name], given)[name]
            expected = self._graph.run(self._graph.outputs, given)
            found = self._graph.run(self._graph.outputs, {**given, name: ~value})
        except PieceFailedError:
            return True
        return any(
            not np.array_equal(
                expected[each], found[each], equal_nan=expected[each].dtype.kind == "f"
            )
            for each in expected
        )

    def condition(self, feeds: Feeds, site: Site, *, side: bool) -> Condition | None:
        """Return what becomes of a comparison in a run, without slopes; None if it is not made."""
        del side  # which only slopes depend on
        held = self._distances(feeds, site).get(site)
        return None if held is None or not held.size else Condition(held.max(), held.min())

    def _distances(self, feeds: Feeds, *sites: Site) -> dict[Site, np.ndarray]:
        wanted = dict.fromkeys(name for site in sites for name in self._compared[site])
        try:
            values = self._graph.run([*wanted], self._given(feeds))
        except PieceFailedError:
            return {}
        return {
            site: _holds(self._kinds[site], *(values[name] for name in self._compared[site]))
            for site in sites
            if all(
                name in values and values[name].dtype.kind in "fiub"
                for name in self._compared[site]
            )
        }

    def _given(self, feeds: Feeds) -> dict[str, np.ndarray]:
        return {name: np.asarray(feeds[key], order="C") for key, name in self._names.items()}


def _holds(kind: str, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    apart = distance(one, other)
    if kind == "Equal":
        return np.where(apart == 0, 1.0, -np.abs(apart))
    return -apart if kind in ("Less", "LessOrEqual") else apart


class _ComparedSizes:
    """The outcome of a comparison of what depends on the inputs' sizes alone, by running it."""

    def __init__(self, graph: Graph, contract: Contract, output: str) -> None:
        self._graph, self._specs, self._output = graph, contract.inputs, output
        self._known: dict[tuple[int, ...], bool] = {}
        self._session: onnxruntime.InferenceSession | None = None
        self._constants: dict[str, np.ndarray] = {}

    def __call__(self, sizes: Sizes) -> bool:
        key = tuple(sizes.values())
        if key not in self._known:
            zeros = {
                spec.origin or spec.name: np.zeros(
                    spec.concrete_shape(sizes), numpy_dtype(spec.dtype)
                )
                for spec in self._specs
            }
            try:
                self._known[key] = self._run(zeros)
            except Exception as error:  # onnxruntime's own errors share no base class
                raise ArithmeticError(f"{self._output!r} cannot be computed") from error
        return self._known[key]

    def _run(self, feeds: dict[str, np.ndarray]) -> bool:
        if self._session is None:
            model, self._constants = self._graph.piece([self._output], feeds)
            for given in model.graph.input:
                given.type.tensor_type.ClearField("shape")
            self._session = open_model(model.SerializeToString())
        read = {each.name for each in self._session.get_inputs()}
        given = {**self._constants, **feeds}
        (found,) = self._session.run([self._output], {name: given[name] for name in read})
        return bool(np.asarray(found).any())


def compared_sizes(path: Path, contract: Contract) -> Iterator[SizeDecision]:
    """Yield the comparisons of a file that only sizes decide, whatever computes them (a sum of
    ones); none of a model whose inputs are large. Raises StageFailedError.
    """
    if case_cost(contract, largest_sizes(contract)) > _MOST_ELEMENTS:
        return
    graph = read_graph(path)
    names = [spec.origin or spec.name for spec in contract.inputs]
    by_value, by_any = graph.below(names, by_shape=False), graph.below(names)
    for node in graph.nodes:
        read = set(node.input)
        if node.op_type in _COMPARISONS and read & by_any and not read & by_value:
            place = f"node {label(node)} ({node.op_type})"
            yield SizeDecision(place, _ComparedSizes(graph, contract, node.output[0]))


def graph_conditions(path: Path, contract: Contract) -> GraphConditions:
    """Return the comparisons of a file; raises StageFailedError for one that is no model."""
    return GraphConditions(read_graph(path), contract)
