"""The command line in this process: what it prints and how it exits, without the second that a new
interpreter takes to import it, and with the tests' fork servers for its stages.
"""

import contextlib
import dataclasses
import io
import sys

import pytest

from convkit.cli.main import main


@dataclasses.dataclass(frozen=True)
class Done:
    """A finished command; the fields are those of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def convkit(*arguments: object) -> Done:
    """Run `convkit ARGUMENTS` as its entry point does."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        patch.setattr(sys, "argv", ["convkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
    code = exit_.value.code
    assert code is None or isinstance(code, int), code
    return Done(code or 0, stdout.getvalue(), stderr.getvalue())
