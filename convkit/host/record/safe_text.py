"""Writes text of models, recipes and tools so that it is text in every medium. Pure; standard
library only.

Names may contain anything: what acts on a terminal, in a page, in Markdown or in XML, and what
makes a name read differently from what it is. One function for each medium: `visible` for any text
(pages escape its markup besides), `markdown_text`, `xml_text`; `convkit.cli.output.safe_text` is
the terminal's.
"""

import re

# Controls but line feed and tab, lone surrogates, and what reorders or hides text (Unicode's bidi
# controls, UAX #9, zero-width characters, line and paragraph separators).
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069"
    "\ud800-\udfff\ufeff\ufffe\uffff\U000e0000-\U000e007f]"
)
# Colors of tools.
_ESCAPE_SEQUENCE = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")
# Punctuation that may mean something inside a line of Markdown (CommonMark 0.31, 6, and GitHub's
# extensions): any of it may be escaped with a backslash.
# An underscore between letters or digits, as in `max_abs`, means nothing.
_MARKUP = re.compile(r"([\\`*|>\[\]#~]|(?<![^\W_])_|_(?![^\W_]))")
# Of it, what MLflow's renderer (showdown) shows with the backslash; every renderer reads these.
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", "$": "&#36;", "@": "&#64;"})
# What begins a list, a heading's underline or a code block, at the start of a line.
_START = re.compile(r"([-+=]|\d+(?=[.)](?:\s|$)))")
# A colon and a point are parts of an address that GitHub links by itself.
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp):|\b(www)\.")


def visible(text: str) -> str:
    """Return text with control characters and direction marks written as escape sequences; line
    feeds and tabs stay.
    """
    return _INVISIBLE.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return text as `visible` does, on one line."""
    return visible(" ".join(text.split()))


def markdown_text(text: str) -> str:
    """Return text for a line or a table's cell of Markdown, where nothing in it is Markdown, HTML
    or a link.
    """
    escaped = _MARKUP.sub(r"\\\1", one_line(text)).translate(_ENTITIES)
    escaped = _ADDRESS.sub(
        lambda match: f"{match[1]}&#58;" if match[1] else f"{match[2]}&#46;", escaped
    )
    start = _START.match(escaped)
    if start is None:
        return escaped
    end = start.end()
    return f"{escaped[:end]}\\{escaped[end:]}" if start[1].isdecimal() else f"\\{escaped}"


def xml_text(text: str) -> str:
    """Return text without tools' colors and without characters that XML 1.0 does not allow."""
    return visible(_ESCAPE_SEQUENCE.sub("", text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
