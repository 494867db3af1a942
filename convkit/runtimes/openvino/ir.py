"""Writes OpenVINO's IR so that it is self-contained: every node has a name, the contract is
embedded, and no caller's setting lowers an operator that the plan keeps in float32.
"""

import collections
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.contract import Contract, DType
from convkit.protocol.json_codec import encode
from convkit.runtimes.openvino.corrections import add_corrections
from convkit.worker.runtime_interface.distinct_operators import Operators
from convkit.worker.runtime_interface.sessions import ModelRefusedError

if TYPE_CHECKING:
    import openvino

# The location of convkit's data in the IR's rt_info.
CONTRACT_PATH = ("convkit", "contract")
PRECISION_PATH = ("convkit", "precision")
# Set in IRs that were not built from an exported graph.
MODULE_PATH = ("convkit", "from_module")

# OpenVINO's attribute for operators whose element type no plugin may lower.
_PRECISE = {"name": "precise", "version": "0"}
# These compute nothing: a mark on them would only separate constants from edges.
_UNMARKED = frozenset({"Const", "Parameter", "Result"})


def read_graph(graph: Path, operators: Operators | None = None) -> "openvino.Model":
    """Read an ONNX file, with its `operators` if they are known, or an IR; raises ModelRefusedError
    with OpenVINO's own message.
    """
    import openvino

    core = openvino.Core()
    add_corrections(core, operators)
    try:
        return core.read_model(str(graph))
    except RuntimeError as error:
        raise ModelRefusedError(f"OpenVINO {openvino.__version__}: {error}") from error


def save_ir(
    model: "openvino.Model",
    destination: Path,
    contract: Contract,
    precision: DType,
    *,
    from_module: bool = False,
) -> None:
    """Write `destination` (.xml) and its weights (.bin) next to it, byte-identical in every
    process.

    `precision` is the type in which unmarked operators compute; sessions set it.
    """
    import openvino

    name_nodes(model)
    model.set_rt_info(json.dumps(encode(contract.carried()), sort_keys=True), list(CONTRACT_PATH))
    model.set_rt_info(precision, list(PRECISION_PATH))
    if from_module:
        model.set_rt_info("true", list(MODULE_PATH))
    openvino.save_model(model, str(destination), compress_to_fp16=False)
    _keep_float32(destination)


def name_nodes(model: "openvino.Model") -> None:
    """Name every unnamed node by its type and its number among the unnamed nodes of that type.

    OpenVINO would write `Constant_5293`, which depends on how many nodes the process has created.
    """
    counts: collections.Counter[str] = collections.Counter()
    given = {
        node.get_friendly_name()
        for node in _nodes(model)
        if node.get_friendly_name() != node.get_name()
    }
    for node in _nodes(model):
        if node.get_friendly_name() != node.get_name():
            continue
        kind = node.get_type_name()
        name = f"{kind}.{counts[kind]}"
        while name in given:
            counts[kind] += 1
            name = f"{kind}.{counts[kind]}"
        counts[kind] += 1
        node.set_friendly_name(name)


def _nodes(model: "openvino.Model") -> "Iterator[openvino.Node]":
    """Yield the nodes of a model and of the bodies of its If, Loop and TensorIterator, in order."""
    for node in model.get_ordered_ops():
        yield node
        if node.get_type_name() == "If":
            yield from _nodes(node.get_function(0))
            yield from _nodes(node.get_function(1))
        elif node.get_type_name() in ("Loop", "TensorIterator"):
            yield from _nodes(node.get_function())


def _keep_float32(xml: Path) -> None:
    """Mark every operator with a float32 result: OpenVINO's Python API cannot do this."""
    tree = ET.parse(xml)  # noqa: S314 - OpenVINO has just written it
    for layer in tree.iter("layer"):
        if layer.get("type") in _UNMARKED or not _gives_float32(layer):
            continue
        info = layer.find("rt_info")
        if info is None:
            info = ET.Element("rt_info")
            data = layer.find("data")
            layer.insert(0 if data is None else list(layer).index(data) + 1, info)
        if not any(each.get("name") == _PRECISE["name"] for each in info):
            ET.SubElement(info, "attribute", _PRECISE)
    tree.write(xml, encoding="utf-8", xml_declaration=True)


def _gives_float32(layer: ET.Element) -> bool:
    return any(port.get("precision") == "FP32" for port in layer.findall("output/port"))
