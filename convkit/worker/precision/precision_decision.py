"""The precision stage's decision, as a file that builds and verifications read."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.protocol.messages import (
    BuildRequest,
    CrashRequest,
    Precision,
    Quantization,
    VerifyRequest,
)
from convkit.worker.job_context import StageFailedError

DECISION_FILE = "precision.json"

RequestT = TypeVar("RequestT", bound="BuildRequest[Any] | VerifyRequest[Any] | CrashRequest[Any]")


def write_decision(folder: Path, precision: Precision) -> None:
    """Write a precision with `auto` resolved."""
    text = json.dumps(encode(precision), indent=1, sort_keys=True)
    (folder / DECISION_FILE).write_text(text + "\n", encoding="utf-8")


def with_decision(request: RequestT) -> RequestT:
    """Return a request with its precision resolved; raises StageFailedError if that is
    impossible.
    """
    given = request.precision
    if request.decision is None:
        if (key := _undecided(given)) is not None:
            raise StageFailedError(f"{key}: auto is undecided: the precision stage has not run")
        return request
    decided = _read_decision(Path(request.decision))
    if isinstance(given, Quantization) and isinstance(decided, Quantization):
        # The target knows the calibration file's location on this machine; an artifact cannot.
        decided = dataclasses.replace(decided, calibration=given.calibration)
    return dataclasses.replace(request, precision=decided)


def _undecided(given: Precision) -> str | None:
    """Return the key of a precision that only the precision stage can decide; None if all are."""
    if given is not None and given.keep_float32 == "auto":
        return "keep_float32"
    if isinstance(given, Quantization) and None in {given.reduce_range, given.equalize}:
        return "reduce_range" if given.reduce_range is None else "equalize"
    return None


def _read_decision(folder: Path) -> Precision:
    file = folder / DECISION_FILE
    try:
        kind: type[Precision] = Precision  # type: ignore[assignment]
        return decode(kind, json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, CodecError) as error:
        raise StageFailedError(
            f"cannot read {DECISION_FILE} of the precision stage: {error}"
        ) from error
