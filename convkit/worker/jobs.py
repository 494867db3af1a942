"""What a worker can be asked to do: one row a job. Standard library only."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from convkit.findings.model import Finding
from convkit.worker import protocol
from convkit.worker.context import Context
from convkit.worker.protocol import JobKind

JobFunction = Callable[[Any, Context], tuple[Any, list[Finding]]]


@dataclasses.dataclass(frozen=True)
class Job:
    """One kind of work: the types of its request and its result, and the module whose `run` does it."""

    request: type
    result: type
    module: str

    def function(self) -> JobFunction:
        """Return what does the work, importing that job's module only."""
        function: JobFunction = importlib.import_module(self.module).run
        return function


JOBS: dict[JobKind, Job] = {
    "export": Job(protocol.ExportRequest, protocol.ExportResult, "convkit.stages.export"),
    "reference": Job(
        protocol.ReferenceRequest, protocol.ReferenceResult, "convkit.stages.reference"
    ),
    "precision": Job(
        protocol.PrecisionRequest, protocol.PrecisionResult, "convkit.stages.graph_precision"
    ),
    "build": Job(protocol.BuildRequest, protocol.BuildResult, "convkit.stages.graph_build"),
    "verify": Job(protocol.VerifyRequest, protocol.VerifyResult, "convkit.stages.graph_verify"),
    "coreml-precision": Job(
        protocol.ProgramPrecisionRequest,
        protocol.PrecisionResult,
        "convkit.runtimes.coreml.precision",
    ),
    "coreml-build": Job(
        protocol.ProgramBuildRequest, protocol.BuildResult, "convkit.runtimes.coreml.build"
    ),
    "coreml-verify": Job(
        protocol.VerifyRequest, protocol.VerifyResult, "convkit.runtimes.coreml.verify"
    ),
    "tensorrt-build": Job(
        protocol.BuildRequest, protocol.BuildResult, "convkit.runtimes.tensorrt.build"
    ),
    "tensorrt-verify": Job(
        protocol.VerifyRequest, protocol.VerifyResult, "convkit.runtimes.tensorrt.verify"
    ),
    "inspect": Job(protocol.InspectRequest, protocol.InspectResult, "convkit.stages.inspect"),
    "coreml-inspect": Job(
        protocol.InspectRequest, protocol.InspectResult, "convkit.runtimes.coreml.inspect"
    ),
    "compare": Job(protocol.CompareRequest, protocol.CompareResult, "convkit.stages.compare"),
    "coreml-compare": Job(
        protocol.CompareRequest, protocol.CompareResult, "convkit.runtimes.coreml.compare"
    ),
}
