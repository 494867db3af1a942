"""ExecuTorch: programs for phones and microcontrollers, run here by XNNPACK on the CPU."""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="executorch",
    package="convkit_executorch",
    target="target:ExecuTorchTarget",
    options="options:ExecuTorchOptions",
    jobs={
        "precision": "convkit.worker.stages.graph_precision",
        "build": "build",
        "verify": "verify",
    },
    session="session:open_built",
    suffix=".pte",
    tools=("executorch",),
    defaults={"executorch": ToolDefault("==1.5.*", "the release that the tests run")},
)
