"""What servers import ahead, by job."""

import pytest

from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.jobs.preloading import further_tools, preloaded_tools, tools_of_job
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
            Envelope(PROTOCOL, job, "", request | {"exporter": exporter}, runtime=package)
            for request in ({"source": {"kind": kind}} for kind in KINDS)
            for exporter in ("torch", "torchscript", "auto")
        ]
        found = {
            tools(envelope) for envelope in asked for tools in (preloaded_tools, further_tools)
        }
        assert found - {()} == expected


def further(job: JobKind, kind: str, exporter: str) -> tuple[str, ...]:
    request = {"source": {"kind": kind}, "exporter": exporter}
    return further_tools(Envelope(PROTOCOL, job, "", request))


def test_only_what_a_stage_imports_in_any_case_is_imported_further() -> None:
    assert further("export", "factory", "torch") == further("export", "factory", "auto") != ()
    assert further("reference", "factory", "torchscript") != ()
    assert further("export", "factory", "torchscript") == ()
    assert further("bench-original", "factory", "torch") == ()
    # Export and reference share a model that is loaded once, so they need the same process.
    assert further("export", "hub", "torch") == further("reference", "hub", "torch") == ()
