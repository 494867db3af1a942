"""TensorRT: engines for one kind of NVIDIA GPU, built strongly typed from the exported graph."""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="tensorrt",
    nicknames=("trt",),
    package="convkit.runtimes.tensorrt",
    target="target:TensorRTTarget",
    options="options:EngineOptions",
    jobs={
        "precision": "convkit.worker.stages.graph_precision",
        "build": "build",
        "verify": "verify",
        "bench": "bench",
    },
    session=None,
    suffix=".engine",
    preload={"precision": ("onnx_ir",)},
    tools=("tensorrt",),
    defaults={
        "tensorrt": ToolDefault(
            ">=10,<12", "the majors whose interface the runtime is checked against"
        ),
        "cuda-python": ToolDefault(
            ">=12.6,<14", "memory and streams, by cuda.bindings.runtime, new in 12.6"
        ),
    },
    checks="machine:checks",
    loads_custom_ops=True,
)
