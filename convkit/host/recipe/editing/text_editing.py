"""Changes values in a recipe's text and leaves every other character as its author wrote it.

Comments, order, quotes, alignment and line endings stay; only changed values are rewritten. A round
trip through a YAML emitter would reformat every flow mapping and indentation, and bury the change
in noise. The result is parsed again before it is returned, so a text that cannot be edited this way
is rejected, never damaged.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from convkit.host.recipe.reading.yaml_document import read_document
from convkit.host.recipe.reading.yaml_scalars import ScalarError, plain_value
from convkit.protocol.errors import RecipeError
from convkit.protocol.json_codec import Json

# Text that never needs quotes, even inside brackets.
_PLAIN = re.compile(r"[A-Za-z_./][\w./*+-]*( [\w./*+-]+)*")


class EditError(ValueError):
    """A recipe's text cannot be edited in place."""


def edited(text: str, wanted: Json) -> str:
    """Return a recipe's text, edited so that its values become `wanted`; raises EditError if that
    fails.

    `text` must be a valid recipe. List items are matched by `name` or value, so they can move, and
    their comments move with them.
    """
    present = read_document(text, "recipe").content
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None  # an empty document is not a recipe
    result = _Editor(text).document(root, present, wanted)
    try:
        found = read_document(result, "recipe")
    except RecipeError as error:
        raise EditError(f"the recipe's text cannot be edited in place: {error}") from error
    if found.problems or _canonical(found.content) != _canonical(wanted):
        raise EditError(
            "the recipe's text cannot be edited in place, because its layout is unusual"
        )
    return result


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def same(one: Json, other: Json) -> bool:
    """Return whether two values are equal in YAML, where 1, 1.0 and true differ."""
    return _canonical(one) == _canonical(other)


class _Editor:
    """Writes the new text of nodes. A node's span is its source; a block ends after its last line,
    including the comment.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._padding = (
            " " if len(re.findall(r"\{ ", text)) > len(re.findall(r"\{[^ }]", text)) else ""
        )

    def document(self, root: yaml.Node, present: Json, wanted: Json) -> str:
        start, end = self._start(root), self._end(root)
        return self._text[:start] + self._node(root, present, wanted) + self._text[end:]

    def _start(self, node: yaml.Node) -> int:
        index: int = node.start_mark.index
        return index

    def _content_end(self, node: yaml.Node) -> int:
        """Return the end of a node's own text. The parser puts a block's end after any comments
        that follow it.
        """
        if _is_block(node) and node.value:
            last = node.value[-1]
            return self._content_end(last[1] if isinstance(last, tuple) else last)
        end: int = node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            return len(self._text[:end].rstrip())
        return end

    def _end(self, node: yaml.Node) -> int:
        end = self._content_end(node)
        return self._line_end(end) if _is_block(node) else end

    def _line_end(self, index: int) -> int:
        found = re.compile(r"\r\n|\r|\n").search(self._text, index)
        return found.start() if found else len(self._text)

    def _node(self, node: yaml.Node, present: Json, wanted: Json) -> str:
        """Return the new text for a node's span."""
        start, end = self._start(node), self._end(node)
        if same(present, wanted):
            return self._text[start:end]
        if isinstance(node, yaml.MappingNode) and isinstance(wanted, dict) and wanted:
            return (self._block_mapping if _is_block(node) else self._flow_mapping)(
                node, present, wanted
            )
        if isinstance(node, yaml.SequenceNode) and isinstance(wanted, list) and wanted:
            return (self._block_sequence if _is_block(node) else self._flow_sequence)(
                node, present, wanted
            )
        return (
            self.written(wanted) if end > start else f" {self.written(wanted)}"
        )  # there was nothing after the colon

    # Mappings
    # ------------------------------------------------------------------------------------------

    def _entry(
        self, key: yaml.Node, value: yaml.Node, name: str, present: Json, wanted: Json
    ) -> str:
        """Return an entry's new text, from its key to the end of its value."""
        start, end = self._start(key), self._start(value)
        key_text = (
            self._text[start : key.end_mark.index] if key.value == name else self.written(name)
        )
        if not _is_block(value) or same(present, wanted):
            return (
                key_text + self._text[key.end_mark.index : end] + self._node(value, present, wanted)
            )
        if isinstance(value, yaml.MappingNode) and isinstance(wanted, dict) and wanted:
            return (
                key_text
                + self._text[key.end_mark.index : end]
                + self._block_mapping(value, present, wanted)
            )
        if isinstance(value, yaml.SequenceNode) and isinstance(wanted, list) and wanted:
            line_end = self._line_end(key.end_mark.index)
            head = self._text[key.end_mark.index : line_end]
            return key_text + head + self._block_sequence(value, present, wanted, line_end)
        return f"{key_text}: {self.written(wanted)}"

    def _block_mapping(
        self, node: yaml.Node, present: dict[str, Json], wanted: dict[str, Json]
    ) -> str:
        names = _renamed(present, wanted)
        indent = " " * node.value[0][0].start_mark.column
        text, end = "", self._start(node)
        for key, value in node.value:
            lead = self._text[end : self._start(key)]
            end = self._line_end(self._content_end(value))
            name = names.get(key.value, key.value)
            if name not in wanted:
                # Drop its line, but keep what is above it, perhaps a comment.
                text += lead.rstrip(" ").removesuffix(self._newline)
                continue
            entry = self._entry(key, value, name, present[key.value], wanted[name])
            tail = "" if _is_block(value) else self._text[self._content_end(value) : end]
            # The first entry that stays takes the place where the mapping began, without blanks.
            above = text + lead if text.strip() else lead.lstrip(" \r\n")
            text = above + entry + tail
        for name in [name for name in wanted if name not in present and name not in names.values()]:
            text += f"{self._newline}{indent}{self.written(name)}: {self.written(wanted[name])}"
        return text

    def _flow_mapping(
        self, node: yaml.Node, present: dict[str, Json], wanted: dict[str, Json]
    ) -> str:
        names = _renamed(present, wanted)
        spans = [(self._start(key), self._end(value)) for key, value in node.value]
        items: list[tuple[int | None, str]] = []
        for place, (key, value) in enumerate(node.value):
            name = names.get(key.value, key.value)
            if name in wanted:
                items.append(
                    (place, self._entry(key, value, name, present[key.value], wanted[name]))
                )
        new = [name for name in wanted if name not in present and name not in names.values()]
        items += [(None, f"{self.written(name)}: {self.written(wanted[name])}") for name in new]
        return self._flow(node, spans, items)

    # Lists
    # ------------------------------------------------------------------------------------------

    def _flow_sequence(self, node: yaml.Node, present: list[Json], wanted: list[Json]) -> str:
        spans = [(self._start(item), self._end(item)) for item in node.value]
        items = [
            (
                place,
                (
                    self.written(value)
                    if place is None
                    else self._node(node.value[place], present[place], value)
                ),
            )
            for place, value in zip(_origins(present, wanted), wanted, strict=True)
        ]
        return self._flow(node, spans, items)

    def _flow(
        self,
        node: yaml.Node,
        spans: Sequence[tuple[int, int]],
        items: Sequence[tuple[int | None, str]],
    ) -> str:
        """Return a bracket with new items, keeping the existing separators."""
        start, end = self._start(node), self._end(node)
        if not spans:
            opening, closing = self._text[start], self._text[end - 1]
            return f"{opening}{', '.join(text for _, text in items)}{closing}"
        text = self._text[start : spans[0][0]]
        for number, (_, item) in enumerate(items):
            if number:
                known = number < len(spans)
                text += self._text[spans[number - 1][1] : spans[number][0]] if known else ", "
            text += item
        return text + self._text[spans[-1][1] : end]

    def _block_sequence(
        self, node: yaml.Node, present: list[Json], wanted: list[Json], start: int | None = None
    ) -> str:
        """Return a list's new text. Comments above items, after `start` (the end of its key's
        line), move with them.
        """
        end = self._start(node) if start is None else start
        leads, bodies = [], []
        for item in node.value:
            dash = self._dash(end, item)
            leads.append(self._text[end:dash])
            end = self._line_end(self._content_end(item))
            bodies.append((dash, end))
        fresh = f"{self._newline}{' ' * self._column(bodies[0][0])}"
        text = ""
        for place, value in zip(_origins(present, wanted), wanted, strict=True):
            if place is None:
                text += f"{fresh}- {self.written(value)}"
                continue
            item, (dash, last) = node.value[place], bodies[place]
            tail = "" if _is_block(item) else self._text[self._end(item) : last]
            body = (
                self._text[dash : self._start(item)]
                + self._node(item, present[place], value)
                + tail
            )
            text += (leads[place] or (fresh if text else "")) + body
        return text

    def _dash(self, start: int, item: yaml.Node) -> int:
        """Return the position of an item's dash: the last one before it outside of comments."""
        lines = self._text[start : self._start(item)]
        places = [match.start(1) for match in re.finditer(r"(?m)^[ ]*(-)(?=\s|$)", lines)] or [
            lines.rfind("-")
        ]
        return start + places[-1]

    def _column(self, index: int) -> int:
        return index - max(self._text.rfind("\n", 0, index), self._text.rfind("\r", 0, index)) - 1

    # New text
    # ------------------------------------------------------------------------------------------

    def written(self, value: Json) -> str:
        """Return a value as text on one line, in the style of the recipe's own brackets."""
        if isinstance(value, dict):
            pairs = ", ".join(
                f"{self.written(key)}: {self.written(item)}" for key, item in value.items()
            )
            return f"{{{self._padding}{pairs}{self._padding}}}" if pairs else "{}"
        if isinstance(value, list):
            return f"[{', '.join(map(self.written, value))}]"
        if isinstance(value, str):
            return value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
        return json.dumps(value)


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _is_plain(text: str) -> bool:
    try:
        return bool(_PLAIN.fullmatch(text)) and plain_value(text) == text
    except ScalarError:
        return False


def _renamed(present: dict[str, Json], wanted: dict[str, Json]) -> dict[str, str]:
    """Return the key that was renamed, if any: exactly one key is gone and one is new."""
    gone = [key for key in present if key not in wanted]
    come = [key for key in wanted if key not in present]
    if len(gone) == len(come) == 1 and same(present[gone[0]], wanted[come[0]]):
        return {gone[0]: come[0]}
    return {}


def _origins(present: list[Any], wanted: list[Any]) -> list[int | None]:
    """Return the old index of each wanted item, matched by value, name or position."""
    origins: list[int | None] = [None] * len(wanted)
    left = list(range(len(present)))

    def alike(place: int, item: Any) -> Iterator[int]:  # noqa: ANN401 - any value of a recipe
        if place in left and same(present[place], item):
            yield place

    def equal(place: int, item: Any) -> Iterator[int]:  # noqa: ANN401, ARG001
        yield from (i for i in left if same(present[i], item))

    def named(place: int, item: Any) -> Iterator[int]:  # noqa: ANN401, ARG001
        if isinstance(item, dict) and "name" in item:
            yield from (
                i
                for i in left
                if isinstance(present[i], dict) and present[i].get("name") == item["name"]
            )

    def placed(place: int, item: Any) -> Iterator[int]:  # noqa: ANN401
        if place in left and isinstance(present[place], dict) == isinstance(item, dict):
            yield place

    for candidates in (alike, equal, named, placed):
        for place, item in enumerate(wanted):
            if (
                origins[place] is None
                and (found := next(candidates(place, item), None)) is not None
            ):
                origins[place] = found
                left.remove(found)
    return origins
