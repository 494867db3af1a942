"""TensorRT-RTX: engines for NVIDIA's consumer and workstation GPUs, built without a GPU."""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

_RELEASES = ToolDefault(">=1.4,<2", "the releases whose parser and builder convkit was tried with")

RUNTIME = Runtime(
    name="tensorrt-rtx",
    nicknames=("rtx", "trt-rtx", "tensorrt_rtx"),
    package="convkit.runtimes.tensorrt_rtx",
    target="target:RtxTarget",
    options="options:RtxOptions",
    jobs={
        "precision": "convkit.worker.stages.graph_precision",
        "build": "build",
        "verify": "verify",
        "bench": "bench",
    },
    session=None,
    suffix=".engine",
    preload={"precision": ("onnx_ir",)},
    tools=("tensorrt-rtx-cu12-libs", "tensorrt-rtx-cu12-bindings"),
    defaults={"tensorrt-rtx-cu12-libs": _RELEASES, "tensorrt-rtx-cu12-bindings": _RELEASES},
    checks="machine:checks",
)
