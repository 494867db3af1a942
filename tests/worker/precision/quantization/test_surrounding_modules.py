"""What has to stay in float32 with a module, and whose error an activation's rounding is."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from convkit.protocol.messages import Quantization
from convkit.worker.graph.node_origins import MODULE_KEY
from convkit.worker.precision.quantization.module_sensitivity import (
    sensitivity,
    sensitivity_finding,
)
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.surrounding_modules import surrounding

MODULES = ("depth", "act", "point", "last")
FEEDS = {"x": np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype(np.float32)}


def uneven(path: Path) -> Path:
    """Write a depthwise convolution whose channels differ by six orders of magnitude, and a
    pointwise one that evens them out.
    """
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    g (float[1,8,6,6] x) => (float[1,4,6,6] y) {
        d = Conv <group = 8, pads = [1,1,1,1]> (x, depth)
        r = Relu (d)
        p = Conv (r, point)
        y = Relu (p)
    }""")
    values, sizes = np.random.default_rng(1), np.logspace(-3, 3, 8).astype(np.float32)
    depth = values.uniform(0.5, 1, (8, 1, 3, 3)).astype(np.float32) * sizes[:, None, None, None]
    point = values.uniform(0.5, 1, (4, 8, 1, 1)).astype(np.float32) / sizes[None, :, None, None]
    for name, array in (("depth", depth), ("point", point)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for node, module in zip(model.graph.node, MODULES, strict=True):
        node.metadata_props.add(key=MODULE_KEY, value=module)
        node.name = module
    onnx.save(model, path)
    return path


def test_the_layers_on_both_sides_of_an_activation_surround_it(tmp_path: Path) -> None:
    model = ir.load(uneven(tmp_path / "uneven.onnx"))
    assert surrounding(model, ["act"]) == ["depth", "point"]
    assert surrounding(model, ["depth"]) == []
    assert surrounding(model, ["point"]) == ["depth", "act"]


def test_rounding_is_the_cost_of_the_module_that_makes_the_tensor(tmp_path: Path) -> None:
    """The quantizer drops a Relu before a rounding whose lower end is 0. What the join takes has to
    be cut off there, or the Relu behind it would seem the worst.
    """
    source = uneven(tmp_path / "uneven.onnx")
    quantization, quantized = Quantization("static-int8"), tmp_path / "quantized.onnx"
    quantize_file(source, quantized, quantization, [FEEDS])
    found = sensitivity(source, quantized, [FEEDS])
    assert found.modules[0].module == "act"
    finding = sensitivity_finding(found, quantization)
    assert finding is not None
    assert finding.evidence["with_surrounding"] == ["act", "depth", "point"]

    def error(kept: tuple[str, ...]) -> float:
        quantize_file(source, quantized, quantization.keeping(kept), [FEEDS])
        return sensitivity(source, quantized, [FEEDS]).output_error

    assert error(("act",)) > 0.1
    assert error(("act", "depth", "point")) < 0.02
