"""The part of a joined model that a runtime built, as the runtime's own module handles it."""

import importlib
from collections.abc import Callable
from typing import Any

from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import BuiltPart, JobKind
from convkit.protocol.runtimes.runtime_registry import load_runtime
from convkit.worker.job_context import StageFailedError


def request_and_function(
    part: BuiltPart, kind: JobKind, name: str, refusal: str
) -> tuple[Any, Callable[..., Any]]:
    """Return a part's request, and the function `name` of the module that does a job for the part's
    runtime. Raises StageFailedError, which says `refusal`, if the module has none.
    """
    row, job = load_runtime(part.runtime), JOBS[kind]
    request = decode(job.request_type(row), part.request)
    module = importlib.import_module(job.module_for(row) or part.runtime)
    function = getattr(module, name, None)
    if function is None:
        raise StageFailedError(
            f"part {part.name}: the runtime {row.name} {refusal}: its {kind} module has no function"
            f" `{name}`"
        )
    return request, function
