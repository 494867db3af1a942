"""Records that hold what others hold."""

import dataclasses

import pytest

from convkit.protocol.same_fields import taken_from


@dataclasses.dataclass(frozen=True)
class First:
    name: str
    size: int = 1


@dataclasses.dataclass(frozen=True)
class Second:
    size: int
    words: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Made:
    name: str
    size: int
    words: tuple[str, ...] = ()
    note: str = "none"


def test_fields_are_the_first_source_s_unless_they_are_given() -> None:
    sources = First("a"), Second(2, ("b",))
    assert taken_from(Made, *sources) == Made("a", 1, ("b",), "none")
    assert taken_from(Made, *sources, size=3, note="c") == Made("a", 3, ("b",), "c")


def test_a_field_that_nothing_has_is_missing() -> None:
    with pytest.raises(TypeError, match="name"):
        taken_from(Made, Second(2, ()))
