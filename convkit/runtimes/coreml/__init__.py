"""Core ML: ML programs, converted from the model itself and judged by an evaluator.

`convkit.worker.mil` evaluates programs; this folder converts them and reads a package's metadata.
"""

from convkit.protocol.runtimes.runtime_row import Runtime, ToolDefault

RUNTIME = Runtime(
    name="coreml",
    package="convkit.runtimes.coreml",
    target="target:CoreMLTarget",
    options="packages.options:ProgramOptions",
    jobs={
        "precision": "precision",
        "build": "build",
        "verify": "verify",
        "inspect": "inspect",
        "compare": "compare",
        "diagnose": "diagnose",
    },
    session="session:open_built",
    checks="machine:checks",
    reproducer="reproducer",
    suffix=".mlpackage",
    pace=2.0,  # programs are evaluated by torch
    is_folder=True,
    # What the other stages make of coremltools depends on what the model has imported before.
    preload={
        "precision": ("torch",),
        "build": ("torch",),
        "verify": ("convkit.worker.mil.coremltools_import:load_library",),
    },
    tools=("coremltools",),
    inspects_with=("coremltools", "torch"),
    defaults={
        "coremltools": ToolDefault(
            "==9.0.*", "the release whose conversions and operations the evaluator is tested with"
        )
    },
)
