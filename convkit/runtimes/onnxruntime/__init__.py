"""onnxruntime: ONNX graphs on the CPU and on NVIDIA's GPUs."""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="onnxruntime",
    nicknames=("ort",),
    package="convkit.runtimes.onnxruntime",
    target="target:OnnxRuntimeTarget",
    options="options:OnnxRuntimeOptions",
    jobs={
        "precision": "precision",
        "build": "build",
        "verify": "verify",
        "bench": "bench",
        "crash": "crash",
    },
    session="session:open_built",
    reproducer="reproducer",
    suffix=".onnx",
    loads_custom_ops=True,
    variables={"ORT_DISABLE_TELEMETRY": "1"},  # on by default since 1.29
    preload={"precision": ("onnx_ir",)},
    tools=("onnxruntime", "onnxruntime-gpu"),
    defaults={
        "onnxruntime-gpu": ToolDefault("==1.31.*", "the same code as onnxruntime, built for CUDA")
    },
)
