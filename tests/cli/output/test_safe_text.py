"""What reaches a terminal holds no control characters but convkit's own."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from convkit.cli.output.safe_text import Encodable, PrintableStream, output_console, printable

EVIL = "name\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08end\udcff\n\tkept"


def test_controls_are_shown_and_line_breaks_kept() -> None:
    assert printable(EVIL) == "name^[]0;owned^G^[[2J?31m^M^Hend?\n\tkept"


def test_json_stays_json() -> None:
    text = json.dumps({"name": EVIL}, ensure_ascii=False)
    assert json.loads(printable(text))["name"].startswith("name")


def test_rich_keeps_its_own_sequences_and_shows_those_in_names() -> None:
    from rich.console import Console
    from rich.text import Text

    raw = io.StringIO()
    stream: Any = PrintableStream(raw)
    console = Console(
        file=stream, force_terminal=True, color_system="standard", width=80, no_color=False
    )
    console.print(Encodable(Text(EVIL, style="red")))
    assert "\x1b[31m" in raw.getvalue()
    for evil in ("\x1b]0;", "\x1b[2J", "\x9b", "\x07", "\r"):
        assert evil not in raw.getvalue()


def convkit(*arguments: object, **options: object) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "convkit.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=120, **options)  # type: ignore[call-overload, no-any-return]


def test_an_error_with_a_name_from_outside_is_shown_safely() -> None:
    done = convkit("inspect", "\x1b]0;owned\x07.onnx")
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert b"^[]0;owned^G" in done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_path_that_is_not_utf_8_is_a_wrong_command_line(tmp_path: Path, encoding: str) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    Path(os.fsdecode(folder)).mkdir()
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments, options in (
        (("run", folder + b"/recipe.yaml"), {}),
        (("run", "recipe.yaml", "--home", folder), {}),
        (("run", "recipe.yaml"), {"cwd": folder}),
    ):
        done = convkit(*arguments, env=environment, **options)
        assert done.returncode == 2, done.stderr
        assert b"not valid UTF-8" in done.stderr
        assert b"Traceback" not in done.stderr


def test_lines_in_files_and_pipes_end_with_their_last_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rich.padding import Padding
    from rich.text import Text

    content = Padding(Text(f"one two {EVIL}\n" + "word " * 40), (0, 0, 0, 2), expand=False)
    output_console().print(Encodable(content))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert lines == [line.rstrip() for line in lines]
    assert "\x1b" not in "".join(lines)


def test_colors_can_be_forced_into_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.text import Text

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    output_console().print(Encodable(Text("failed", style="red")))
    assert capsys.readouterr().out.startswith("\x1b[31mfailed")


def test_what_a_command_prints_has_no_raw_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "a\x1b]0;title\x07\x9b31mb"
    table = Table(hostile)
    table.add_row(hostile)
    console = output_console()
    console.print(hostile, table, markup=False)
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert "a^[]0;title" in shown
