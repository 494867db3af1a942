"""Replaces the random numbers that a graph draws by fixed ones, so that two runs can be compared.

Every element takes one of 4,093 quantiles of its distribution. Which one follows from the element's
place in the tensor and the node's output, in whole numbers alone: every runtime, and every
precision, takes the same.
"""

import contextlib
import itertools
import statistics
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError

if TYPE_CHECKING:
    import onnx_ir as ir

# What is replaced. Multinomial is not: which of its classes it draws depends on all elements.
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli"}
)
# How many quantiles there are: the largest prime whose square fits 24 bits, because some runtimes
# compute whole numbers in float32. Fifth powers permute the numbers below it, as five does not
# divide the prime less one.
_PRIME = 4093
_FACTORS = (2718, 1414)  # primitive roots of it
# The first opset with Range.
_OLDEST_OPSET = 11
_ALLOWS_ZERO = 14  # Reshape's attribute
_CAST_LIKE = 15
# A file is written in one piece.
_MOST_BYTES = 2**31 - 2**20


@contextlib.contextmanager
def given_file(source: Source) -> Iterator[Path]:
    """Yield a source's file: a copy with fixed numbers in place of random ones if the source asks
    for that, which is gone afterwards. Raises StageFailedError if that cannot be done.
    """
    assert source.path is not None
    if source.random is None:
        yield Path(source.path)
        return
    with fixed_copy(Path(source.path)) as copy:
        yield copy


@contextlib.contextmanager
def fixed_copy(path: Path) -> Iterator[Path]:
    """Yield a copy of a file with fixed numbers in place of random ones, in a folder of its own
    that is removed afterwards; raises StageFailedError.
    """
    model = onnx.load(path)
    if not fix_random(model):
        raise StageFailedError(
            f"model.random: {path.name} has no node that draws random numbers; remove the key"
        )
    if model.ByteSize() > _MOST_BYTES:
        raise StageFailedError(f"model.random: {path.name} is larger than 2 GB, which is too large")
    with tempfile.TemporaryDirectory(prefix="convkit-fixed-") as folder:
        copy = Path(folder) / path.name
        onnx.save(model, copy)
        yield copy


def random_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return a model's nodes that draw random numbers, in bodies and functions too."""
    return [node for nodes in _lists(model) for node in nodes if _draws(node)]


def can_fix(model: "ir.Model") -> bool:
    """Return True if a model draws random numbers that can be replaced."""
    nodes = (
        *model.graph.all_nodes(),
        *(n for f in model.functions.values() for n in f.all_nodes()),
    )
    return any(map(_draws, nodes)) and (model.opset_imports.get("") or 0) >= _OLDEST_OPSET


def random_finding(nodes: Sequence[onnx.NodeProto]) -> Finding:
    """Return N303 for a file whose nodes draw random numbers."""
    first = nodes[0]
    name = first.name or first.output[0]
    more = f", and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return Finding(
        "N303",
        "the original model returns different outputs when it runs again on the same inputs:"
        f" {first.op_type} {name} draws random values{more}. No conversion can match it",
        Place(node=name),
        {"change": "random", "operator": first.op_type},
        Remedy(
            "Set random: fixed under model: the same numbers then take the place of the random ones"
            " in every run, in the original and in what is built. Or make the noise an input.",
            {"model.random": "fixed"},
        ),
        severity="error",
    )


def fix_random(model: onnx.ModelProto) -> bool:
    """Replace what a model draws at random, in place; return False if it draws nothing. Raises
    StageFailedError.
    """
    if not random_nodes(model):
        return False
    opset = max(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    if opset < _OLDEST_OPSET:
        raise StageFailedError(
            f"model.random: the file has opset {opset}, and fixed numbers need"
            f" {_OLDEST_OPSET}: convert it with onnx.version_converter first"
        )
    for nodes in reversed(list(_lists(model))):  # bodies before the nodes that hold them
        replaced = [
            new for node in nodes for new in (_fixed(node, opset) if _draws(node) else [node])
        ]
        del nodes[:]
        nodes.extend(replaced)
    return True


def _draws(node: "onnx.NodeProto | ir.Node") -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in RANDOM


def _lists(model: onnx.ModelProto) -> Iterator[Any]:
    """Yield every list of nodes of a model."""
    yield from _bodies(model.graph.node)
    for function in model.functions:
        yield from _bodies(function.node)


def _bodies(nodes: Iterable[onnx.NodeProto]) -> Iterator[Any]:
    yield nodes
    for node in nodes:
        for attribute in node.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _bodies(graph.node)


def _fixed(node: onnx.NodeProto, opset: int) -> list[onnx.NodeProto]:
    """Return the nodes that take a random node's place."""
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return _Replacement(node, given, opset).nodes()


class _Replacement:
    """The nodes in place of one that draws random numbers."""

    def __init__(self, node: onnx.NodeProto, given: dict[str, Any], opset: int) -> None:
        self._node, self._given, self._opset = node, given, opset
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = itertools.count()

    def nodes(self) -> list[onnx.NodeProto]:
        """Return them; the last has the node's output."""
        node = self._node
        like = node.input[0] if node.input else None
        if like is not None:
            shape = self._add("Shape", [like])
        else:
            shape = self._constant(np.array(self._given["shape"], np.int64))
        zero = {"allowzero": 1} if self._opset >= _ALLOWS_ZERO else {}
        drawn = self._add("Reshape", [self._elements(shape), shape], "", **zero)
        if node.op_type == "Bernoulli":
            assert like is not None
            chance = self._add("Cast", [like], to=TensorProto.FLOAT)
            drawn = self._add("Less", [drawn, chance])
        self._result(drawn, like)
        return self._nodes

    def _elements(self, shape: str) -> str:
        """Return one quantile per element."""
        zero, one = self._whole(0), self._whole(1)
        count = self._add("ReduceProd", [shape], keepdims=0)
        place = self._add("Range", [zero, count, one])
        seed = zlib.crc32(self._node.output[0].encode()) % _PRIME
        within = self._rest_of(place)
        block = self._rest_of(self._add("Div", [place, self._whole(_PRIME)]))
        # In every block of as many elements as there are quantiles, each is taken once, in an order
        # of the block's own: the multiples of a number, from some place on.
        own = self._fifth_power(self._rest("Add", self._rest("Mul", block, _FACTORS[0]), seed))
        step = self._add("Add", [self._add("Mod", [own, self._whole(_PRIME - 1)]), self._whole(1)])
        begin = self._fifth_power(self._rest("Add", self._rest("Mul", own, _FACTORS[1]), 1))
        multiple = self._rest_of(self._add("Mul", [within, step]))
        mixed = self._fifth_power(self._rest_of(self._add("Add", [multiple, begin])))
        mixed = self._fifth_power(self._rest("Add", mixed, seed))
        return self._add("Gather", [self._constant(self._quantiles()), mixed])

    def _fifth_power(self, number: str) -> str:
        square = self._rest_of(self._add("Mul", [number, number]))
        fourth = self._rest_of(self._add("Mul", [square, square]))
        return self._rest_of(self._add("Mul", [fourth, number]))

    def _quantiles(self) -> np.ndarray:
        middles = (np.arange(_PRIME) + 0.5) / _PRIME
        if "Normal" in self._node.op_type:
            usual = statistics.NormalDist()
            quantiles = np.array([usual.inv_cdf(float(each)) for each in middles])
            mean, scale = self._given.get("mean", 0.0), self._given.get("scale", 1.0)
            return (mean + scale * quantiles).astype(np.float32)
        low, high = self._given.get("low", 0.0), self._given.get("high", 1.0)
        return (low + (high - low) * middles).astype(np.float32)

    def _result(self, drawn: str, like: str | None) -> None:
        """Give the drawn numbers the type, and the name, of the node's output."""
        output = self._node.output[0]
        if (dtype := self._given.get("dtype")) is not None or like is None:
            self._add("Cast", [drawn], output, to=dtype or TensorProto.FLOAT)
        elif self._opset >= _CAST_LIKE:
            self._add("CastLike", [drawn, like], output)
        else:  # older files are in float32, as a rule
            self._add("Cast", [drawn], output, to=TensorProto.FLOAT)

    def _rest(self, operator: str, one: str, other: int) -> str:
        return self._rest_of(self._add(operator, [one, self._whole(other)]))

    def _rest_of(self, number: str) -> str:
        return self._add("Mod", [number, self._whole(_PRIME)])

    def _whole(self, number: int) -> str:
        return self._constant(np.array(number, np.int64))

    def _constant(self, value: np.ndarray) -> str:
        name = self._name()
        self._nodes.append(
            helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(value))
        )
        return name

    def _add(self, operator: str, inputs: list[str], output: str = "", **attributes: int) -> str:
        name = self._name()
        self._nodes.append(helper.make_node(operator, inputs, [output or name], name, **attributes))
        return output or name

    def _name(self) -> str:
        return f"{self._node.name or self._node.output[0]}/fixed_{next(self._numbers)}"
