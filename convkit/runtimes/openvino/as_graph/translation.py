"""Translates an IR in one case: OpenVINO runs it with every value as an output."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from convkit.runtimes.openvino.as_graph.arithmetic import ARITHMETIC
from convkit.runtimes.openvino.as_graph.arranging import ARRANGING
from convkit.runtimes.openvino.as_graph.layers import LAYERS
from convkit.runtimes.openvino.ir import read_graph
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.session import OpenVINOSession
from convkit.worker.cause.other_formats.source_model import SourceModel
from convkit.worker.cause.other_formats.source_operation import SourceStep, Translation
from convkit.worker.cause.other_formats.translated_model import TranslatedGraph, translate

if TYPE_CHECKING:
    import openvino

TRANSLATIONS: dict[str, Translation] = {**ARITHMETIC, **ARRANGING, **LAYERS}

# Element types that numpy has.
_READABLE = frozenset(
    {"boolean", "f16", "f32", "f64"} | {f"{s}{b}" for s in "iu" for b in (8, 16, 32, 64)}
)
# Before the number of a value, to have it by name.
_VALUE = "convkit_value:"


def as_graph(
    path: Path, feeds: Mapping[str, np.ndarray], outputs: Collection[str]
) -> TranslatedGraph | None:
    """Translate an IR for one case; None if the graph does not compute what the IR does.

    `feeds` and `outputs` are by the IR's own names. Raises RunFailedError, ModelRefusedError.
    """
    model = read_graph(path)
    reading = _Reading(model, feeds, outputs)
    reading.run(model, feeds)
    steps = list(reading.steps())
    if not reading.is_complete:
        return None
    source = SourceModel(
        steps, tuple(reading.inputs), tuple(reading.outputs), reading.constants, reading.values
    )
    return translate(source, TRANSLATIONS)


class _Reading:
    """An IR's nodes, and the names and values of what they compute.

    A value is named after its node, those of inputs and outputs as callers know them.
    """

    def __init__(
        self, model: "openvino.Model", feeds: Collection[str], outputs: Collection[str]
    ) -> None:
        self._nodes = model.get_ordered_ops()
        self.inputs = [_known(port.get_names(), feeds) for port in model.inputs]
        self.outputs = [_known(port.get_names(), outputs) for port in model.outputs]
        self._names: dict[tuple[str, int], str] = {}
        # Outputs that are inputs, constants or other outputs: what computes them.
        self._copies: dict[str, openvino.Output] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}
        self.is_complete = True
        # The whole numbers, and their zero points, that stored floats were computed from.
        self._numbers: dict[str, tuple[str, ...]] = {}
        self._name_values(model)

    def _name_values(self, model: "openvino.Model") -> None:
        for port, name in zip(model.inputs, self.inputs, strict=True):
            self._names[_key(port)] = name
        for result, name in zip(model.outputs, self.outputs, strict=True):
            source = result.get_node().input_value(0)
            if _key(source) in self._names or source.get_node().get_type_name() == "Constant":
                self._copies[name] = source
            else:
                self._names[_key(source)] = name
        taken = {*self._names.values(), *self.outputs}
        for node in self._nodes:
            called = node.get_friendly_name()
            for port in node.outputs():
                name = f"{called}.{port.get_index()}" if port.get_index() else called
                while name in taken and _key(port) not in self._names:
                    name += "_"
                self._names.setdefault(_key(port), name)
                taken.add(self._names[_key(port)])

    def run(self, model: "openvino.Model", feeds: Mapping[str, np.ndarray]) -> None:
        """Run the IR, and keep what every node computes."""
        wanted = {name: name for name in self.outputs}
        for number, port in enumerate(self._computed()):
            if self._names[_key(port)] not in wanted:
                wanted[f"{_VALUE}{number}"] = self._names[_key(port)]
                port.get_tensor().add_names({f"{_VALUE}{number}"})
                model.add_outputs([port])
        session = OpenVINOSession(model, OpenVINOOptions(), known=[*wanted, *self.inputs])
        found = session.run(feeds)
        for names in session.names_of_outputs():
            array = next(_plain(found[name]) for name in names if name in found)
            self.values |= {wanted[name]: array for name in names if name in wanted}
        self.values |= {name: _plain(array) for name, array in feeds.items()}
        for port in self._computed():
            if not self._fits(port):
                self._evaluate(port)

    def _fits(self, port: "openvino.Output") -> bool:
        """Say whether a value is known, and of a shape that it can have: where OpenVINO compiles
        several nodes to one (a partial rotary embedding and its concatenation), it returns the
        last one's value for each of them.
        """
        import openvino

        array = self.values.get(self._names[_key(port)])
        shape = port.get_partial_shape()
        return array is not None and shape.compatible(openvino.PartialShape(list(array.shape)))

    def _evaluate(self, port: "openvino.Output") -> None:
        """Compute a node's only value from what it reads, by OpenVINO's reference for it."""
        import openvino

        node, name = port.get_node(), self._names[_key(port)]
        self.values.pop(name, None)
        read = [self._value(each) for each in node.input_values()]
        result = openvino.Tensor(port.get_element_type(), openvino.Shape([]))
        known = [openvino.Tensor(np.ascontiguousarray(each)) for each in read if each is not None]
        if len(known) == len(read) and len(node.outputs()) == 1 and node.evaluate([result], known):
            self.values[name] = _plain(np.array(result.data))

    def _value(self, port: "openvino.Output") -> np.ndarray | None:
        node = port.get_node()
        if node.get_type_name() == "Constant":
            return np.array(node.data)
        return self.values.get(self._names[_key(port)])

    def _computed(self) -> Iterator["openvino.Output"]:
        for node in self._nodes:
            if node.get_type_name() not in ("Constant", "Parameter", "Result"):
                for port in node.outputs():
                    if port.get_element_type().get_type_name() in _READABLE:
                        yield port

    def steps(self) -> Iterator[SourceStep]:
        """Yield the nodes that compute something; what is read of constants becomes one."""
        for node in self._nodes:
            kind = node.get_type_name()
            if kind == "Constant":
                if node.get_element_type().get_type_name() in _READABLE:
                    self.constants[self._names[_key(node.output(0))]] = _plain(np.array(node.data))
            elif kind not in ("Parameter", "Result"):
                yield from self._step(node, kind)
        for name, port in self._copies.items():
            of = self._names[_key(port)]
            self.values[name] = self.constants[of] if of in self.constants else self.values[of]
            yield SourceStep("Identity", (name,), {"x0": of}, {})

    def _step(self, node: "openvino.Node", kind: str) -> Iterator[SourceStep]:
        results = tuple(self._names[_key(port)] for port in node.outputs())
        read = [self._names[_key(port)] for port in node.input_values()]
        stored = all(name in self.constants for name in read)
        unread = any(name not in self.constants and name not in self.values for name in read)
        if results[0] not in self.values:
            self.is_complete &= not node.outputs() or unread
            return
        if read and ((kind == "Convert" and stored) or unread):
            # A weight in another type, such as one that is kept in float16.
            if not unread and self.constants[read[0]].dtype.kind in "iu":
                self._numbers[results[0]] = (read[0],)
            self.constants |= {n: self.values.pop(n) for n in results if n in self.values}
            return
        kind, read = self._quantized(kind, results[0], read)
        arguments: dict[str, str | tuple[str, ...]] = {
            f"x{place}": name for place, name in enumerate(read)
        }
        yield SourceStep(kind, results, arguments, _settings(node), of_sizes=kind == "ShapeOf")

    def _quantized(self, kind: str, result: str, read: list[str]) -> tuple[str, list[str]]:
        """Return a product of stored whole numbers, less a zero point, and a scale as what it is:
        numbers, scale and zero point.
        """
        numbers = self._numbers.get(read[0]) if len(read) == 2 else None
        if numbers is None or read[1] not in self.constants:
            return kind, read
        if kind == "Subtract" and len(numbers) == 1:
            self._numbers[result] = (*numbers, read[1])
        if kind != "Multiply":
            return kind, read
        return "Dequantize", [numbers[0], read[1], *numbers[1:]]


def _key(port: Any) -> tuple[str, int]:  # noqa: ANN401 - any of OpenVINO's kinds of outputs
    return port.get_node().get_name(), port.get_index()


def _known(names: Collection[str], wanted: Collection[str]) -> str:
    return next((name for name in wanted if name in names), min(names))


def _settings(node: "openvino.Node") -> dict[str, Any]:
    return dict(node.get_attributes())


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else np.array(array)
