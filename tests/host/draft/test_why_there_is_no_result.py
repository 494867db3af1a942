"""A worker that ends without a result: what commands say about it."""

import signal
from pathlib import Path

import pytest

from convkit.host.draft import file_inspection
from convkit.host.home import Home
from convkit.host.processes.worker_outcome import WorkerOutcome
from convkit.host.toolchain.versions.stage_requirements import survey_spec
from convkit.protocol.errors import ModelFileError
from convkit.protocol.messages import PROTOCOL, Answer, Source, SurveyModelRequest


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (WorkerOutcome("timed_out", None, "", 0.0, 600.0), "stopped after 600 s"),
        (
            WorkerOutcome("signalled", None, "", 0.0, 1.0, signal=signal.SIGSEGV),
            "the process crashed (SIGSEGV)",
        ),
        (WorkerOutcome("out_of_memory", None, "", 0.0, 1.0, detail="killed"), "killed"),
        (
            WorkerOutcome("no_answer", None, "", 0.0, 1.0, detail="exit code 3"),
            "the process ended without an answer (exit code 3)",
        ),
        (WorkerOutcome("answered", Answer(PROTOCOL, "broken", error="no."), "", 0.0, 1.0), "no."),
        (WorkerOutcome("cancelled", None, "", 0.0, 1.0), "canceled"),
    ],
)
def test_every_ending_has_words(outcome: WorkerOutcome, text: str) -> None:
    assert outcome.why == text


def test_a_draft_that_takes_too_long_says_what_helps_with_a_stand_in_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = WorkerOutcome("timed_out", None, "", 0.0, 600.0)
    monkeypatch.setattr(file_inspection, "_asked", lambda *_, **__: ended)
    request = SurveyModelRequest(Source("config", identifier="slow"), 1.0)
    with pytest.raises(ModelFileError, match=r"^slow: found no inputs .* stopped after 600 s") as e:
        file_inspection.survey_source(
            "slow", request, survey_spec(), Home(tmp_path), print, toolchain="host"
        )
    assert "--example FILE.py:FUNCTION" in str(e.value)
