"""Why a stage runs again, in words."""

import pytest

from convkit.host.plan.stage_keys import explain_change, same_but_inputs

ARTIFACT = "artifact 1234"
OTHER = "artifact 5678"


@pytest.mark.parametrize(
    ("parts", "inputs", "before", "inputs_before", "reason"),
    [
        ({"opset": "18"}, {}, {"opset": "17"}, {}, "opset changed: 17 -> 18"),
        ({"opset": "18"}, {}, {}, {}, "opset is new"),
        ({}, {}, {"opset": "17"}, {}, "opset is gone"),
        ({"keep.0": "a", "keep.1": "b"}, {}, {"keep": "[]"}, {}, "keep changed"),
        ({"keep.0": "a"}, {}, {"keep.0": "b"}, {}, "keep.0 changed: b -> a"),
        (
            {"axes.0.name": "batch", "axes.0.max": "8"},
            {},
            {"axes.0.name": "batch", "axes.0.max": "4"},
            {},
            "axes.batch.max changed: 4 -> 8",
        ),
        ({"convkit.code": "a"}, {}, {"convkit.code": "b"}, {}, "convkit's own code changed"),
        ({"file": "a" * 40}, {}, {"file": "b"}, {}, f"file changed: b -> {'a' * 40}"),
        ({"file": "a" * 41}, {}, {"file": "b"}, {}, "file changed"),
        ({"file": "a"}, {}, {"file": "b" * 41}, {}, "file changed"),
        (
            {"graph": ARTIFACT},
            {"export": "1"},
            {"graph": OTHER},
            {"export": "2"},
            "export has a different artifact",
        ),
        ({}, {"export": "1"}, {}, {"export": "1"}, "its artifact is no longer in the store"),
    ],
)
def test_a_change_is_explained(parts, inputs, before, inputs_before, reason):
    assert explain_change(parts, inputs, before, inputs_before) == reason


@pytest.mark.parametrize(("count", "end"), [(3, "c is new"), (4, "and 1 more"), (5, "and 2 more")])
def test_at_most_three_changes_are_listed(count, end):
    reasons = explain_change(dict.fromkeys("abcde"[:count], "1"), {}, {}, {}).split("; ")
    assert reasons[:3] == ["a is new", "b is new", "c is new"]
    assert reasons[-1] == end


def test_only_artifacts_may_differ_between_stages_that_are_the_same_but_for_inputs():
    parts = {"opset": "18", "graph": ARTIFACT}
    assert same_but_inputs(parts, {"opset": "18", "graph": OTHER})
    assert same_but_inputs(parts, parts)
    assert not same_but_inputs(parts, {"opset": "17", "graph": ARTIFACT})
    assert not same_but_inputs(parts, {"graph": ARTIFACT})
    assert not same_but_inputs(parts, parts | {"level": "all"})
