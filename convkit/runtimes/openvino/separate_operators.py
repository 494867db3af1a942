"""Operators that OpenVINO compiles by themselves, and not in the chain that it fuses them into.

Its CPU plugin picks chains of operators to generate code for by what surrounds them and by the
number of threads, and refuses the whole model where it has no code for one of them (2026.4: Mish
between two products, with one thread). An operator on elements computes the same of a tensor with
all its axes in one, which such chains do not take.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from convkit.worker.runtime_interface.sessions import ModelRefusedError

if TYPE_CHECKING:
    import openvino

# Operators that compute each element from that element alone, if all they read besides are single
# numbers.
_ON_ELEMENTS = frozenset(
    {
        *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceiling", "Clamp", "Cos"),
        *("Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HSigmoid", "HSwish", "HardSigmoid", "Log"),
        *("Mish", "Negative", "PRelu", "ReLU", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
        *("Sinh", "SoftPlus", "SoftSign", "Sqrt", "Swish", "Tan", "Tanh"),
    }
)
# Kinds that are separated at once, and seconds for the search.
_MOST, _SECONDS = 4, 60.0
_ALL_ELEMENTS = np.array([-1], np.int64)


def separable(model: "openvino.Model") -> Counter[str]:
    """Return how many nodes of each kind `separate` can separate."""
    return Counter(node.get_type_name() for node in _separable_nodes(model))


def separate(model: "openvino.Model", kinds: Collection[str]) -> None:
    """Let every node of these kinds compute on a tensor with all axes in one."""
    from openvino import opset13 as ops

    for node in list(_separable_nodes(model)):
        if node.get_type_name() not in kinds:
            continue
        given, made = node.input_value(0), node.output(0)
        readers, names = list(made.get_target_inputs()), made.get_tensor().get_names()
        flat = ops.reshape(given, ops.constant(_ALL_ELEMENTS), special_zero=False)
        node.input(0).replace_source_output(flat.output(0))
        node.validate_and_infer_types()
        shaped = ops.reshape(made, ops.shape_of(given), special_zero=False)
        flat.set_friendly_name(f"{node.get_friendly_name()}/flat")
        shaped.set_friendly_name(f"{node.get_friendly_name()}/shaped")
        for reader in readers:
            reader.replace_source_output(shaped.output(0))
        made.get_tensor().set_names(set())
        shaped.output(0).get_tensor().set_names(names)
    model.validate_nodes_and_infer_types()


def kinds_to_separate(
    read: Callable[[], "openvino.Model"],
    compile_model: Callable[["openvino.Model"], object],
    message: str,
) -> tuple[str, ...]:
    """Return the kinds of operators that the runtime must get separately to accept a model that it
    refuses with a message, those that the message names first; empty if that does not help.

    A kind is kept if without it in a chain the model is accepted, or refused for something else.
    """
    deadline = time.monotonic() + _SECONDS
    kinds = sorted(separable(read()), key=lambda kind: (kind not in message, kind))
    chosen: Sequence[str] = ()
    while len(chosen) < _MOST:
        for kind in (each for each in kinds if each not in chosen):
            if time.monotonic() > deadline:
                return ()
            model = read()
            separate(model, (*chosen, kind))
            try:
                compile_model(model)
            except ModelRefusedError as error:
                if str(error) == message:
                    continue
                chosen, message = (*chosen, kind), str(error)
                break
            return (*chosen, kind)
        else:
            return ()
    return ()


def _separable_nodes(model: "openvino.Model") -> "Iterator[openvino.Node]":
    for node in model.get_ordered_ops():
        if node.get_type_name() not in _ON_ELEMENTS or node.get_output_size() != 1:
            continue
        others = [value.get_partial_shape() for value in node.input_values()[1:]]
        if all(each.is_static and np.prod(each.to_shape(), dtype=int) == 1 for each in others):
            yield node
