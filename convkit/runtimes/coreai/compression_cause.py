"""Whether the compression of weights makes a model wrong: the same model without it, executed."""

import dataclasses

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreai.options import CompressionOptions
from convkit.runtimes.coreai.trial_conversions import Trials
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.job_context import StageFailedError
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

# A change explains an error of which it leaves at most this share.
_LEAVES = 0.5


def compression_finding(
    trials: Trials, precision: LowPrecision | None, case: str, judged: JudgedCase
) -> Finding | None:
    """Return N214 if the compression of the target makes most of the error in a case. Its remedy is
    a finer compression that was tried, or none. Errors are in parts of an output's rms.
    """
    given = trials.options.compression
    assert given is not None  # the target compresses

    def error(compression: CompressionOptions | None) -> float:
        session = trials.session(precision, compression=compression)
        return largest_error(judged.expected, session.run(judged.feeds))

    try:
        before, after = error(given), error(None)
    except (StageFailedError, ModelRefusedError, RunFailedError):
        return None
    if not after <= _LEAVES * before:
        return None
    return Finding(
        "N214",
        f"compressing the weights to {given.weights} makes most of the error: the outputs are off"
        f" by {before:.2g} in case {case!r}, and by {after:.2g} with the same weights uncompressed",
        Place(case=case),
        {
            "kind": "compression",
            "compression": {k: v for k, v in dataclasses.asdict(given).items() if v is not None},
            "proven": True,
            "before": before,
            "after": after,
        },
        _remedy(given, error(CompressionOptions("int8")) if given.weights == "int4" else None),
    )


def _remedy(given: CompressionOptions, int8: float | None) -> Remedy:
    """Return what to do; `int8` is the error that it leaves, if it was tried."""
    if int8 is None:
        return Remedy(f"Remove compression: {given.weights} was tried with and without it.")
    return Remedy(
        f"Set compression: {{weights: int8}}, which was tried: the outputs are then off by"
        f" {int8:.2g}. If that is too much, remove compression.",
        {"target.compression": {"weights": "int8"}},
    )
