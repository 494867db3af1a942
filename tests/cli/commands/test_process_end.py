"""The command's process ends at once, and leaves nothing undone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What a command leaves behind: a thread that still writes, a function for the exit, a message that
# is still in a buffer.
COMMAND = """
import atexit, sys, threading, time
import convkit.cli.main as command

def late():
    time.sleep(0.2)
    print("thread")

def main():
    atexit.register(lambda: print("exit function"))
    threading.Thread(target=late).start()
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    sys.stdout.write("buffered ")
    {ending}

command.main = main
command.start()
"""


def ended(ending: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", COMMAND.format(ending=ending)],
        text=True,
        check=False,
        timeout=30,
        **{"capture_output": True, **options},  # type: ignore[call-overload]
    )


@pytest.mark.parametrize(
    ("ending", "code"), [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit(0)", 0)]
)
@pytest.mark.sampled(2)
def test_threads_and_exit_functions_are_awaited(ending: str, code: int) -> None:
    done = ended(ending)
    assert (done.returncode, done.stdout) == (code, "buffered thread\nexit function\n")
    assert done.stderr == ""


def test_a_message_as_exit_code_is_printed() -> None:
    done = ended("sys.exit('what is wrong')")
    assert (done.returncode, done.stderr) == (1, "what is wrong\n")


def test_a_bug_is_not_hidden() -> None:
    done = ended("1 / 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("pass", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1


def test_a_reader_that_has_gone_is_an_error_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "convkit", "explain", "E201"]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
