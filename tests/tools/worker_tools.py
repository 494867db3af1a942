"""What the workers of the tests' fork servers have imported before they start.

More than what a stage always imports, so five servers do for all jobs: importing onnx_ir costs a
worker half a second, the exporter and transformers four seconds, coremltools three. Stages
therefore report versions of packages that they did not use; tests of these reports use fork servers
of their own, which import what convkit's own do.
"""

from importlib.util import find_spec

from convkit.protocol.messages import Envelope

# convkit's own modules, which cost a worker 30 ms.
_STAGES = (
    "convkit.worker.stages.graph_precision",
    "convkit.worker.stages.graph_build",
    "convkit.worker.stages.graph_verify",
    "convkit.runtimes.onnxruntime.build",
    "convkit.runtimes.onnxruntime.verify",
)
_GRAPH = ("onnx_ir", "onnxruntime", *_STAGES)
_TORCH = (
    "torch",
    "onnxruntime",
    "onnx_ir",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
    # Called once, these leave behind what every export would compute: 0.5 s.
    "onnxscript._framework_apis.torch_2_5:get_torchlib_ops",
    "torch._export.utils:_collect_all_valid_cia_ops",
    "torch.export._trace",
    "transformers.modeling_utils",
    *(
        "convkit.worker.stages.export",
        "convkit.worker.stages.reference",
        "convkit.worker.stages.diagnose",
    ),
)
_COREML = "convkit.worker.mil.coremltools_import:load_library"
for _name in (*_GRAPH, *_TORCH, _COREML):
    # A server that cannot import one of them leaves all of its workers to fresh processes.
    assert not _name.startswith("convkit.") or find_spec(_name.partition(":")[0]), _name


def usual_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return the tools that most workers with this job import."""
    request = envelope.request if isinstance(envelope.request, dict) else {}
    original = request.get("original")
    source = (original if isinstance(original, dict) else request).get("source")
    kind = source.get("kind") if isinstance(source, dict) else None
    if envelope.runtime == "convkit.runtimes.coreml":
        # coremltools looks for transformers, so the order must be that of a stage: models other
        # than factories have imported transformers by then, and a verification loads no model.
        loads_transformers = kind not in (None, "factory") and envelope.job != "verify"
        return (*_TORCH, _COREML) if loads_transformers else ("torch", "torch._dynamo", _COREML)
    if envelope.runtime is None and kind not in (None, "onnx"):
        return _TORCH
    return (*_GRAPH, "openvino") if envelope.runtime == "convkit.runtimes.openvino" else _GRAPH
