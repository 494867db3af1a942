"""The stages: one function each, a typed request in, a typed result and findings out."""

from collections.abc import Callable
from typing import Any

from convkit.findings.model import Finding
from convkit.worker.context import Context
from convkit.worker.protocol import CompareResult, InspectResult, JobKind, StageResult

StageFunction = Callable[[Any, Context], tuple[StageResult | InspectResult | CompareResult, list[Finding]]]


def stage_function(stage: JobKind) -> StageFunction:  # noqa: C901 - a case for each job
    """Return a stage's function, importing only that stage's module."""
    match stage:
        case "export":
            from convkit.worker.stages import export

            return export.run
        case "reference":
            from convkit.worker.stages import reference

            return reference.run
        case "precision":
            from convkit.worker.stages import precision

            return precision.run
        case "build":
            from convkit.worker.stages import build

            return build.run
        case "verify":
            from convkit.worker.stages import verify

            return verify.run
        case "coreml-precision":
            from convkit.worker.stages import coreml_precision

            return coreml_precision.run
        case "coreml-build":
            from convkit.worker.stages import coreml_build

            return coreml_build.run
        case "coreml-verify":
            from convkit.worker.stages import coreml_verify

            return coreml_verify.run
        case "tensorrt-build":
            from convkit.worker.stages import tensorrt_build

            return tensorrt_build.run
        case "tensorrt-verify":
            from convkit.worker.stages import tensorrt_verify

            return tensorrt_verify.run
        case "inspect":
            from convkit.worker.stages import inspect

            return inspect.run
        case "coreml-inspect":
            from convkit.worker.stages import coreml_inspect

            return coreml_inspect.run
        case "compare":
            from convkit.worker.stages import compare

            return compare.run
        case "coreml-compare":
            from convkit.worker.stages import coreml_compare

            return coreml_compare.run
