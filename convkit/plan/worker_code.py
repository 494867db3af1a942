"""Which of convkit's own code runs in each stage: a part of the stage's key."""

from convkit.worker.protocol import JobKind

_EVERY_STAGE = (
    "codec.py",
    "tensors.py",
    "findings/model.py",
    "worker/bootstrap.py",
    "worker/context.py",
    "worker/imported_versions.py",
    "worker/process.py",
    "worker/protocol.py",
    "worker/contract_check.py",
    "worker/stages/__init__.py",
)

_METRICS = ("worker/numerics/metrics.py", "worker/numerics/frontier.py", "worker/numerics/dtypes.py")

_LOWERING = (
    "worker/precision",
    "worker/graph/__init__.py",
    "worker/graph/contract.py",
    "worker/graph/dtypes.py",
    "worker/graph/provenance.py",
    "worker/numerics/dtypes.py",
)

# What looks at the scales of a model that comes quantised.
_SCALES = (
    "worker/quantization/__init__.py",
    "worker/quantization/dequantization.py",
    "worker/quantization/weights.py",
    "worker/precision/__init__.py",
    "worker/precision/graphs.py",
    "worker/precision/patterns.py",
    "worker/precision/plan.py",
    "worker/precision/rules.py",
    "worker/precision/tensors.py",
)

# What asks a runtime whether it serves a graph's operators; probing.py writes the questions.
_ASKING = ("worker/kernels",)

# Patterns over module paths, and what says and names a precision: no part of it reads a graph.
_PLANS = (
    "worker/precision/__init__.py",
    "worker/precision/decision.py",
    "worker/precision/options.py",
    "worker/precision/patterns.py",
)

# What opens a graph with onnxruntime.
_ONNXRUNTIME = (
    "worker/runtimes/__init__.py",
    "worker/runtimes/protocol.py",
    "worker/runtimes/model_files.py",
    "worker/runtimes/onnxruntime.py",
    "worker/runtimes/onnxruntime_profile.py",
)
# What builds and verifies graphs, with the runtime that a recipe names.
_RUNTIMES = (*_ONNXRUNTIME, "worker/runtimes/registry.py")

# What every build leaves behind.
_BUILT = ("worker/stages/built_files.py", "worker/bindings")

# What converts a model to an ML program, and what evaluates programs.
_PROGRAMS = ("worker/coreml", "worker/mil", *_PLANS)

# Files and folders below the package, by job. `tests/plan/test_worker_code.py` holds them to what the stages import,
# so that a change to code that a stage runs always changes its key, and a change elsewhere does not.
WORKER_CODE: dict[JobKind, tuple[str, ...]] = {
    "export": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/export.py",
        "worker/sources",
        "worker/exporters",
        "worker/graph",
        "worker/cases",
        "worker/numerics/dtypes.py",
        "worker/precision/loading.py",
        "worker/precision/prepare.py",
        *_SCALES,
        "worker/kernels/__init__.py",
        "worker/kernels/operators.py",
        "worker/kernels/probing.py",
    ),
    "reference": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/reference.py",
        "worker/stages/original_invariance.py",
        "worker/sources",
        "worker/cases",
        *_ONNXRUNTIME,
        "worker/runtimes/original.py",
        "worker/numerics/invariance.py",
        "worker/numerics/limits.py",
        *_METRICS,
    ),
    "precision": (
        *_EVERY_STAGE,
        "worker/stages/precision.py",
        *_BUILT,
        "worker/runtimes/__init__.py",
        "worker/runtimes/protocol.py",
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_LOWERING,
    ),
    "build": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/build.py",
        *_BUILT,
        *_RUNTIMES,
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_ASKING,
        *_LOWERING,
    ),
    "verify": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/verify.py",
        "worker/stages/verification.py",
        "worker/stages/built_model.py",
        *_BUILT,
        "worker/stages/build.py",
        *_RUNTIMES,
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_ASKING,
        *_LOWERING,
    ),
    "tensorrt-build": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/tensorrt_build.py",
        "worker/stages/build.py",
        *_BUILT,
        *_RUNTIMES,
        "worker/runtimes/tensorrt",
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_ASKING,
        *_LOWERING,
    ),
    "tensorrt-verify": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/tensorrt_verify.py",
        "worker/stages/tensorrt_build.py",
        "worker/stages/verify.py",
        "worker/stages/verification.py",
        "worker/stages/built_model.py",
        "worker/stages/build.py",
        *_BUILT,
        *_RUNTIMES,
        "worker/runtimes/tensorrt",
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_ASKING,
        *_LOWERING,
    ),
    "coreml-precision": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/coreml_precision.py",
        "worker/sources",
        "worker/cases",
        "worker/exporters",
        "worker/precision/naming.py",
        "worker/numerics/float_limits.py",
        "worker/numerics/limits.py",
        "worker/numerics/module_search.py",
        "worker/numerics/plan_findings.py",
        *_PROGRAMS,
        *_METRICS,
    ),
    "coreml-build": (
        *_EVERY_STAGE,
        "worker/nearest.py",
        "worker/stages/coreml_build.py",
        *_BUILT,
        "worker/runtimes/__init__.py",
        "worker/runtimes/protocol.py",
        "worker/runtimes/coreml.py",
        "worker/sources",
        "worker/cases",
        "worker/exporters",
        "worker/numerics/dtypes.py",
        *_PROGRAMS,
    ),
    "coreml-verify": (
        *_EVERY_STAGE,
        "worker/stages/coreml_verify.py",
        "worker/stages/verification.py",
        "worker/stages/built_model.py",
        *_BUILT,
        "worker/runtimes/__init__.py",
        "worker/runtimes/protocol.py",
        "worker/runtimes/coreml.py",
        "worker/cases",
        "worker/precision/naming.py",
        "worker/numerics/collapse.py",
        "worker/numerics/device_comparison.py",
        "worker/numerics/float_limits.py",
        "worker/numerics/invariance.py",
        "worker/numerics/precision_remedies.py",
        *_PROGRAMS,
        *_METRICS,
    ),
}
