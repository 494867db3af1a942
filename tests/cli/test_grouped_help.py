"""`convkit --help` lists every command once, under a heading, without cutting its description."""

import typer.main
from command_line import convkit

from convkit.cli.main import app


def test_every_command_is_listed_once_under_a_heading() -> None:
    done = convkit("--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        (line,) = [each for each in lines if each.split()[:1] == [name] and each.startswith("  ")]
        assert not line.endswith("..."), line
        above = [each for each in lines[: lines.index(line)] if each.endswith(":")]
        assert above[-1] == f"{command.rich_help_panel}:"


def test_lines_fit_a_terminal_of_eighty_columns() -> None:
    output = convkit("--help").stdout
    assert max(map(len, output.splitlines())) <= 80
    assert "convkit run recipe.yaml --repair" in output
