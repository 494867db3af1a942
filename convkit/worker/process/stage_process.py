"""One worker process runs one stage: reads the request, runs the stage, writes the answer."""

import dataclasses
import gc
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.jobs.imported_versions import imported_versions
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import PROTOCOL, Answer, Envelope
from convkit.protocol.process_trees import adopt_orphans, descendants, end_all
from convkit.protocol.runtimes.runtime_registry import load_runtime
from convkit.protocol.runtimes.runtime_row import Runtime
from convkit.protocol.sealed_imports import wrong_imports
from convkit.worker.job_context import Context, StageFailedError, StageSkippedError
from convkit.worker.process.memory_use import peak_memory
from convkit.worker.process.noted_reads import NotedReads
from convkit.worker.process.opened_files import OpenedFiles
from convkit.worker.runtime_interface.registered_operators import using

# Makes a package in a folder importable, and nothing beside it: `bootstrap.expose`.
_Expose = Callable[[str, Path], None]
_WATCH_SECONDS = 0.5
# Less frequent than Python's default (700, 10, 10), which accounts for a fifth of the time needed
# to import torch and a converter, and for more than half of the time needed to rewrite a graph of
# 20,000 nodes: the objects of a graph live as long as the graph, so looking for garbage among them
# is in vain.
_COLLECTIONS = (100_000, 20, 10)


def serve(
    request_file: Path,
    result_file: Path,
    *,
    expose: _Expose,
    events_fd: int | None = None,
    parent_pid: int | None = None,
    opened: OpenedFiles | None = None,
) -> int:
    """Run the stage described by `request_file` and write its answer to `result_file` atomically.

    A forked worker's event descriptor and parent differ from those in the request, and `opened`
    are the files that were read for it before. Returns 0.
    """
    envelope = decode(Envelope, json.loads(request_file.read_text(encoding="utf-8")))
    if parent_pid is not None:
        envelope = dataclasses.replace(envelope, events_fd=events_fd, parent_pid=parent_pid)
    started = time.monotonic()
    gc.set_threshold(*_COLLECTIONS)
    adopt_orphans()
    _end_with(envelope.parent_pid)
    answer = _observed(envelope, opened, expose)
    versions = imported_versions()
    unexpected = _unexpected(versions, envelope.expected)
    mismatch = _mismatch_finding(unexpected) if unexpected else _wrong_files()
    if mismatch is not None:
        answer = dataclasses.replace(
            answer, outcome="broken", result=None, error=mismatch.message, findings=(mismatch,)
        )
    answer = dataclasses.replace(
        answer,
        versions=versions,
        seconds=time.monotonic() - started,
        peak_memory_bytes=peak_memory(),
    )
    staging = result_file.with_name(result_file.name + ".part")
    staging.write_text(json.dumps(encode(answer)), encoding="utf-8")
    staging.replace(result_file)
    return 0


def _end_with(parent: int | None) -> None:
    """Kill this process and its children when the parent exits, so that a killed run leaves nothing
    behind.

    A polling thread works on every platform. Only Linux can signal a parent's death, and it would
    reach this process alone.
    """
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        end_all(lambda: descendants(os.getpid()))
        os.killpg(os.getpgrp(), signal.SIGKILL)  # the worker leads its own group

    threading.Thread(target=watch, daemon=True, name="watch-parent").start()


def _observed(envelope: Envelope, earlier: OpenedFiles | None, expose: _Expose) -> Answer:
    """Run the stage. If it loads a model, report which files it read; `earlier` are those that were
    read for it before.
    """
    request = envelope.request
    asked = (request.get("original") or request) if isinstance(request, dict) else {}
    source = asked.get("source")
    if not isinstance(source, dict):
        return _run(envelope, expose)
    factory = source.get("path") if source.get("kind") == "factory" else None
    with OpenedFiles(Path(factory).parent if factory else None, earlier) as opened:
        answer = _run(envelope, expose)
    return dataclasses.replace(answer, opened=opened.found())


def _run(envelope: Envelope, expose: _Expose) -> Answer:
    if envelope.protocol != PROTOCOL:
        return Answer(
            PROTOCOL,
            "broken",
            error=f"worker speaks protocol {PROTOCOL}, was asked for {envelope.protocol}",
        )
    context = Context(Path(envelope.output), envelope.events_fd)
    try:
        job = JOBS[envelope.job]
        runtime = _runtime(envelope, expose)
        with NotedReads() as reads, using(envelope.custom_ops):
            with reads.decoding():
                request: object = decode(job.request_type(runtime), envelope.request)
            result, findings = job.function(runtime)(request, context)
            encoded = encode(result)
    except StageSkippedError as error:
        return Answer(PROTOCOL, "skipped", error=str(error))
    except StageFailedError as error:
        if error.__cause__ is not None:  # a tool's error, of which the message is a part
            traceback.print_exception(error)
        return Answer(PROTOCOL, "broken", error=str(error), findings=error.findings)
    except MemoryError:
        return Answer(
            PROTOCOL,
            "broken",
            error="the stage ran out of memory",
            traceback=traceback.format_exc(),
        )
    except Exception as error:  # noqa: BLE001 - the process boundary: every tool's error becomes an answer
        traceback.print_exc()  # the log is what people open
        return Answer(
            PROTOCOL,
            "broken",
            error=f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
        )
    return Answer(PROTOCOL, "done", result=encoded, findings=tuple(findings), unread=reads.unread())


def _runtime(envelope: Envelope, expose: _Expose) -> Runtime | None:
    """Return the row of the target's runtime, after exposing a third-party package."""
    if envelope.runtime is None:
        return None
    if envelope.runtime_folder is not None:
        expose(envelope.runtime.partition(".")[0], Path(envelope.runtime_folder))
    return load_runtime(envelope.runtime)


def _unexpected(
    versions: dict[str, str], expected: dict[str, str]
) -> dict[str, tuple[str, str | None]]:
    """Return packages imported in a version other than expected, or not expected at all: found and
    expected versions.

    Environments that convkit did not build have no expected versions.
    """
    if not expected:
        return {}
    found = {name: version for name, version in versions.items() if name != "python"}
    return {
        name: (version, expected.get(name))
        for name, version in found.items()
        if expected.get(name) != version
    }


def _mismatch_finding(unexpected: dict[str, tuple[str, str | None]]) -> Finding:
    listed = ", ".join(
        f"{name} {found}"
        + (f" instead of {wanted}" if wanted else ", which is not among the tools")
        for name, (found, wanted) in sorted(unexpected.items())
    )
    message = f"the stage used different tools than were resolved for it: {listed}"
    remedy = Remedy(
        "Remove the environment (convkit env prune --all) and run again. convkit kept no result"
        " of this stage."
    )
    return Finding(
        "V106", message, Place(), {"found": {n: f for n, (f, _) in unexpected.items()}}, remedy
    )


_MOST_FILES = 5  # how many modified files a message names


def _wrong_files() -> Finding | None:
    """Return a finding if any loaded file differs from the installed one."""
    wrong = wrong_imports()
    if not wrong:
        return None
    listed = ", ".join(f"{path}: {problem}" for path, problem in [*wrong.items()][:_MOST_FILES])
    more = f" and {len(wrong) - _MOST_FILES} more" if len(wrong) > _MOST_FILES else ""
    return Finding(
        "V106",
        f"the stage loaded files that differ from what was installed: {listed}{more}",
        Place(),
        {"files": {**wrong}},
        Remedy(
            "Remove the damaged environment (convkit env verify --remove) and run again; convkit "
            "kept no result of this stage."
        ),
    )
