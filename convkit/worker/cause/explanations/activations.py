"""Complete activations: written out in several nodes, one is recognized by its result."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper

from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, label
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import BEFORE, Rewrite
from convkit.worker.cause.search_types.search_results import Kind

# Takes a value's name, the name to compute and a prefix for intermediate names.
Build = Callable[[str, str, str], tuple[list[onnx.NodeProto], dict[str, np.ndarray]]]


def _single(operator: str, **attributes: object) -> Build:
    return lambda given, made, _: ([helper.make_node(operator, [given], [made], **attributes)], {})


def _numbers(**values: float) -> dict[str, np.ndarray]:
    return {name: np.array(value, np.float32) for name, value in values.items()}


def _steps(*steps: tuple[str, str, str, str], **numbers: float) -> Build:
    """Build from steps `(operator, first, second, made)`: `x` is the input, `y` the output, and
    "" no second input.
    """

    def build(given: str, made: str, prefix: str) -> tuple[list, dict]:
        names = {"x": given, "y": made}

        def name(each: str) -> str:
            return names.get(each, f"{prefix}//{each}")

        nodes = [
            helper.make_node(operator, [name(each) for each in (one, two) if each], [name(out)])
            for operator, one, two, out in steps
        ]
        return nodes, {name(each): array for each, array in _numbers(**numbers).items()}

    return build


_GELU = _steps(
    ("Div", "x", "root", "a"),
    ("Erf", "a", "", "b"),
    ("Add", "b", "one", "c"),
    ("Mul", "x", "c", "d"),
    ("Mul", "d", "half", "y"),
    root=math.sqrt(2),
    one=1.0,
    half=0.5,
)
_GELU_TANH = _steps(
    ("Mul", "x", "x", "a"),
    ("Mul", "a", "x", "b"),
    ("Mul", "b", "cubic", "c"),
    ("Add", "x", "c", "d"),
    ("Mul", "d", "scale", "e"),
    ("Tanh", "e", "", "f"),
    ("Add", "f", "one", "g"),
    ("Mul", "x", "g", "h"),
    ("Mul", "h", "half", "y"),
    cubic=0.044715,
    scale=math.sqrt(2 / math.pi),
    one=1.0,
    half=0.5,
)
_GELU_SIGMOID = _steps(
    ("Mul", "x", "factor", "a"), ("Sigmoid", "a", "", "b"), ("Mul", "x", "b", "y"), factor=1.702
)
_SIXTH = 1 / 6

# The names of activations, and how to compute them. Formulas: torch.nn.functional's reference.
_NOTHING = "its input"
# What changes nothing comes first: on positive values several others do not either.
FUNCTIONS: dict[str, Build] = {
    _NOTHING: _single("Identity"),
    "GELU": _GELU,
    "GELU's tanh approximation": _GELU_TANH,
    "GELU's sigmoid approximation": _GELU_SIGMOID,
    "SiLU": _steps(("Sigmoid", "x", "", "a"), ("Mul", "x", "a", "y")),
    "ReLU": _single("Relu"),
    "ReLU6": _steps(("Max", "x", "low", "a"), ("Min", "a", "high", "y"), low=0.0, high=6.0),
    "Sigmoid": _single("Sigmoid"),
    "Tanh": _single("Tanh"),
    "HardSwish": _steps(
        ("Mul", "x", "sixth", "a"),
        ("Add", "a", "half", "b"),
        ("Max", "b", "low", "c"),
        ("Min", "c", "high", "d"),
        ("Mul", "x", "d", "y"),
        sixth=_SIXTH,
        half=0.5,
        low=0.0,
        high=1.0,
    ),
    "HardSigmoid": _single("HardSigmoid", alpha=_SIXTH, beta=0.5),
    "HardSigmoid of slope 0.2": _single("HardSigmoid", alpha=0.2, beta=0.5),
    "ELU": _single("Elu"),
    "SELU": _single("Selu"),
    "Softplus": _single("Softplus"),
    "Mish": _steps(("Softplus", "x", "", "a"), ("Tanh", "a", "", "b"), ("Mul", "x", "b", "y")),
    "squared ReLU": _steps(("Relu", "x", "", "a"), ("Mul", "a", "a", "y")),
    "LeakyReLU of slope 0.01": _single("LeakyRelu", alpha=0.01),
    "LeakyReLU of slope 0.1": _single("LeakyRelu", alpha=0.1),
    "LeakyReLU of slope 0.2": _single("LeakyRelu", alpha=0.2),
    "the square root": _single("Sqrt"),
    "the square": _steps(("Mul", "x", "x", "y")),
    "the absolute value": _single("Abs"),
    "the floor": _single("Floor"),
    "the ceiling": _single("Ceil"),
    "the nearest whole number": _single("Round"),
    "the whole number nearer to zero": _steps(
        ("Abs", "x", "", "a"),
        ("Floor", "a", "", "b"),
        ("Sign", "x", "", "c"),
        ("Mul", "b", "c", "y"),
    ),
    "softmax over its last axis": _single("Softmax", axis=-1),
    "log-softmax over its last axis": _single("LogSoftmax", axis=-1),
    "softmax over its axis 1": _single("Softmax", axis=1),
    "the exponential": _single("Exp"),
    "the logarithm": _single("Log"),
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
    nodes, constants = FUNCTIONS[function](given, target, target)
    found = _computed(region.graph.with_nodes(nodes, constants), target, region)
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
    index = graph.producers[target]
    node = onnx.NodeProto()
    node.CopyFrom(graph.nodes[index])
    for place, name in enumerate(node.output):
        if name == target:
            node.output[place] = target + BEFORE
    nodes, constants = FUNCTIONS[function](given, target, f"{target}//function")
    nodes[-1].name = label(graph.nodes[index])
    return graph.with_nodes(
        [*graph.nodes[:index], node, *nodes, *graph.nodes[index + 1 :]], constants
    )
