"""A quantized model, open in onnxruntime, whose products are those of either family."""

import contextlib
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.messages import ProductFamily
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_session import GraphSession, open_graph
from convkit.worker.graph.integer_products.product_rewriting import (
    SWITCHES,
    SaturatingNode,
    switch_products,
)
from convkit.worker.graph.typed_graph import with_types


class SwitchedProducts(contextlib.ExitStack):
    """The model, with a switch for each node whose products can saturate.

    `executed` is the file of the graph that onnxruntime executes (see `executed_graph` of its
    sessions): which nodes multiply whole numbers is its decision. `nodes` are those that can
    saturate, `unknown` those whose saturation cannot be computed. Closing it removes its files.
    """

    def __init__(self, executed: Path) -> None:
        super().__init__()
        model = with_types(load_model(executed))
        outputs = [output.name or "" for output in model.graph.outputs]
        self._inputs = {value.name for value in model.graph.inputs}
        rewritten = switch_products(model, counted=True)
        self.nodes: tuple[SaturatingNode, ...] = rewritten.saturating
        self.unknown: tuple[SaturatingNode, ...] = rewritten.unknown
        self._outputs = outputs
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="convkit-products-"))
        path = Path(folder) / "switched.onnx"
        save_model(model, path)
        self._session = open_graph(path)

    def run(
        self, feeds: Mapping[str, np.ndarray], saturating: Collection[int]
    ) -> dict[str, np.ndarray]:
        """Return the outputs by name, with the nodes of these numbers saturating and all others
        exact. Raises RunFailedError.
        """
        found = self._run(feeds, saturating, self._outputs)
        return {name: found[name] for name in self._outputs}

    def known(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the feeds that the model has inputs for."""
        return {name: np.asarray(values) for name, values in feeds.items() if name in self._inputs}

    def counts(self, feeds: Mapping[str, np.ndarray]) -> list[tuple[float, float] | None]:
        """Return, for each node, how many pairs saturate and how many there are, if all nodes
        saturate; None for a node inside another one's body.
        """
        wanted = [node.count for node in self.nodes if node.count]
        found = self._run(feeds, range(len(self.nodes)), wanted)
        pairs = [found[node.count] if node.count else None for node in self.nodes]
        return [None if pair is None else (float(pair[0]), float(pair[1])) for pair in pairs]

    def in_family(self, family: ProductFamily) -> "FamilySession":
        """Return the model as processors of a family run it."""
        return FamilySession(self, family, self._session)

    def _run(
        self, feeds: Mapping[str, np.ndarray], saturating: Collection[int], names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        given = dict(feeds)
        if self.nodes:
            switches = np.zeros(len(self.nodes), np.float32)
            switches[list(saturating)] = 1
            given[SWITCHES] = switches
        return self._session.run(given, names)


class FamilySession:
    """A model as processors of one family run it."""

    def __init__(
        self, switched: SwitchedProducts, family: ProductFamily, session: GraphSession
    ) -> None:
        self._switched = switched
        self._on = range(len(switched.nodes)) if family == "saturating-pairs" else range(0)
        self.providers: tuple[str, ...] = session.providers

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name; raises RunFailedError."""
        return self._switched.run(feeds, self._on)
