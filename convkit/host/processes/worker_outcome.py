"""Determines how a worker process ended, and the findings about it."""

import dataclasses
import re
import signal
from pathlib import Path
from typing import Literal, assert_never

from convkit.host.secret_redaction import redacted
from convkit.protocol.errors import ConvkitError
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Answer, JobKind

# answered: the result file is complete, whatever the process did afterwards · signalled: crashed
# with a signal · out_of_memory: killed from outside · timed_out, cancelled: stopped by convkit ·
# no_answer: the process exited without a readable result.
Ending = Literal["answered", "signalled", "out_of_memory", "timed_out", "cancelled", "no_answer"]

_TAIL_LINES = 40
# A log is stored from both ends: a tool that prints endlessly must not fill memory or the store.
_HEAD_BYTES = 256 * 1024
_END_BYTES = 1024 * 1024
# Colors and cursor movements (ECMA-48 control sequences) and titles (operating system commands).
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters left over from other escape sequences; line breaks and tabs stay.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Messages about failed allocations: Python, C++, torch's CPU and CUDA allocators, onnxruntime's
# arena.
_MEMORY_WORDS = re.compile(
    r"MemoryError|ran out of memory|bad_alloc|can't allocate memory|CUDA out of"
    r" memory|OutOfMemoryError"
    r"|Failed to allocate memory|Cannot allocate memory"
    # The dynamic linker, where a library does not fit; on a noexec mount it adds the reason.
    r"|failed to map segment from shared object(?!: Operation not permitted)"
)
# ENOSPC and EDQUOT as the C library words them, and SQLite's own sentence.
_MISSING_MODULE = re.compile(r"No module named '([A-Za-z_]\w*)")
_DISK_WORDS = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full")
# Python's exit code if what was printed cannot be written (Py_FinalizeEx): a worker prints to its
# log, and a full disk leaves nothing there to read.
_UNFLUSHED = 120


@dataclasses.dataclass(frozen=True)
class WorkerOutcome:
    """How a worker ended. `answer` is set if it answered; times are seconds since the epoch.

    `signal` is the signal that ended the process, otherwise `exit_code` is its exit code. `detail`
    adds further information. `log` is the output without colors, cut in the middle if long.
    """

    ending: Ending
    answer: Answer | None
    log: str
    started: float
    ended: float
    signal: int | None = None
    exit_code: int | None = None
    detail: str = ""

    @property
    def log_tail(self) -> str:
        """The last 40 lines of the log."""
        return "\n".join(self.log.splitlines()[-_TAIL_LINES:])

    def done(self, otherwise: str) -> Answer:
        """Return the answer of a worker that did its job; raises ConvkitError with the reason after
        `otherwise`, what is not there now.
        """
        if self.answer is not None and self.answer.outcome == "done":
            return self.answer
        why = self.answer.error if self.answer is not None else f"{self.why}\n{self.log_tail}"
        raise ConvkitError(f"{otherwise}: {why}")

    @property
    def why(self) -> str:
        """Why there is no result, in a few words; the error if the worker answered with one."""
        match self.ending:
            case "answered":
                return self.answer.error or self.answer.outcome if self.answer is not None else ""
            case "signalled":
                return f"the process crashed ({_signal_name(self.signal)})"
            case "out_of_memory":
                return self.detail
            case "timed_out":
                return f"stopped after {_seconds(self):.0f} s"
            case "cancelled":
                return "canceled"
            case "no_answer":
                return f"the process ended without an answer ({self.detail})"
            case _:
                assert_never(self.ending)


def read_log(path: Path) -> str:
    """Return a log as a terminal would finally show it: no colors, progress bars in their final
    state, no secrets.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= _HEAD_BYTES + _END_BYTES:
            return _plain(stream.read())
        head = stream.read(_HEAD_BYTES)
        stream.seek(size - _END_BYTES)
        end = stream.read()
    left_out = size - len(head) - len(end)
    return f"{_plain(head)}\n[... {left_out} bytes left out ...]\n{_plain(end)}"


def _plain(printed: bytes) -> str:
    text = _ESCAPES.sub("", printed.decode("utf-8", errors="replace")).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return redacted(_CONTROLS.sub("", "\n".join(lines)))


def findings_of(outcome: WorkerOutcome, stage: JobKind, target: str | None) -> tuple[Finding, ...]:
    """Return the findings about a failed worker; none if it finished or was canceled."""
    answer = outcome.answer
    match outcome.ending:
        case "answered":
            assert answer is not None
            return (
                _findings_of_answer(outcome, answer, stage, target)
                if answer.outcome == "broken"
                else ()
            )
        case "cancelled":
            return ()
        case "signalled":
            return (_signalled(outcome, stage, target),)
        case "out_of_memory":
            return (_out_of_memory(f"{stage}: {outcome.detail}", outcome, stage, target),)
        case "timed_out":
            return (_timed_out(outcome, stage, target),)
        case "no_answer":
            return (_unanswered(outcome, stage, target),)
        case _:
            assert_never(outcome.ending)


def _signalled(outcome: WorkerOutcome, stage: JobKind, target: str | None) -> Finding:
    name = _signal_name(outcome.signal)
    if _DISK_WORDS.search(outcome.log_tail):
        return _full_disk(outcome, stage, target)
    if _MEMORY_WORDS.search(outcome.log_tail):
        message = f"{stage}: a tool could not allocate memory and aborted ({name})"
        return _out_of_memory(message, outcome, stage, target)
    remedy = Remedy(
        "The end of the log shows the failing call. Try a different version of the tool under"
        " tools."
    )
    message = f"{stage}: the process crashed ({name})"
    return Finding("E201", message, evidence=_evidence(outcome, stage, target), remedy=remedy)


def _timed_out(outcome: WorkerOutcome, stage: JobKind, target: str | None) -> Finding:
    message = f"{stage}: stopped after {_seconds(outcome):.0f} s (verify.timeout)"
    remedy = Remedy(
        "Raise verify.timeout if the stage needs more time. The log shows how far it got.",
        {"verify.timeout": max(60, round(_seconds(outcome) * 4))},
    )
    return Finding("E203", message, evidence=_evidence(outcome, stage, target), remedy=remedy)


def _unanswered(outcome: WorkerOutcome, stage: JobKind, target: str | None) -> Finding:
    if outcome.exit_code == _UNFLUSHED or _DISK_WORDS.search(outcome.log_tail):
        return _full_disk(outcome, stage, target)
    remedy = Remedy(
        "See the end of the log. The tools' environment may be damaged, or a tool ended the"
        " process."
    )
    message = f"{stage}: the process ended without an answer ({outcome.detail})"
    return Finding("E204", message, evidence=_evidence(outcome, stage, target), remedy=remedy)


def _findings_of_answer(
    outcome: WorkerOutcome, answer: Answer, stage: JobKind, target: str | None
) -> tuple[Finding, ...]:
    error = answer.error or "the stage failed without a message"
    message = f"{stage}: {error}"
    raised = [error, *answer.traceback.splitlines()[-1:]] if answer.traceback else [error]
    if any(map(_DISK_WORDS.search, raised)):
        failure = _full_disk(outcome, stage, target)
    elif any(map(_MEMORY_WORDS.search, raised)):
        failure = _out_of_memory(message, outcome, stage, target)
    elif error == " ".join(finding.message for finding in answer.findings):
        return tuple(answer.findings)  # they are the failure, and no tool is to blame
    else:
        remedy = Remedy("See the message above. The log has the tool's full output.", refers=True)
        if (missing := _MISSING_MODULE.search(error)) is not None:
            remedy = Remedy(
                f"Add the package that has the module {missing[1]!r} to the recipe's `tools`; with"
                " --toolchain host, install it in this environment."
            )
        failure = Finding(
            "E204", message, evidence=_evidence(outcome, stage, target), remedy=remedy
        )
    return (*answer.findings, failure)


def _out_of_memory(
    message: str, outcome: WorkerOutcome, stage: JobKind, target: str | None
) -> Finding:
    remedy = Remedy("Use smaller axes, run with --jobs 1, or use a machine with more memory.")
    return Finding("E202", message, evidence=_evidence(outcome, stage, target), remedy=remedy)


def _full_disk(outcome: WorkerOutcome, stage: JobKind, target: str | None) -> Finding:
    message = f"{stage}: the disk is full, so the stage could not write its files"
    remedy = Remedy(
        "Free some space, or choose a folder on a larger disk with --home or CONVKIT_HOME, and"
        " TMPDIR for temporary files. Then run again: finished stages are kept."
    )
    return Finding("E420", message, evidence=_evidence(outcome, stage, target), remedy=remedy)


def _evidence(outcome: WorkerOutcome, stage: JobKind, target: str | None) -> dict[str, Json]:
    evidence: dict[str, Json] = {
        "stage": stage,
        "seconds": round(_seconds(outcome), 3),
        "log": outcome.log_tail,
    }
    if target is not None:
        evidence["target"] = target
    if outcome.answer is not None and outcome.answer.traceback:
        evidence["traceback"] = outcome.answer.traceback
    return evidence


def _seconds(outcome: WorkerOutcome) -> float:
    return outcome.ended - outcome.started


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number).name if number is not None else "an unknown signal"
    except ValueError:
        return f"signal {number}"
