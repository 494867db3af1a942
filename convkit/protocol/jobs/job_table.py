"""The jobs a worker can run: one row per job. Standard library only."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from convkit.protocol import messages
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import JobKind
from convkit.protocol.runtimes.runtime_row import Runtime

# Called with the request and the context of its job.
JobFunction = Callable[[Any, Any], tuple[Any, list[Finding]]]


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
        messages.ExportRequest,
        messages.ExportResult,
        "convkit.worker.stages.export",
        makes_model=True,
    ),
    Job(
        "reference",
        messages.ReferenceRequest,
        messages.ReferenceResult,
        "convkit.worker.stages.reference",
    ),
    Job(
        "precision",
        messages.PrecisionRequest,
        messages.PrecisionResult,
        has_options=True,
        makes_model=True,
    ),
    Job("build", messages.BuildRequest, messages.BuildResult, has_options=True, makes_model=True),
    Job("verify", messages.VerifyRequest, messages.VerifyResult, has_options=True),
    Job("join", messages.JoinRequest, messages.VerifyResult, "convkit.worker.stages.join"),
    Job(
        "inspect", messages.InspectRequest, messages.InspectResult, "convkit.worker.stages.inspect"
    ),
    Job(
        "survey", messages.SurveyRequest, messages.SurveyResult, "convkit.worker.stages.survey_file"
    ),
    Job(
        "survey-model",
        messages.SurveyModelRequest,
        messages.SurveyResult,
        "convkit.worker.stages.survey_model",
    ),
    Job("crash", messages.CrashRequest, messages.DiagnoseResult, has_options=True),
    Job(
        "diagnose",
        messages.DiagnoseRequest,
        messages.DiagnoseResult,
        "convkit.worker.stages.diagnose",
    ),
    Job(
        "rounding",
        messages.RoundingRequest,
        messages.DiagnoseResult,
        "convkit.worker.stages.low_precision_rounding",
    ),
    Job(
        "compare", messages.CompareRequest, messages.CompareResult, "convkit.worker.stages.compare"
    ),
    Job("bench", messages.BenchRequest, messages.BenchResult, has_options=True),
    Job(
        "bench-original",
        messages.BenchOriginalRequest,
        messages.BenchResult,
        "convkit.worker.bench.timed_original",
    ),
    Job(
        "bench-joined",
        messages.BenchJoinedRequest,
        messages.BenchResult,
        "convkit.worker.bench.timed_joined_model",
    ),
    Job("view", messages.ViewRequest, messages.ViewResult, "convkit.worker.stages.view"),
    Job(
        "reproduce",
        messages.ReproduceRequest,
        messages.ReproduceResult,
        "convkit.worker.stages.reproduce",
    ),
)
JOBS: dict[JobKind, Job] = {job.kind: job for job in _ROWS}
