"""Models that somebody else built: verified as they are, by the library that runs their format."""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="given",
    package="convkit.runtimes.given",
    target="target:GivenTarget",
    options="options:GivenOptions",
    jobs={
        "precision": "convkit.worker.stages.graph_precision",
        "build": "build",
        "verify": "verify",
        "diagnose": "diagnose",
    },
    session=None,  # without convkit's contract in it, its inputs could only be guessed
    suffix=".tflite",
    tools=("ai-edge-litert", "openvino", "coremltools", "onnxruntime"),
    defaults={"ai-edge-litert": ToolDefault("==2.3.*", "the release that the tests run")},
)
