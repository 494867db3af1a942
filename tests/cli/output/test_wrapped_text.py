"""Text breaks between words at a terminal's width, and nowhere else."""

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import IO

import pytest

from convkit.cli.output.text_lines import wrapped

TEXT = (
    "  A tensor exceeds the range of it\n\n/a/very/long/path/that/is/wider/than/the/terminal ends"
)


@pytest.fixture
def terminal() -> Iterator[IO[str]]:
    """Return a terminal of 30 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    with os.fdopen(theirs, "w") as stream:
        yield stream
    os.close(ours)


def test_lines_break_between_words_and_keep_their_indent(terminal: IO[str]) -> None:
    assert wrapped(TEXT, terminal, indent=2).splitlines() == [
        "    A tensor exceeds the range",
        "    of it",
        "",
        "  /a/very/long/path/that/is/wider/than/the/terminal",
        "  ends",
    ]


def test_elsewhere_lines_stay_as_they_are() -> None:
    assert wrapped(TEXT, io.StringIO()) == TEXT
