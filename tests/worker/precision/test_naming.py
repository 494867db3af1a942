import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.protocol.module_naming import as_patterns, in_words, without_covered
from convkit.protocol.module_patterns import matches

LAYERS = [
    f"encoder.layer.{i}.{part}"
    for i in range(4)
    for part in ("attention", "attention.self", "attention.output", "intermediate", "output")
]
MODULES = ["embeddings", *LAYERS, "pooler.dense", ""]


@pytest.mark.parametrize(
    ("chosen", "patterns"),
    [
        ([], []),
        (["embeddings"], ["embeddings"]),
        (["encoder.layer.3.output"], ["encoder.layer.3.output"]),
        ([f"encoder.layer.{i}.output" for i in (1, 3)], ["encoder.layer.*.output"]),
        ([path for path in LAYERS if "attention" in path], ["encoder.layer.*.attention"]),
        (
            [f"encoder.layer.2.attention{part}" for part in ("", ".self", ".output")],
            ["encoder.layer.2.attention"],
        ),
        (
            ["encoder.layer.2.attention.self", "encoder.layer.2.attention.output"],
            ["encoder.layer.2.attention.self", "encoder.layer.2.attention.output"],
        ),
        (LAYERS, ["encoder"]),
        (["pooler.dense"], ["pooler.dense"]),
        ([""], ["."]),
        (["encoder.layer.0.attention"], ["encoder.layer.0.attention."]),
        ([f"encoder.layer.{i}.attention" for i in range(4)], ["encoder.layer.*.attention."]),
        (MODULES, [".", "embeddings", "encoder", "pooler.dense"]),
    ],
)
def test_patterns_are_what_a_person_would_write(chosen: list[str], patterns: list[str]) -> None:
    assert sorted(as_patterns(chosen, MODULES)) == sorted(patterns)


def test_a_list_of_blocks_is_named_by_its_items() -> None:
    assert as_patterns(["blocks.0", "blocks.1"], ["blocks.0", "blocks.1", "after"]) == ["blocks.*"]


@given(st.sets(st.sampled_from(MODULES)))
def test_every_chosen_module_is_named_and_none_twice(chosen: set[str]) -> None:
    patterns = as_patterns(chosen, MODULES)
    assert all(any(matches(pattern, path) for pattern in patterns) for path in chosen)
    assert without_covered(patterns) == patterns


def test_a_pattern_that_names_a_module_alone_covers_nothing_else() -> None:
    assert without_covered(["a.", "a.b", "a.", "."]) == ["a.", "a.b", "."]
    assert without_covered(["a.", "a", "a.b."]) == ["a"]


def test_patterns_in_words_explain_the_dot() -> None:
    assert in_words(["encoder", "head.", "."]) == (
        "encoder, the operations of head itself (`head.`), the root module's own operations (`.`)"
    )
    assert in_words([]) == ""


def test_a_name_with_spaces_becomes_a_pattern_without() -> None:
    modules = ["blocks.slice(1, None, None).2.fc", "blocks.0.fc", "head"]
    (pattern,) = as_patterns(modules[:1], modules)
    assert not set(pattern) & set(" ")
    assert matches(pattern, modules[0])
    assert not any(matches(pattern, each) for each in modules[1:])
