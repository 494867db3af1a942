"""Turns recipe text into plain values, with the position of every key. docs/recipe.md describes the
YAML dialect.

It reads the parser's events one by one and rejects what recipes may not contain (aliases, tags, a
second document, deep nesting) before it builds any value.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator

import yaml

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath
from convkit.host.recipe.reading.syntax_errors import plain_syntax_error
from convkit.host.recipe.reading.yaml_scalars import PlainValue, ScalarError, plain_value
from convkit.protocol.errors import Problem, RecipeError
from convkit.protocol.json_codec import Json

MAX_DEPTH = 32
# libyaml's message for thousands of levels, from PyYAML 6.0.4 on.
_PARSERS_LIMIT = "maximum nesting depth"
# Characters that a recipe must not contain; ASCII texts need the short pattern only, and compiling
# the long one takes a hundredth of what a run that is up to date takes.
_UNPRINTABLE_ASCII = "[^\t\n\r\x20-\x7e]"
_UNPRINTABLE = (
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_LINE_BREAK = re.compile("\r\n|\r|\n")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclasses.dataclass(frozen=True)
class Position:
    """A position in a recipe's text. Line and column start at 1; columns count characters."""

    line: int
    column: int


@dataclasses.dataclass(frozen=True)
class Document:
    """A recipe's values and their positions.

    `keys` contains the position of each key (for a list item: the item), `values` that of each
    value, `sources` each unquoted scalar as written. `problems` are mistakes that did not stop the
    parser; values under the key paths in `unreliable` are meaningless.
    """

    content: Json
    keys: dict[KeyPath, Position]
    values: dict[KeyPath, Position]
    sources: dict[KeyPath, str]
    problems: tuple[Problem, ...]
    unreliable: frozenset[KeyPath]

    def existing(self, path: KeyPath) -> KeyPath:
        """Return the longest leading part of a key path that exists in the text."""
        while path and path not in self.keys:
            path = path[:-1]
        return path


def key_text(path: KeyPath) -> str:
    """Return a key path as people write it: targets.ort-cpu.precision, inputs[0].shape[1]."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part if part.isprintable() and len(part) <= 60 else repr(part[:60])
            text += f".{plain}" if text else plain
    return text


def read_document(text: str, file: str) -> Document:
    """Parse a recipe's text; raises RecipeError at the first syntax error. `file` is used in
    messages.
    """
    if found := _unprintable(text):
        lines = _LINE_BREAK.split(text[: found.start()])
        raise _refusal(
            file,
            Position(len(lines), len(lines[-1]) + 1),
            f"the unprintable character U+{ord(found[0]):04X}; remove it",
        )
    builder = _Builder(file)
    for event in _events(text, file):
        builder.take(event)
    return builder.document()


def _unprintable(text: str) -> re.Match[str] | None:
    return re.search(_UNPRINTABLE_ASCII if text.isascii() else _UNPRINTABLE, text)


def _events(text: str, file: str) -> Iterator[yaml.Event]:
    lines = _LINE_BREAK.split(text)
    taken = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            taken += 1
            yield event
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None and _PARSERS_LIMIT in str(error.problem):
            # The parser reads ahead, and refuses what the builder would refuse at an earlier place.
            shorter = yaml.parse(text[: mark.index - 1], Loader=_LOADER)
            yield from itertools.islice(shorter, taken, None)
        line, column, message = plain_syntax_error(error, lines)
        raise _refusal(file, _within(Position(line, column), lines), message) from error
    except (
        ValueError,
        OverflowError,
    ) as error:  # PyYAML's own parser, on an escape such as "\UFFFFFFFF"
        line = next((i for i, line in enumerate(lines) if "\\U" in line), 0)
        column = max(lines[line].find("\\U"), 0)
        raise _refusal(
            file, Position(line + 1, column + 1), "this escape is not a valid character"
        ) from error


def _within(position: Position, lines: list[str]) -> Position:
    """Return the position, or the end of the text if the parser points past it."""
    end = Position(len(lines), len(lines[-1]) + 1)
    if position.line > len(lines):
        return end
    return Position(position.line, min(position.column, len(lines[position.line - 1]) + 1))


def _refusal(file: str, position: Position, message: str) -> RecipeError:
    return RecipeError(problems=(Problem(file, position.line, position.column, "", message),))


@dataclasses.dataclass
class _Frame:
    """A mapping or list being read. `key` is a mapping's key that still needs its value."""

    container: dict[str, Json] | list[Json]
    path: KeyPath
    key: str | None = None
    drop: bool = False


class _Builder:
    """Builds a document from the parser's events, without recursion."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._frames: list[_Frame] = []
        self._content: Json = None
        self._documents = 0
        self._keys: dict[KeyPath, Position] = {}
        self._values: dict[KeyPath, Position] = {}
        self._sources: dict[KeyPath, str] = {}
        self._problems: list[Problem] = []
        self._unreliable: set[KeyPath] = set()

    def document(self) -> Document:
        """Return the finished document."""
        if self._content is None:
            raise _refusal(
                self._file, Position(1, 1), "the file is empty; `convkit init` drafts a recipe"
            )
        problems = tuple(self._problems)
        return Document(
            self._content,
            self._keys,
            self._values,
            self._sources,
            problems,
            frozenset(self._unreliable),
        )

    def take(self, event: yaml.Event) -> None:
        """Process the next event."""
        match event:
            case yaml.StreamStartEvent() | yaml.StreamEndEvent() | yaml.DocumentEndEvent():
                return
            case yaml.DocumentStartEvent():
                self._start_document(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._frames.pop()
            case yaml.ScalarEvent():
                frame = self._frames[-1] if self._frames else None
                if frame is not None and isinstance(frame.container, dict) and frame.key is None:
                    self._key(frame, event)
                else:
                    self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)

    def _start_document(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if event.version or event.tags:
            raise _refusal(
                self._file, _position(event), "directives (%...) are not supported; remove it"
            )
        if self._documents > 1:
            raise _refusal(
                self._file,
                _position(event),
                "a second document starts here (---); a recipe is a single document",
            )

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self._frames) == MAX_DEPTH:
            raise _refusal(
                self._file, _position(event), f"nested more than {MAX_DEPTH} levels deep"
            )
        if self._expects_key():
            raise _refusal(
                self._file,
                _position(event),
                "a list or mapping cannot be a key; write a plain key before the colon",
            )
        container: dict[str, Json] | list[Json] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        path = self._place(event, container)
        self._refuse_extras(event, path)
        self._frames.append(_Frame(container, path))

    def _expects_key(self) -> bool:
        return (
            bool(self._frames)
            and isinstance(self._frames[-1].container, dict)
            and self._frames[-1].key is None
        )

    def _key(self, frame: _Frame, event: yaml.ScalarEvent) -> None:
        """Use a scalar as the mapping's next key."""
        assert isinstance(frame.container, dict)
        frame.key, frame.drop = event.value, False
        path = (*frame.path, event.value)
        self._refuse_extras(event, path)
        self._check_key(event, path)
        if event.value in frame.container:
            first = self._keys[path]
            frame.drop = True
            self._problem(
                path,
                _position(event),
                f"duplicate key, first used in line {first.line}; remove one",
            )
        self._keys.setdefault(path, _position(event))

    def _check_key(self, event: yaml.ScalarEvent, path: KeyPath) -> None:
        text: str = event.value
        if unprintable := _unprintable(text):
            message = (
                f"a key contains the unprintable character U+{ord(unprintable[0]):04X}; remove it"
            )
        elif not event.implicit[0]:
            return
        elif text == "<<":
            message = "merge keys (<<) are not supported; write the keys out"
        elif text == "":
            message = "a key is missing before the colon"
        elif not _is_text(text):
            message = f'a key must be text; put it in quotes if you mean it: "{text}"'
        else:
            return
        self._problem(path, _position(event), message, unreliable=True)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        value: PlainValue = event.value
        message = None
        if event.implicit[0]:
            try:
                value = plain_value(event.value)
            except ScalarError as error:
                message = str(error)
        elif unprintable := _unprintable(event.value):
            message = (
                f"an escape for the unprintable character U+{ord(unprintable[0]):04X}; remove it"
            )
        path = self._place(event, value)
        if event.implicit[0]:
            self._sources.setdefault(path, event.value)
        self._refuse_extras(event, path)
        if message:
            self._problem(path, _position(event), message, unreliable=True)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if self._expects_key():
            raise _refusal(
                self._file, _position(event), "an alias cannot be a key; write the key out"
            )
        path = self._place(event, None)
        message = f"aliases (*{event.anchor}) are not supported; write the value out in each place"
        self._problem(path, _position(event), message, unreliable=True)

    def _refuse_extras(self, event: yaml.NodeEvent, path: KeyPath) -> None:
        """Report an anchor or a tag."""
        if event.anchor is not None:
            message = (
                f"anchors (&{event.anchor}) are not supported; remove it and write the value out"
                " where it is used"
            )
            self._problem(path, _position(event), message)
        tag = getattr(event, "tag", None)
        if tag is not None:
            short = tag.replace("tag:yaml.org,2002:", "!!")
            message = f"tags ({short}) are not supported; write the plain value"
            self._problem(path, _position(event), message, unreliable=True)

    def _place(self, event: yaml.Event, value: Json) -> KeyPath:
        """Store a value in its parent and return its key path."""
        if not self._frames:
            self._content = value
            self._keys[()] = self._values[()] = _position(event)
            return ()
        frame = self._frames[-1]
        if isinstance(frame.container, list):
            path: KeyPath = (*frame.path, len(frame.container))
            frame.container.append(value)
            self._keys.setdefault(path, _position(event))
        else:
            assert frame.key is not None
            path = (*frame.path, frame.key)
            if not frame.drop:
                frame.container[frame.key] = value
            frame.key = None
        self._values.setdefault(path, _position(event))
        return path

    def _problem(
        self, path: KeyPath, position: Position, message: str, *, unreliable: bool = False
    ) -> None:
        if any(path[:length] in self._unreliable for length in range(len(path) + 1)):
            return
        self._problems.append(
            Problem(self._file, position.line, position.column, key_text(path), message)
        )
        if unreliable:
            self._unreliable.add(path)


def _position(event: yaml.Event) -> Position:
    assert event.start_mark is not None  # both parsers mark every event
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _is_text(text: str) -> bool:
    try:
        return isinstance(plain_value(text), str)
    except ScalarError:
        return False
