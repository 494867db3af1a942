"""The jobs a worker can run: one row per job. Standard library only."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from convkit.findings.model import Finding
from convkit.runtimes.row import Runtime
from convkit.worker import protocol
from convkit.worker.context import Context
from convkit.worker.protocol import JobKind

JobFunction = Callable[[Any, Context], tuple[Any, list[Finding]]]


@dataclasses.dataclass(frozen=True)
class Job:
    """One kind of job: its request and result types, and the module whose `run` performs it. A
    runtime's own module takes precedence over this one. With `has_options`, the request carries the
    runtime's options. With `makes_model`, its output is a model: bytes that equal requests must
    reproduce, whereas other jobs' outputs contain durations.
    """

    kind: JobKind
    request: type
    result: type
    module: str | None = None
    has_options: bool = False
    makes_model: bool = False

    def module_for(self, runtime: Runtime | None) -> str | None:
        """Return the module that performs the job for a runtime; None if there is none."""
        return (runtime.module_of(self.kind) if runtime is not None else None) or self.module

    def request_type(self, runtime: Runtime | None) -> Any:  # noqa: ANN401 - a type, perhaps generic
        """Return the request type, parametrized with the runtime's options type."""
        if not self.has_options or runtime is None:
            return self.request
        return self.request[runtime.load(runtime.options)]  # type: ignore[index]

    def function(self, runtime: Runtime | None = None) -> JobFunction:
        """Return a job's function, importing only that job's module; raises KeyError."""
        module = self.module_for(runtime)
        if module is None:
            raise KeyError(f"{runtime.name if runtime else 'convkit'} does no {self.kind}")
        function: JobFunction = importlib.import_module(module).run
        return function


_ROWS = (
    Job(
        "export",
        protocol.ExportRequest,
        protocol.ExportResult,
        "convkit.stages.export",
        makes_model=True,
    ),
    Job(
        "reference", protocol.ReferenceRequest, protocol.ReferenceResult, "convkit.stages.reference"
    ),
    Job(
        "precision",
        protocol.PrecisionRequest,
        protocol.PrecisionResult,
        has_options=True,
        makes_model=True,
    ),
    Job("build", protocol.BuildRequest, protocol.BuildResult, has_options=True, makes_model=True),
    Job("verify", protocol.VerifyRequest, protocol.VerifyResult, has_options=True),
    Job("join", protocol.JoinRequest, protocol.VerifyResult, "convkit.stages.join"),
    Job("inspect", protocol.InspectRequest, protocol.InspectResult, "convkit.stages.inspect"),
    Job("survey", protocol.SurveyRequest, protocol.SurveyResult, "convkit.stages.survey"),
    Job(
        "survey-model",
        protocol.SurveyModelRequest,
        protocol.SurveyResult,
        "convkit.stages.survey_model",
    ),
    Job("crash", protocol.CrashRequest, protocol.DiagnoseResult, has_options=True),
    Job("diagnose", protocol.DiagnoseRequest, protocol.DiagnoseResult, "convkit.stages.diagnose"),
    Job(
        "rounding", protocol.RoundingRequest, protocol.DiagnoseResult, "convkit.stages.low_rounding"
    ),
    Job("compare", protocol.CompareRequest, protocol.CompareResult, "convkit.stages.compare"),
    Job("bench", protocol.BenchRequest, protocol.BenchResult, has_options=True),
    Job(
        "bench-original",
        protocol.BenchOriginalRequest,
        protocol.BenchResult,
        "convkit.bench.original",
    ),
    Job("bench-joined", protocol.BenchJoinedRequest, protocol.BenchResult, "convkit.bench.joined"),
    Job("view", protocol.ViewRequest, protocol.ViewResult, "convkit.stages.view"),
)
JOBS: dict[JobKind, Job] = {job.kind: job for job in _ROWS}
