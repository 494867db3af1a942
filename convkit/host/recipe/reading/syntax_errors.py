"""YAML syntax errors in plain words, for libyaml and PyYAML's own parser, which differ in their
messages.
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
        return *tab, "this line is indented with a tab; use spaces"
    character = _character(lines, mark)
    message = _message(error.problem or "", error.context or "", opened.line + 1, character)
    at = opened if message.startswith(_OPENING) else mark
    behind = (
        message.startswith(_ESCAPE) and character != "\\" and at.column > 0
    )  # PyYAML's own parser points behind it
    return at.line + 1, at.column + (0 if behind else 1), message


# These messages refer to where something opens, not where the parser noticed the error.
_OPENING = ("the quote", "a key without")
_ESCAPE = "unknown escape"


# Parts of the parser's problem and context, and convkit's message; the first match counts.
# {opened} is the line where the parser's context begins.
_MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "",
        (
            "a 'key: value' pair is not allowed here; check the indentation and that the line"
            " before is complete, and quote text that contains ': '"
        ),
    ),
    (
        "sequence entries are not allowed",
        "",
        (
            "a list cannot start on the line of its key; start it on the next line, or write it as"
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
            "the recipe ends before this text; check the brackets and the indentation of the"
            " first line"
        ),
    ),
    ("escape", "", "unknown escape; double the backslash, or use single quotes"),
    ("incompatible YAML", "", "directives (%...) are not supported; remove it"),
    ("", "directive", "directives (%...) are not supported; remove it"),
    ("", "flow sequence", "expected ',' or ']' in the list that opens in line {opened}"),
    ("", "flow mapping", "expected ',' or '}}' in the mapping that opens in line {opened}"),
    ("", "flow node", "a value is missing here"),
    ("", "block node", "a value is missing here"),
    (
        "",
        "block mapping",
        (
            "this does not fit the mapping that starts in line {opened}: its keys must be in one"
            " column, and a value that contains quotes, brackets or '*' may need quotes around"
            " all of it"
        ),
    ),
    (
        "",
        "block collection",
        "expected another '- item' of the list that starts in line {opened}, in the same column",
    ),
    ("", "block scalar", "text after | or > must start on the next line"),
    (
        "",
        "anchor",
        "anchors (&) and aliases (*) are not supported; quote text that starts like this",
    ),
    (
        "",
        "alias",
        "anchors (&) and aliases (*) are not supported; quote text that starts like this",
    ),
    ("", "tag", "tags (!) are not supported; quote text that starts like this"),
)


def _message(problem: str, context: str, opened: int, character: str) -> str:
    if "cannot start any token" in problem and character and character in _NEEDS_QUOTES:
        return f"text that starts with {character!r} needs quotes"
    if (
        character
        and character in _CLOSERS
        and "flow sequence" not in context
        and "flow mapping" not in context
    ):
        return (
            f"unmatched {character!r}; is a {_CLOSERS[character]!r} or a value missing before it?"
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
