import json
import sys
import threading
from pathlib import Path

import pytest

from convkit.host.processes.worker_outcome import findings_of
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import FreshProcesses
from convkit.host.secret_redaction import HIDDEN, redacted
from convkit.host.toolchain.versions.uv_commands import failure_of
from convkit.protocol.messages import PROTOCOL, Envelope

SECRETS = {
    "HF_TOKEN": "plain-words-of-a-token",
    "AWS_SECRET_ACCESS_KEY": "abc/def+ghi=jkl",
    "HTTPS_PROXY": "http://jane:proxy-pass-word@proxy:3128",
    "ALL_PROXY": "http://joe:p%40ss%2Dword@proxy:1080",
}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("401 for plain-words-of-a-token", "plain-words-of-a-token"),
        ("key abc/def+ghi=jkl refused", "abc/def+ghi=jkl"),
        ("407 from jane:proxy-pass-word", "proxy-pass-word"),
        ("407 for p%40ss%2Dword", "p%40ss%2Dword"),
        ("407 for p@ss-word", "p@ss-word"),
        ("GET https://bob:hunter2@index/simple", "hunter2"),
        ("GET https://0123456789abcdef@index/simple", "0123456789abcdef"),
        ("git+https://ghp_0123456789abcdefghij@host/x", "ghp_0123456789abcdefghij"),
        ("using hf_abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwx"),
        ("Authorization: Bearer abc.def-ghi_jkl", "abc.def-ghi_jkl"),
        ("https://host/x?a=1&access_token=0a1b2c3d&b=2", "0a1b2c3d"),
        ("https://s3/x?X-Amz-Signature=0a1b2c3d", "0a1b2c3d"),
        ("environ({'MY_API_KEY': 'q1w2e3r4t5'})", "q1w2e3r4t5"),
        ("export SOME_TOKEN=q1w2e3r4t5 cmd", "q1w2e3r4t5"),
    ],
)
def test_secrets_are_hidden(text: str, secret: str) -> None:
    shown = redacted(text, SECRETS)
    assert secret not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "token_type_ids: int64[batch, sequence]",
        "KeyError: 'tokenizer.json'",
        "https://host:8080/simple/torch/?a=1",
        "max_tokens=12345678 was ignored",
        "layer.0.key=0.123456789",
        "git@host:owner/name.git",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert redacted(text, SECRETS | {"HF_TOKEN_PATH": "/home/x/token", "USE_TOKEN": "true"}) == text


STAGE = """
import json, os, sys
print("request failed with", os.environ["HF_TOKEN"], "\\x1b[8mhidden\\x1b]0;title\\x07 \\x9b")
message = "401 for " + os.environ["HF_TOKEN"]
finding = {"code": "E204", "severity": "error", "message": message, "place": {},
           "evidence": {"header": {"x": [message]}}, "remedy": None}
answer = {"protocol": %d, "outcome": "broken", "error": message, "traceback": message,
          "findings": [finding]}
json.dump(answer, open(sys.argv[2], "w"))
"""


def test_what_a_stage_prints_and_answers_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRETS["HF_TOKEN"])
    entry = tmp_path / "stage.py"
    entry.write_text(STAGE % PROTOCOL)
    outcome = run_worker(
        Path(sys.executable),
        Envelope(PROTOCOL, "inspect", str(tmp_path), {}),
        tmp_path,
        timeout_seconds=60,
        on_event=lambda *_: None,
        cancelled=threading.Event(),
        workers=FreshProcesses(entry),
    )
    assert outcome.answer is not None
    findings = findings_of(outcome, "inspect", None)
    kept = outcome.log + repr(outcome.answer) + repr(findings)
    assert SECRETS["HF_TOKEN"] not in kept
    assert kept.count(HIDDEN) >= 5
    assert "request failed with" in outcome.log
    assert not [c for c in outcome.log if not c.isprintable() and c not in "\n\t"]


def test_what_uv_says_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_PRIVATE_PASSWORD", "correct horse")
    failure = failure_of("error: 401 with correct horse at https://me:pw@index/simple")
    assert "correct horse" not in failure.words
    assert ":pw@" not in json.dumps(failure.words)
