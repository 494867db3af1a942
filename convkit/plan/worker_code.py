"""Which of convkit's own code runs in each stage: a part of the stage's key."""

from convkit.worker.protocol import StageKind

_EVERY_STAGE = (
    "codec.py",
    "tensors.py",
    "findings/model.py",
    "worker/bootstrap.py",
    "worker/context.py",
    "worker/process.py",
    "worker/protocol.py",
    "worker/nearest.py",
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

# Files and folders below the package, by stage. `tests/plan/test_worker_code.py` holds them to what the stages import,
# so that a change to code that a stage runs always changes its key, and a change elsewhere does not.
WORKER_CODE: dict[StageKind, tuple[str, ...]] = {
    "export": (
        *_EVERY_STAGE,
        "worker/stages/export.py",
        "worker/sources",
        "worker/exporters",
        "worker/graph",
        "worker/cases",
        "worker/numerics/dtypes.py",
    ),
    "reference": (
        *_EVERY_STAGE,
        "worker/stages/reference.py",
        "worker/sources",
        "worker/cases",
        "worker/runtimes",
        *_METRICS,
    ),
    "precision": (
        *_EVERY_STAGE,
        "worker/stages/precision.py",
        "worker/stages/build.py",
        "worker/runtimes",
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_LOWERING,
    ),
    "build": (
        *_EVERY_STAGE,
        "worker/stages/build.py",
        "worker/runtimes",
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_LOWERING,
    ),
    "verify": (
        *_EVERY_STAGE,
        "worker/stages/verify.py",
        "worker/stages/build.py",
        "worker/runtimes",
        "worker/cases",
        "worker/numerics",
        "worker/quantization",
        *_LOWERING,
    ),
}
