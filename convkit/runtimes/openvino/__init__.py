"""OpenVINO: its own IR, built from the exported graph, on the CPU."""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="openvino",
    nicknames=("ov",),
    package="convkit.runtimes.openvino",
    target="target:OpenVINOTarget",
    options="options:OpenVINOOptions",
    jobs={
        "precision": "convkit.worker.stages.graph_precision",
        "build": "build",
        "verify": "verify",
        "diagnose": "as_graph.diagnose",
        "bench": "bench",
    },
    session="session:open_built",
    reproducer="reproducer",
    suffix=".xml",
    tools=("openvino",),
    silenced=("openvino_telemetry",),
    defaults={"openvino": ToolDefault("==2026.4.*", "the release that the tests run")},
)
