"""Makes the channels that share a scale alike, before a graph is quantized: `equalize`.

Activations have one scale for all channels. Where those of one are far larger than those of others,
8 bits hold nothing of the others. A quantized model's metadata has the channels that were scaled:
so the float32 graph that it was made from can be had from the exported one.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import Quantization
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import add_constant, all_names, free_name
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.precision.quantization.node_selection import select
from convkit.worker.precision.quantization.preparation import prepare_model, weight
from convkit.worker.precision.quantization.scalable_channels import (
    ScalableChannels,
    ScaledConstant,
    scalable_channels,
)
from convkit.worker.precision.temporary_session import TemporarySession
from convkit.worker.precision.threads import threads

Feeds = Mapping[str, np.ndarray]
# By tensor, the exponents of two that its channels are divided by.
Exponents = Mapping[str, Sequence[int]]

_MOST = 32  # Larger exponents could leave float32's range.
METADATA_KEY = "convkit.equalized"
_AXES_ARE_INPUTS = 18  # the opset since which ReduceMax has them as an input


def equalizing_exponents(
    source: Path, quantization: Quantization, feeds: Iterable[Feeds]
) -> dict[str, list[int]]:
    """Return what makes the channels of a graph alike that are to be quantized; empty if none are
    uneven.

    A channel whose largest magnitude is a, and whose weights' is w, is divided by sqrt(a / w),
    which leaves both at sqrt(a * w) (Xiao et al. 2022, equation 4 with alpha = 0.5). Factors are
    powers of two, so that in float32 not a digit changes. Channels that are always zero, in
    `feeds` or in the weights, keep their scale.
    """
    model, _ = prepare_model(source)
    chosen = {one.node for one in select(model, quantization).chosen}
    found = [
        one
        for one in scalable_channels(model)
        if any(consumer.weight.node in chosen for consumer in one.consumers)
    ]
    peaks = _channel_peaks(source, found, feeds) if found else {}
    exponents = {}
    for one in found:
        name = one.tensor.name or ""
        each = _exponents(one, peaks[name])
        if each.any():
            exponents[name] = [int(number) for number in each]
    return exponents


@contextlib.contextmanager
def equalized_file(source: Path, exponents: Exponents) -> Iterator[Path]:
    """Provide a graph whose channels are scaled; the same file if none are. Valid inside the
    block.
    """
    if not exponents:
        yield source
        return
    model, _ = prepare_model(source)
    names = all_names(model)
    for one in list(scalable_channels(model)):
        if (given := exponents.get(one.tensor.name or "")) is not None:
            powers = np.array(given, np.int32)
            for maker in one.makers:
                _scale(maker, np.ldexp(np.float32(1), -powers), names)
            for consumer in one.consumers:
                _scale(consumer.weight, np.ldexp(np.float32(1), powers), names)
    model.metadata_props[METADATA_KEY] = json.dumps(dict(exponents), separators=(",", ":"))
    with tempfile.TemporaryDirectory(prefix="convkit-equalized-") as folder:
        path = Path(folder) / source.name
        save_model(model, path)
        yield path


def exponents_of(quantized: Path) -> Exponents:
    """Return what scaled the channels of the graph that a model was quantized from."""
    given: Exponents = json.loads(load_model(quantized).metadata_props.get(METADATA_KEY, "{}"))
    return given


def equalized_finding(exponents: Exponents) -> Finding:
    """Return Q113: which channels were scaled, and by how much at most."""
    if not exponents:
        return Finding(
            "Q113",
            "equalize changes nothing: no channels that share a scale are uneven where they could"
            " be scaled",
            Place(),
            {"tensors": {}},
        )
    spread = {name: 2.0 ** (max(each) - min(each)) for name, each in exponents.items()}
    widest = max(spread, key=lambda name: spread[name])
    count = len(exponents)
    return Finding(
        "Q113",
        f"the channels of {count} tensor{'s' if count > 1 else ''} were scaled to share a scale,"
        f" those of {widest} by factors up to {spread[widest]:g} apart; in float32, the graph"
        " computes the same",
        Place(tensor=widest),
        {"tensors": dict(sorted(spread.items()))},
    )


def _exponents(one: ScalableChannels, activations: np.ndarray) -> np.ndarray:
    """Return the factors' exponents [channels], around zero in the mean."""
    weights = np.zeros(one.channels)
    for consumer in one.consumers:
        weights = np.maximum(weights, _weight_peaks(consumer.weight, one.channels))
    live = (activations > 0) & (weights > 0) & np.isfinite(activations)
    exponents = np.zeros(one.channels)
    if live.any():
        wanted = np.log2(activations[live] / weights[live]) / 2
        exponents[live] = np.clip(np.round(wanted - wanted.mean()), -_MOST, _MOST)
    return exponents.astype(np.int32)


def _weight_peaks(one: ScaledConstant, channels: int) -> np.ndarray:
    """Return the largest magnitude of a weight for each channel that it consumes."""
    values = np.abs(_values(one))
    if one.groups > 1:
        by_group = values.reshape(one.groups, len(values) // one.groups, values.shape[1], -1)
        return np.asarray(by_group.max(axis=(1, 3)).reshape(channels), np.float64)
    return np.asarray(
        np.moveaxis(values, one.axis, 0).reshape(channels, -1).max(axis=1), np.float64
    )


def _values(one: ScaledConstant) -> np.ndarray:
    tensor = weight(one.node.inputs[one.index])
    assert tensor is not None
    return tensor.numpy()


def _scale(one: ScaledConstant, factors: np.ndarray, names: set[str | None]) -> None:
    """Give a node a scaled constant: its own, if others read the same."""
    value = one.node.inputs[one.index]
    assert value is not None
    assert value.name is not None
    scaled = one.scaled(_values(one), factors)
    graph = one.node.graph
    assert graph is not None
    if len(value.uses()) == 1:
        value.const_value = ir.Tensor(scaled, name=value.name)
        value.shape = ir.Shape(scaled.shape)
    else:
        own = add_constant(graph, free_name(f"{value.name}.equalized", names), scaled)
        one.node.replace_input_with(one.index, own)


def _channel_peaks(
    source: Path, found: Sequence[ScalableChannels], feeds: Iterable[Feeds]
) -> dict[str, np.ndarray]:
    """Return, by tensor, the largest magnitude of each channel where products read it."""
    peaks = {one.tensor.name or "": np.zeros(one.channels) for one in found}
    model, _ = prepare_model(source)
    values = {value.name: value for node in model.graph for value in node.outputs}
    reduced: dict[str, str] = {}  # an output, the tensor whose channels it measures
    names = all_names(model)
    for one in found:
        for tensor, axis in {(each.tensor.name, each.axis) for each in one.consumers}:
            output = _add_peaks(model, values[tensor], axis, names)
            reduced[output] = one.tensor.name or ""
    with _Peaks(model, threads()) as session:
        for each in feeds:
            for output, numbers in session.run(each, list(reduced)).items():
                known = peaks[reduced[output]]
                np.maximum(known, numbers, out=known)
    return peaks


class _Peaks(TemporarySession):
    """A graph with the peaks of channels as further outputs."""

    def run(self, feeds: Feeds, outputs: Sequence[str]) -> dict[str, np.ndarray]:
        return dict(zip(outputs, run_outputs(self._session, outputs, feeds), strict=True))


def _add_peaks(model: ir.Model, value: ir.Value, axis: int, names: set[str | None]) -> str:
    """Add an output with the largest magnitude of each channel; return its name."""
    assert value.shape is not None
    graph = model.graph
    others = [each for each in range(len(value.shape)) if each != axis]
    magnitude = ir.Value(name=free_name("convkit.magnitude", names), type=value.type)
    largest = ir.Value(name=free_name("convkit.largest", names), type=value.type)
    inputs, attributes = [magnitude], [ir.AttrInt64("keepdims", 0)]
    if model.opset_imports.get("", 0) < _AXES_ARE_INPUTS:
        attributes.append(ir.AttrInt64s("axes", others))
    else:
        axes = np.array(others, np.int64)
        inputs.append(add_constant(graph, free_name("convkit.axes", names), axes))
    largest.shape = ir.Shape([value.shape[axis]])
    graph.extend(
        [
            ir.Node("", "Abs", [value], outputs=[magnitude]),
            ir.Node("", "ReduceMax", inputs, attributes, outputs=[largest]),
        ]
    )
    graph.outputs.append(largest)
    return largest.name or ""
