"""Draws the documentation's pictures of a terminal by running convkit: `make pictures`."""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

_ROOT = Path(__file__).resolve().parent.parent
_WIDTH = 88
_THEME = TerminalTheme(
    (24, 28, 33),
    (216, 222, 229),
    [
        (60, 66, 74),
        (240, 113, 120),
        (130, 200, 120),
        (230, 190, 100),
        (110, 170, 245),
        (200, 140, 230),
        (100, 200, 210),
        (216, 222, 229),
    ],
)
# What was left out, and the report's path, which is of a folder that is gone.
_AFTER_FINDINGS = re.compile(r"^Not verified|^Report: |^\d+ cases? do(es)? not apply ")
# Pictures by name: what was typed, and from which line on its output is shown.
_PICTURES = {
    "overflow": ("convkit run matcher.yaml", "half"),
    "repair": ("convkit run matcher.yaml --repair", "Repair: "),
}


def main() -> None:
    """Run each command in a fresh home and write its picture beside this file."""
    with tempfile.TemporaryDirectory() as home:
        for name, (command, first) in _PICTURES.items():
            output = _without_help(_from_line(_run(command, home), first))
            (_ROOT / "docs" / "pictures" / f"{name}.svg").write_text(
                _drawn(command, output, name), encoding="utf-8"
            )


def _run(command: str, home: str) -> str:
    """Return what a command prints in color, whether it succeeds or finds something."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "convkit",
            *command.split()[1:],
            "--toolchain",
            "host",
            "--no-track",
        ],
        cwd=_ROOT / "examples" / "overflow",
        env=os.environ | {"CONVKIT_HOME": home, "FORCE_COLOR": "1", "COLUMNS": str(_WIDTH)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def _from_line(output: str, first: str) -> list[str]:
    """Return the lines from the one that starts with `first` to what follows the findings."""
    lines = output.splitlines()
    plain = [Text.from_ansi(line).plain for line in lines]
    start = next(place for place, line in enumerate(plain) if line.startswith(first))
    end = next(
        (place for place in range(start, len(plain)) if _AFTER_FINDINGS.search(plain[place])),
        len(plain),
    )
    return lines[start:end]


def _without_help(lines: list[str]) -> list[str]:
    """Leave out the last lines that repeat the command with the options of this script."""
    return [line for line in lines if "--toolchain host" not in Text.from_ansi(line).plain]


def _drawn(command: str, lines: list[str], name: str) -> str:
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line))
    console.print()  # the last line's underscores would be cut off
    picture = console.export_svg(title="convkit", theme=_THEME, unique_id=name)
    # Rich names a font on a server; the reader's own will do, and nothing is requested.
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)


if __name__ == "__main__":
    main()
