"""Core AI: Apple's successor to Core ML, converted from the model itself and executed for real on
the CPU, on Linux as well.
"""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="coreai",
    package="convkit.runtimes.coreai",
    target="target:CoreAITarget",
    options="options:CoreAIOptions",
    jobs={"precision": "precision", "build": "build", "verify": "verify", "diagnose": "diagnose"},
    session="session:open_built",
    checks="machine:checks",
    suffix=".aimodel",
    is_folder=True,
    executes_beside="coreml",
    pace=2.0,  # each build compiles the program twice
    preload={"precision": ("torch",), "build": ("torch",)},
    tools=("coreai-core", "coreai-torch", "coreai-opt"),
    defaults={
        "coreai-core": ToolDefault("==1.0.0b3", "the release that the tests run"),
        "coreai-torch": ToolDefault("==0.4.3", "the release that the tests run"),
        "coreai-opt": ToolDefault("==0.4.*", "the release that the tests run"),
    },
)
