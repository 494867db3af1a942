"""What every mutation of a graph needs: what it says about itself, and the parts it picks from."""

import dataclasses
import random
from collections.abc import Mapping

import numpy as np
import onnx

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """What was changed: any of `nodes` (names of nodes, values or weights) is the right place, any
    of `kinds` the right name.
    """

    name: str
    nodes: frozenset[str]
    kinds: frozenset[str]


class NothingToMutateError(Exception):
    """The graph has nothing that this mutation could change."""


def pick(chance: random.Random, options: list) -> object:
    if not options:
        raise NothingToMutateError
    return chance.choice(options)


def mutation(name: str, nodes: list[str], *kinds: str) -> Mutation:
    return Mutation(name, frozenset(each for each in nodes if each), frozenset(kinds))


def float_weights(model: onnx.ModelProto, least: int = 4) -> list[onnx.TensorProto]:
    return [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and int(np.prod(tensor.dims)) >= least
    ]


def nodes_of(model: onnx.ModelProto, *types: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in types]


def readers_of(model: onnx.ModelProto, name: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if name in node.input]


def all_names(node: onnx.NodeProto) -> list[str]:
    return [node.name, *node.output]
