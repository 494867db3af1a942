"""Edits of a recipe's text change what they must and nothing else."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convkit.host.recipe.editing.text_editing import EditError, edited
from convkit.host.recipe.reading.yaml_document import read_document

RECIPES = sorted((Path(__file__).parents[4] / "recipes").glob("*.yaml"))


def content(text: str) -> Any:
    return read_document(text, "recipe").content


TEXT = """\
# heading
a:   1   # one
list:
  # above x
  - {name: x,   dtype: int64}   # x itself
  - name: y
    dtype: 'int32' # quoted

  # above z
  - { name: z }
flow: {k: [1, 2,   3], "q": 'v'}  # trailing
deep:
    inner:  # of inner
        p: 1.0e-4 # tolerance

# last
end: yes please
"""


class TestOneChange:
    def edit(self, change: Any) -> list[tuple[str, str]]:
        """Return the lines that an edit changed, before and after."""
        wanted = copy.deepcopy(content(TEXT))
        change(wanted)
        new = edited(TEXT, wanted)
        assert content(new) == wanted
        before, after = TEXT.splitlines(), new.splitlines()
        if len(before) != len(after):
            return [("", line) for line in after if line not in before] + [
                (line, "") for line in before if line not in after
            ]
        return [(a, b) for a, b in zip(before, after, strict=True) if a != b]

    def test_nothing(self) -> None:
        assert edited(TEXT, content(TEXT)) == TEXT

    def test_a_value_keeps_its_comment_and_its_spaces(self) -> None:
        assert self.edit(lambda c: c.update(a=2)) == [("a:   1   # one", "a:   2   # one")]

    def test_a_key_in_brackets(self) -> None:
        def change(c: Any) -> None:
            c["list"][0]["dtype"] = "int32"
            c["list"][0]["shape"] = ["batch", 3]

        assert self.edit(change) == [
            (
                "  - {name: x,   dtype: int64}   # x itself",
                "  - {name: x,   dtype: int32, shape: [batch, 3]}   # x itself",
            )
        ]

    def test_a_key_after_the_last_stands_before_what_follows_it(self) -> None:
        assert self.edit(lambda c: c["deep"]["inner"].update(r=[1])) == [("", "        r: [1]")]

    def test_a_key_that_goes_takes_its_line_with_it(self) -> None:
        assert self.edit(lambda c: c.pop("flow")) == [
            ("flow: {k: [1, 2,   3], \"q\": 'v'}  # trailing", "")
        ]
        assert self.edit(lambda c: c.pop("a")) == [("a:   1   # one", "")]
        assert self.edit(lambda c: c.pop("end")) == [("end: yes please", "")]

    def test_a_block_becomes_one_value(self) -> None:
        def change(c: Any) -> None:
            c["deep"] = 3

        assert ("", "deep: 3") in self.edit(change)

    def test_items_move_with_their_comments(self) -> None:
        wanted = content(TEXT)
        wanted["list"].reverse()
        new = edited(TEXT, wanted)
        assert content(new) == wanted
        assert (
            new[new.index("list:") : new.index("flow:")]
            == "list:\n\n  # above z\n  - { name: z }\n  - name: y\n    dtype: 'int32' # quoted\n"
            "  # above x\n  - {name: x,   dtype: int64}   # x itself\n"
        )

    def test_an_item_that_goes_takes_its_comments_with_it(self) -> None:
        wanted = content(TEXT)
        del wanted["list"][2]
        new = edited(TEXT, wanted)
        assert new == TEXT.replace("\n  # above z\n  - { name: z }\n", "")

    def test_a_new_item_looks_like_the_recipe_s_own(self) -> None:
        assert self.edit(lambda c: c["list"].insert(1, {"name": "n", "s": {"i": [0, 2]}})) == [
            ("", "  - {name: n, s: {i: [0, 2]}}")
        ]

    def test_a_key_gets_another_name_in_its_place(self) -> None:
        def change(c: Any) -> None:
            c["flow"] = {"k": [1, 2, 3], "new name": "v"}

        assert self.edit(change) == [
            (
                "flow: {k: [1, 2,   3], \"q\": 'v'}  # trailing",
                "flow: {k: [1, 2,   3], new name: 'v'}  # trailing",
            )
        ]


def test_text_that_reads_as_something_else_is_quoted() -> None:
    for value in (
        "1.5",
        "true",
        "null",
        "*.a",
        "a: b",
        "a #b",
        "",
        "- x",
        "[x]",
        "a, b",
        "\u00e9",
        "~",
        "{",
        "'",
        '"',
    ):
        assert content(edited("a: {b: 1}\n", {"a": {"b": value}})) == {"a": {"b": value}}


def test_one_and_true_are_not_the_same() -> None:
    assert edited("a: 1\n", {"a": True}) == "a: true\n"
    assert edited("a: 1\n", {"a": 1.0}) == "a: 1.0\n"


def test_a_text_of_flow_alone_and_one_without_its_last_line_break() -> None:
    assert (
        edited("{a: 1, b: [x]}", {"a": 1, "b": ["x", "y"], "c": {}}) == "{a: 1, b: [x, y], c: {}}"
    )
    assert edited("a: 1\nb: 2", {"a": 1, "b": 2, "c": 3}) == "a: 1\nb: 2\nc: 3"


def test_brackets_over_several_lines_keep_them() -> None:
    text = "a: [\n  x,  # first\n  y,\n]\nb: 1\n"
    assert edited(text, {"a": ["x", "y", "z"], "b": 1}) == "a: [\n  x,  # first\n  y, z,\n]\nb: 1\n"
    assert edited(text, {"a": ["z", "y"], "b": 1}) == "a: [\n  z,  # first\n  y,\n]\nb: 1\n"


def test_windows_line_ends_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    wanted = content(text)
    wanted["deep"]["inner"]["new"] = 1
    wanted["list"].append({"name": "w"})
    new = edited(text, wanted)
    assert "\n" not in new.replace("\r\n", "")
    assert content(new) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: b\n  c\nd: 1\n", {"a": "x", "d": 1}),  # a plain text over two lines
        ("a: |\n  text\n  more\n\n# c\nb: 1\n", {"a": "text\nmore\n", "b": 2, "c": 3}),
        ("b: 1\na: |\n  text\n  more\n", {"a": "text\nmore\n", "b": 1, "c": 3}),
        ("a:\nb: 1\n", {"a": {"x": 1}, "b": 1}),
        ("a: {}\nb: []\n", {"a": {"x": 1}, "b": ["y"]}),
        ("a:\n- x\n- y\n", {"a": ["y", "x", "z"]}),
        ("a:\n- - x\n  - y\n- - z\n", {"a": [["z"], ["y", "x"]]}),
        ("---\na: 1\n", {"a": 2}),
        ("? a\n: 1\n", {"a": 2}),
        ("? a\n: 1\n", {"b": 1}),
        ("a: 1 # c", {}),
    ],
)
def test_unusual_texts_are_edited_rightly_or_refused(text: str, wanted: Any) -> None:
    try:
        assert content(edited(text, wanted)) == wanted
    except EditError as error:
        assert "cannot be edited in place" in str(error)  # noqa: PT017 - one of the two must hold


def test_what_cannot_be_edited_is_refused() -> None:
    with pytest.raises(EditError, match="in place"):
        edited("? a\n:\n  - 1\n", {"a": [1, 2], "b": float("1e300")})


# Documents as people write them: blocks and brackets, comments on lines and above them, several
# indentations. --------

WORDS = st.sampled_from(["x", "y", "z", "a b", "1", "true", "input.1", "*", "#", "encoder.layer.*"])
SCALARS = st.one_of(WORDS, st.integers(-5, 5), st.booleans(), st.sampled_from([0.5, 1e-4, None]))
KEYS = st.sampled_from(["a", "b", "c", "name.d", "e"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(KEYS, inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["p", "q", "r", "s"])}, optional={"b": SCALARS}),
    min_size=1,
    max_size=4,
    unique_by=lambda item: item["name"],
)
DOCUMENTS = st.dictionaries(KEYS, st.one_of(VALUES, NAMED), min_size=1, max_size=4)


@st.composite
def layouts(draw: Any, value: Any) -> str:
    """Return a document's text in some layout; each comment is `#` and its own number."""
    step, offset = draw(st.sampled_from([(2, 0), (2, 2), (4, 2), (3, 0)]))
    spaced = draw(st.booleans())
    count = iter(range(1000))

    def scalar(item: Any) -> str:
        if (
            isinstance(item, str)
            and item in ("x", "y", "z", "input.1", "p", "q", "r", "s")
            and draw(st.booleans())
        ):
            return item
        if item is None:
            return "null"
        if isinstance(item, str):
            return f"'{item}'" if draw(st.booleans()) else f'"{item}"'
        return str(item).lower()

    def flow(item: Any) -> str:
        pad = " " if spaced else ""
        if isinstance(item, dict):
            return f"{{{pad}{', '.join(f'{key}:  {flow(v)}' for key, v in item.items())}{pad}}}"
        return f"[{', '.join(map(flow, item))}]" if isinstance(item, list) else scalar(item)

    def comment() -> str:
        return f"  # {next(count)}" if draw(st.booleans()) else ""

    def above(indent: int) -> list[str]:
        lines = [f"{' ' * indent}# {next(count)}"] if draw(st.booleans()) else []
        return ([""] if draw(st.booleans()) else []) + lines

    def block(item: Any, indent: int) -> list[str]:
        lines = []
        for part in item:
            value = item[part] if isinstance(item, dict) else part
            lines += above(indent)
            head = f"{' ' * indent}{part}:" if isinstance(item, dict) else f"{' ' * indent}-"
            if not value or not isinstance(value, dict | list) or draw(st.booleans()):
                lines.append(f"{head} {flow(value)}{comment()}")
            elif isinstance(item, dict):
                lines.append(head + comment())
                lines += block(value, indent + (offset if isinstance(value, list) else step))
            else:
                inner = block(value, indent + 2)
                while inner and not inner[0].strip().lstrip("#").strip().rstrip("0123456789 "):
                    inner.pop(0)
                lines += [f"{head} {inner[0].lstrip()}", *inner[1:]]
        return lines

    return "\n".join(block(value, 0)) + draw(st.sampled_from(["", "\n", "\n# end\n"]))


def comments(text: str) -> list[str]:
    return sorted(re.findall(r"# (?:\d+|end)$", text, re.MULTILINE))


@st.composite
def documents(draw: Any) -> tuple[str, Any]:
    value = draw(DOCUMENTS)
    text = draw(layouts(value))
    return text, value


class TestAnyDocument:
    @given(documents(), DOCUMENTS)
    @settings(max_examples=100)
    def test_any_edit_gives_what_is_wanted(self, document: tuple[str, Any], wanted: Any) -> None:
        text, value = document
        assert content(text) == value
        assert content(edited(text, wanted)) == wanted

    @given(documents(), st.data())
    @settings(max_examples=100)
    @pytest.mark.thorough
    def test_a_scalar_that_changes_leaves_every_other_character(
        self, document: tuple[str, Any], data: Any
    ) -> None:
        text, value = document
        path = data.draw(st.sampled_from(_leaves(value)))
        wanted = copy.deepcopy(value)
        _set(wanted, path, "changed!")
        new = edited(text, wanted)
        assert content(new) == wanted
        assert new.count('"changed!"') == 1
        before, after = new.split('"changed!"')
        assert text.startswith(before)
        assert text.endswith(after)

    @given(documents(), st.data())
    @settings(max_examples=100)
    @pytest.mark.thorough
    def test_a_key_that_comes_and_items_that_move_cost_no_comment(
        self, document: tuple[str, Any], data: Any
    ) -> None:
        text, value = document
        wanted = copy.deepcopy(value)
        for part in wanted.values():
            if isinstance(part, list):
                part[:] = data.draw(st.permutations(part))
            elif isinstance(part, dict):
                part["new"] = [1, {"x": "y"}]
        wanted["also new"] = "text"
        new = edited(text, wanted)
        assert content(new) == wanted
        assert comments(new) == comments(text)


def _leaves(value: Any) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [(key, *rest) for key, item in value.items() for rest in _leaves(item)]
    if isinstance(value, list):
        return [(place, *rest) for place, item in enumerate(value) for rest in _leaves(item)]
    return [()]


def _set(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for part in path[:-1]:
        value = value[part]
    value[path[-1]] = new


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_the_repository_s_recipes_change_in_the_lines_that_change(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = content(text)
    name = next(iter(wanted["targets"]))
    wanted["targets"][name]["precision"] = {
        "default": "float16",
        "keep_float32": ["encoder.*"],
        "saturate": True,
    }
    wanted["inputs"][0]["dtype"] = "int32"
    new = edited(text, wanted)
    before, after = text.splitlines(), new.splitlines()
    assert len(set(after) - set(before)) == 2
    assert len(set(before) - set(after)) <= 2
    assert abs(len(after) - len(before)) <= 1


def test_what_is_blank_goes_with_the_entries_that_stood_around_it() -> None:
    text = "a: 0\ne:\n  b: 0\n\n  c: 0\n  d: 0 # kept\nf: 0\n"
    assert edited(text, {"a": 0, "e": {"d": 1}, "f": 0}) == "a: 0\ne:\n  d: 1 # kept\nf: 0\n"
