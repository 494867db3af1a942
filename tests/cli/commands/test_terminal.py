"""What a terminal receives from the real streams of the command line."""

import os
import pty
import subprocess
import sys

from other_processes import ended_with_the_test

PROGRAM = """
import sys, time
from convkit.cli.output.safe_text import PrintableStream
sys.stdout, sys.stderr = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
from convkit.cli.output.live_progress import LiveProgress
with LiveProgress() as progress:
    progress.stage_waiting("export", 10.0)
    progress.stage_started("export", "a \\x1b[31m name")
    time.sleep(0.4)
    progress.stage_finished("export", "done", 0.4)
"""


def test_a_live_display_is_drawn_and_never_spelled_out() -> None:
    """rich's own sequences reach the terminal; those in names do not."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    received = b""
    with ended_with_the_test(process):
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed: Linux reports an error, others nothing
                break
            if not part:
                break
            received += part
        os.close(ours)
        assert process.wait() == 0
    assert received.count(b"^[") == received.count(b"a ^[[31m name") > 0
    assert b"\x1b[2K" in received
    assert "0 of 1 stages" in received.decode()
