import pytest

from convkit.worker.graph.class_labels import class_names


@pytest.mark.parametrize(
    "metadata",
    [
        {"names": "{0: 'cat', 1: 'dog'}"},  # as Ultralytics prints a dict
        {"names": '["cat", "dog"]'},
        {"id2label": '{"1": "dog", "0": "cat"}'},
        {"task": "detect", "classes": "('cat', 'dog')"},
        {"names": "see labels", "labels": '["cat", "dog"]'},
    ],
)
def test_names_are_in_the_order_of_their_numbers(metadata: dict[str, str]) -> None:
    assert class_names(metadata) == ("cat", "dog")


@pytest.mark.parametrize(
    "text", ["", "cat, dog", "{0: 'cat', 2: 'dog'}", "[1, 2]", "{'a': 'cat'}", "print()", "[" * 99]
)
def test_anything_else_names_nothing(text: str) -> None:
    assert class_names({"names": text}) == ()
