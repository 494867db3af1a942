"""The job `bench-joined`: times the built parts of a target as one model."""

import dataclasses
from collections.abc import Callable

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BenchJoinedRequest, BenchResult, BuiltPart
from convkit.worker.bench.timed_target import bench_built
from convkit.worker.job_context import Context
from convkit.worker.join.joined_session import JoinedSession
from convkit.worker.join.part_flow import Wiring
from convkit.worker.runtime_interface.sessions import RuntimeSession
from convkit.worker.verification.built_parts import request_and_function


def run(request: BenchJoinedRequest, context: Context) -> tuple[BenchResult, list[Finding]]:
    """Time the whole, each part in the session of its own runtime.

    Raises StageFailedError if a part's runtime cannot be timed, or the whole cannot run on the
    first size. The operators are profiled part by part, in the benchmarks of the parts.
    """
    opened = {part.name: _opener(part) for part in request.parts}
    contracts = {name: contract for name, (contract, _) in opened.items()}
    wiring = Wiring(request.flow, request.contract, contracts)

    def open_joined() -> RuntimeSession:
        return JoinedSession(wiring, {name: open_() for name, (_, open_) in opened.items()})

    result = bench_built(request, open_joined, context)
    return dataclasses.replace(result, unprofiled="operators are profiled part by part"), []


def _opener(part: BuiltPart) -> tuple[Contract, Callable[[], RuntimeSession]]:
    request, open_built = request_and_function(
        part, "bench", "open_built", "cannot be timed as a part"
    )
    return request.contract, lambda: open_built(request)
