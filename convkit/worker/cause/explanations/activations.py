"""Complete activations: written out in several nodes, one is recognized by its result."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, label
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, built_from, recomputed
from convkit.worker.cause.search_types.search_results import Kind
from convkit.worker.graph.operators.composed_operators import GELU, GELU_SIGMOID, GELU_TANH

# The names of activations, and how to compute them.
_NOTHING = "its input"
# What changes nothing comes first: on positive values several others do not either.
FUNCTIONS = {
    _NOTHING: "Identity(x)",
    "GELU": GELU,
    "GELU's tanh approximation": GELU_TANH,
    "GELU's sigmoid approximation": GELU_SIGMOID,
    "SiLU": "Mul(x, Sigmoid(x))",
    "ReLU": "Relu(x)",
    "ReLU6": "Min(Max(x, 0.0), 6.0)",
    "Sigmoid": "Sigmoid(x)",
    "Tanh": "Tanh(x)",
    "HardSwish": f"Mul(x, Min(Max(Add(Mul(x, {1 / 6}), 0.5), 0.0), 1.0))",
    "HardSigmoid": f"HardSigmoid(x, alpha={1 / 6}, beta=0.5)",
    "HardSigmoid of slope 0.2": "HardSigmoid(x, alpha=0.2, beta=0.5)",
    "ELU": "Elu(x)",
    "SELU": "Selu(x)",
    "Softplus": "Softplus(x)",
    "Mish": "Mul(x, Tanh(Softplus(x)))",
    "squared ReLU": "Mul(Relu(x), Relu(x))",
    "LeakyReLU of slope 0.01": "LeakyRelu(x, alpha=0.01)",
    "LeakyReLU of slope 0.1": "LeakyRelu(x, alpha=0.1)",
    "LeakyReLU of slope 0.2": "LeakyRelu(x, alpha=0.2)",
    "the square root": "Sqrt(x)",
    "the square": "Mul(x, x)",
    "the absolute value": "Abs(x)",
    "the floor": "Floor(x)",
    "the ceiling": "Ceil(x)",
    "the nearest whole number": "Round(x)",
    "the whole number nearer to zero": "Mul(Floor(Abs(x)), Sign(x))",
    "softmax over its last axis": "Softmax(x, axis=-1)",
    "log-softmax over its last axis": "LogSoftmax(x, axis=-1)",
    "softmax over its axis 1": "Softmax(x, axis=1)",
    "the exponential": "Exp(x)",
    "the logarithm": "Log(x)",
}


def activations(region: Region) -> Iterator[Rewrite]:
    """Compute a different activation of a value that the region is computed from.

    Only if the graph's result is one of them too, so that both have names. Where all values should
    be one number, several would do: zeros are the floor of all values below 1.
    """
    found = region.computed(region.graph)
    if found is None or found.dtype != np.float32 or is_flat(region.expected):
        return
    for name, values in region.feeds.items():
        if values.dtype != np.float32 or values.shape != found.shape or not region.reads(name):
            continue
        own = next((each for each in FUNCTIONS if _equals(region, name, each, found)), None)
        should = next((e for e in FUNCTIONS if _equals(region, name, e, region.expected)), None)
        if own is None or should is None or own == should:
            continue
        if should == _NOTHING and len(region.nodes) == 1:
            continue  # the node itself is too much, which `extra_at_end` says
        graph = _with_function(region.graph, region.target, name, should)
        kind, text = _kind_and_text(own, name, should)
        yield Rewrite(kind, region.target, text, graph)


def _kind_and_text(own: str, name: str, should: str) -> tuple[Kind, str]:
    if should == _NOTHING:
        return "extra", f"{own} of {name} should not be there"
    if own == _NOTHING:
        return "missing", f"its output lacks {should}"
    same = own.partition(" over ")[0] == should.partition(" over ")[0]  # along another axis
    kind: Kind = "attribute" if same else "operator"
    return kind, f"it computes {own} of {name} and should compute {should}"


def _equals(region: Region, given: str, function: str, values: np.ndarray) -> bool:
    target = "//activation"
    built = built_from(given, target, FUNCTIONS[function])
    found = _computed(region.graph.with_nodes(built.nodes, built.constants), target, region)
    return found is not None and relative_error(found, values) <= EQUAL


def _computed(graph: Graph, target: str, region: Region) -> np.ndarray | None:
    try:
        return graph.run([target], region.feeds)[target]
    except (PieceFailedError, KeyError):
        return None


def _with_function(graph: Graph, target: str, given: str, function: str) -> Graph:
    """Return the graph in which a value is a function of another, regardless of its previous
    computation.
    """
    built = built_from(given, target, FUNCTIONS[function])
    built.nodes[-1].name = label(graph.nodes[graph.producers[target]])
    return recomputed(graph, target, built)
