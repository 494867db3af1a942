"""YAML's syntax errors in plain words. libyaml and PyYAML's own parser word them differently; both
are known here.
"""

import yaml

_NEEDS_QUOTES = "@`%"
_CLOSERS = {"]": "[", "}": "{"}


def plain_syntax_error(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[int, int, str]:
    """Return line, column (both from 1) and what to write instead. `lines` is the text."""
    mark = error.problem_mark or error.context_mark
    opened = error.context_mark or mark
    if mark is None or opened is None:
        return 1, 1, f"this is not YAML: {error.problem}"
    if tab := _indenting_tab(lines, mark.line):
        return *tab, "a tab indents this line; use spaces, which look the same in every editor"
    character = _character(lines, mark)
    message = _message(error.problem or "", error.context or "", opened.line + 1, character)
    at = opened if message.startswith(_OPENING) else mark
    behind = (
        message.startswith(_ESCAPE) and character != "\\" and at.column > 0
    )  # PyYAML's own parser points behind it
    return at.line + 1, at.column + (0 if behind else 1), message


# Messages that begin so are about where a thing opens, not where the parser noticed.
_OPENING = ("the quote", "a key without")
_ESCAPE = "this backslash"


# What the parser says (a part of its problem, a part of its context) and what convkit says; the
# first that fits. {opened} is the line in which the parser's context begins.
_MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "",
        (
            "no 'key: value' can stand here; check that the line before it is complete and the"
            " indentation right, and quote text that has ': ' in it"
        ),
    ),
    (
        "sequence entries are not allowed",
        "",
        (
            "a list cannot begin on the line of its key; begin it on the next line, or write it as"
            " [...]"
        ),
    ),
    (
        "could not find expected ':'",
        "",
        "a key without a value; write 'key: value', with a space after the colon",
    ),
    ("unexpected end of stream", "", "the quote that opens here is never closed"),
    (
        "document start",
        "",
        (
            "the recipe has ended before this text; check the brackets and the indentation of the"
            " first line"
        ),
    ),
    (
        "escape",
        "",
        "this backslash begins no known escape; write two of them, or use single quotes",
    ),
    ("incompatible YAML", "", "a directive (%...) has no place in a recipe; remove it"),
    ("", "directive", "a directive (%...) has no place in a recipe; remove it"),
    ("", "flow sequence", "expected ',' or ']' in the list that opens in line {opened}"),
    ("", "flow mapping", "expected ',' or '}}' in the mapping that opens in line {opened}"),
    ("", "flow node", "a value is missing here"),
    ("", "block node", "a value is missing here"),
    (
        "",
        "block mapping",
        (
            "this does not fit the mapping that begins in line {opened}: its keys must stand in one"
            " column, and a value that holds quotes, brackets or '*' may need quotes around the"
            " whole of it"
        ),
    ),
    (
        "",
        "block collection",
        "expected another '- item' of the list that begins in line {opened}, in the same column",
    ),
    ("", "block scalar", "text after | or > begins on the next line"),
    ("", "anchor", "anchors (&) and aliases (*) are not read; quote text that begins so"),
    ("", "alias", "anchors (&) and aliases (*) are not read; quote text that begins so"),
    ("", "tag", "tags (!) are not read; quote text that begins so"),
)


def _message(problem: str, context: str, opened: int, character: str) -> str:
    if "cannot start any token" in problem and character and character in _NEEDS_QUOTES:
        return f"text that begins with {character!r} needs quotes"
    if (
        character
        and character in _CLOSERS
        and "flow sequence" not in context
        and "flow mapping" not in context
    ):
        return (
            f"nothing for this {character!r} to close; is a {_CLOSERS[character]!r} or a value"
            " missing before it?"
        )
    for problem_part, context_part, message in _MESSAGES:
        if problem_part in problem and context_part in context:
            return message.format(opened=opened)
    return f"this is not YAML: {problem}"


def _indenting_tab(lines: list[str], line: int) -> tuple[int, int] | None:
    """Return line and column (from 1) of a tab in the indentation of this line, or None."""
    text = lines[line] if line < len(lines) else ""
    indentation = text[: len(text) - len(text.lstrip())]
    return (line + 1, indentation.index("\t") + 1) if "\t" in indentation else None


def _character(lines: list[str], mark: yaml.Mark) -> str:
    text = lines[mark.line] if mark.line < len(lines) else ""
    return text[mark.column : mark.column + 1]
