"""Every command line in README and docs is one that convkit accepts."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import typer.core

from convkit.cli.main import app

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Stands for more arguments of the reader's, or for a part that a table explains elsewhere.
ELLIPSIS = re.compile(r"\[[A-Z|]+\](\.\.\.)?|\.\.\.|<[^>]+>")

# The base of all errors about command lines; typer does not export it.
USAGE_ERROR = typer.BadParameter.__mro__[1]


def command_lines(text: str) -> Iterator[str]:
    """Yield the command lines of a page: lines of blocks, and spans of code."""
    blocks = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for language, block in blocks:
        if language not in ("", "console", "bash"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"\s*(?:\$ )?(convkit [^#\n]+)", line):
                yield match[1].strip()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`(convkit [^`]+)`", outside):
        yield " ".join(span.split())


def refusal(line: str) -> str | None:
    """Return why convkit would not parse a command line; None if it would."""
    words = [word for word in shlex.split(line)[1:] if not ELLIPSIS.fullmatch(word)]
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="convkit")
    while isinstance(command, typer.core.TyperGroup):
        if not words or words[0].startswith("-"):
            return None if {"--version", "--help", "--install-completion"} & set(words) else line
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]!r}"
        command, words = found, words[1:]
        context = typer.Context(command, info_name=command.name, parent=context)
    try:
        command.make_parser(context).parse_args(list(words))
    except USAGE_ERROR as error:
        return error.format_message()
    return None


LINES = sorted(
    {
        (page.relative_to(ROOT).as_posix(), line)
        for page in PAGES
        for line in command_lines(page.read_text(encoding="utf-8"))
    }
)


def test_there_are_commands() -> None:
    assert len(LINES) > 100


@pytest.mark.parametrize(("page", "line"), LINES)
def test_convkit_accepts(page: str, line: str) -> None:
    assert refusal(line) is None, page


@pytest.mark.parametrize(
    "line", ["convkit runn x.yaml", "convkit run --no-such-option", "convkit store polish"]
)
def test_a_wrong_command_is_refused(line: str) -> None:
    assert refusal(line) is not None


def test_commands_are_found_in_blocks_and_in_spans() -> None:
    page = "Use `convkit plan\nRECIPE`.\n```console\n$ convkit run x.yaml  # quick\nverified\n```\n"
    assert list(command_lines(page)) == ["convkit run x.yaml", "convkit plan RECIPE"]


MAKE = re.compile(r"(?:^\s*(?:\$ )?|`)make ([a-z-]+)", re.MULTILINE)


def test_what_pages_make_is_in_the_makefile() -> None:
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for page in PAGES for name in MAKE.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert named - set(made) == set()
