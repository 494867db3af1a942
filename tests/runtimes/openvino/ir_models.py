"""Small models and their IRs, for the tests of OpenVINO."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from small_graphs import save, tensor
from stage_requests import build_request

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import ReferenceRequest, Sample, Source
from convkit.runtimes.openvino import build, verify
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.operator_probes import graph_operators
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.distinct_operators import write_operators
from convkit.worker.stages import reference

HEADER = '<ir_version: 9, opset_import: ["" : 18]>\n'
# Two products with weights; nodes are in modules, so that a plan can keep one in float32.
DENSE = Contract(
    inputs=(tensor("x", shape=("batch", 64)), tensor("z", shape=("batch", 64))),
    outputs=(tensor("y", shape=("batch", 64)),),
    axes=(Axis("batch", 1, 4, 8),),
)
SAMPLES = {"x": Sample("normal", (0.0, 1.0)), "z": Sample("normal", (0.0, 1.0))}


def dense(folder: Path, *, swapped: bool = False, scale: float = 0.125) -> Path:
    """Write `y = relu(x @ W) @ V + z`, or the same with x and z exchanged, with its operators."""
    x, z = ("z", "x") if swapped else ("x", "z")
    text = (
        f"{HEADER}g (float[batch,64] x, float[batch,64] z) => (float[batch,64] y) {{"
        f" a = MatMul({x}, W) r = Relu(a) b = MatMul(r, V) y = Add(b, {z}) }}"
    )
    file = save(folder, text, carries=DENSE)
    model = onnx.load(file)
    generator = np.random.default_rng(0)
    for name in ("W", "V"):
        weight = (generator.normal(size=(64, 64)) * scale).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    modules = {"a": "first", "r": "first", "b": "second", "y": ""}
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
        entry = node.metadata_props.add()
        path = modules[node.output[0]]
        entry.key = "pkg.torch.onnx.name_scopes"
        entry.value = str(["", path, node.name] if path else ["", node.name])
    onnx.save(model, file)
    write_operators(graph_operators(load_model(file)), folder)
    return file


def reference_of(tmp_path: Path, model: Path, contract: Contract, samples: dict) -> Path:
    """Run the original on every case; return the reference's folder."""
    output = tmp_path / "reference"
    output.mkdir()
    source = Source("onnx", path=str(model))
    reference.run(ReferenceRequest(source, contract, samples, 0, (), None, ()), Context(output))
    return output


def built(
    tmp_path: Path, model: Path, *, name: str = "built", contract: Contract = DENSE, **request
):
    """Build an IR from a graph; return its folder, the result and the findings."""
    output = tmp_path / name
    output.mkdir()
    asked = build_request(model.parent, contract=contract, options=OpenVINOOptions(), **request)
    result, findings = build.run(asked, Context(output))
    return output, result, findings


def verified(tmp_path: Path, request):
    """Verify a built IR."""
    return verify.run(request, Context(tmp_path))


def kernel_types(session) -> dict[str, str]:
    """Return the element type in which each compiled node runs, by its name (`i8`, `bf16`)."""
    nodes = session._compiled.get_runtime_model().get_ordered_ops()
    known = {node.get_friendly_name(): node.get_rt_info() for node in nodes}
    return {
        name: info["runtimePrecision"].astype(str)
        for name, info in known.items()
        if "runtimePrecision" in info
    }
