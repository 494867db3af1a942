"""What servers import ahead, by job."""

import pytest

from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.jobs.preloading import preloaded_tools, tools_of_job
from convkit.protocol.messages import PROTOCOL, Envelope, JobKind
from convkit.protocol.runtimes.runtime_registry import runtimes

KINDS = ("config", "factory", "hub", "onnx", "path", "torchscript")


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_known_to_need_what_its_workers_import(job: JobKind) -> None:
    """Otherwise a run closes the server that a later stage would be forked from."""
    for runtime in (None, *runtimes().values()):
        expected = tools_of_job(job, runtime)
        package = runtime.package if runtime is not None else None
        asked = [
            Envelope(PROTOCOL, job, "", {"source": {"kind": kind}}, runtime=package)
            for kind in KINDS
        ]
        assert {preloaded_tools(envelope) for envelope in asked} - {()} == expected
