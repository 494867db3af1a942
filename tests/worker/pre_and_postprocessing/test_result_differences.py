"""The app's constants for labels, boxes and text against the original's postprocessor."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from convkit.protocol.findings.finding import Finding
from convkit.protocol.postprocessing_constants import (
    BoxConstants,
    CtcConstants,
    LabelConstants,
    Postprocessing,
)
from convkit.worker.pre_and_postprocessing.drawn_outputs import Outputs, drawn_outputs
from convkit.worker.pre_and_postprocessing.result_differences import result_findings
from convkit.worker.pre_and_postprocessing.results import results

ANIMALS = ("cat", "dog", "eel", "fox", "gnu")
LABELS = LabelConstants(ANIMALS)
SEVERAL = LabelConstants(ANIMALS, "sigmoid", 0.5)
BOXES = BoxConstants("logits", ANIMALS)
TEXT = CtcConstants(("", "a", "b", "c", "|"), blank=0, space="|")
SHAPES = {"labels": (3, 5), "boxes": (2, 12, 4), "text": (2, 40, 5)}


def kind(constants: Any) -> str:
    kinds = {LabelConstants: "labels", BoxConstants: "boxes", CtcConstants: "text"}
    return kinds[type(constants)]


def wrapped(constants: Any) -> Postprocessing:
    return Postprocessing(**{kind(constants): constants})


def drawn(constants: Any) -> list[Outputs]:
    """Outputs of a model whose weights are random: no score is large, no box is kept."""
    random = np.random.default_rng(0)
    name = kind(constants)
    outputs = {name: 0.1 * random.normal(size=SHAPES[name]).astype(np.float32)}
    if name == "boxes":
        outputs["boxes"] = np.abs(outputs["boxes"])
        outputs["logits"] = random.normal(-5, 0.1, (2, 12, 5)).astype(np.float32)
    return [outputs, *drawn_outputs(name, wrapped(constants), outputs, random)]


def findings(declared: Any, own: Any) -> list[Finding]:
    """Compare declared constants with an original that has others."""
    name = kind(declared)

    def original(outputs: Outputs) -> list[Any]:
        return results(name, wrapped(own), outputs)

    place = "outputs.0.postprocess"
    return result_findings(name, place, wrapped(declared), original, drawn(declared))


@pytest.mark.parametrize("constants", [LABELS, SEVERAL, BOXES, TEXT])
def test_the_originals_own_constants_have_no_findings(constants: Any) -> None:
    assert findings(constants, constants) == []


@pytest.mark.parametrize(
    ("own", "changes", "code", "says"),
    [
        (LABELS, {"names": ("dog", "cat", *ANIMALS[2:])}, "C571", "in a different order"),
        (LABELS, {"names": (*ANIMALS[1:], "cat")}, "C571", "shifted by one"),
        (LABELS, {"names": ("ape", *ANIMALS[1:])}, "C571", "number 0 is 'cat'"),
        (LABELS, {"names": ()}, "C571", "the app has numbers"),
        (LABELS, {"activation": "sigmoid"}, "C574", "activation is sigmoid"),
        (SEVERAL, {"threshold": 0.8}, "C572", "threshold is 0.8, the original has 0.5"),
        (SEVERAL, {"threshold": None}, "C572", "threshold is null, the original has 0.5"),
        (SEVERAL, {"activation": "softmax"}, "C574", "activation is softmax"),
        (BOXES, {"names": (*ANIMALS[:3], "gnu", "fox")}, "C571", "number 3 is 'fox'"),
        (BOXES, {"threshold": 0.3}, "C572", "threshold is 0.3, the original has 0.5"),
        (BOXES, {"format": "corners"}, "C573", "format is corners, the original has center"),
        (BOXES, {"overlap": 0.5}, "C575", "overlap is 0.5, the original has null"),
        (BOXES, {"several": True}, "C575", "several is true, the original has false"),
        (TEXT, {"blank": 4}, "C576", "blank is 4, the original has 0"),
        (TEXT, {"space": None}, "C576", "space is null, the original has |"),
        (TEXT, {"symbols": ("a", "b", "c", "|", "")}, "C576", "shifted by one"),
    ],
)
def test_a_constant_that_differs_is_named_with_the_originals(
    own: Any, changes: dict[str, Any], code: str, says: str
) -> None:
    declared = dataclasses.replace(own, **changes)
    found = findings(declared, own)
    assert [each.code for each in found] == [code]
    assert says in found[0].message
    assert found[0].evidence["proven"] is True
    assert found[0].remedy is not None
    [key] = changes
    expected = getattr(own, key)
    assert found[0].remedy.change == {
        f"outputs.0.postprocess.{kind(own)}.{key}": (
            list(expected) if isinstance(expected, tuple) else expected
        )
    }


def test_two_constants_that_differ_are_both_named() -> None:
    declared = dataclasses.replace(BOXES, format="corners", threshold=0.2, names=ANIMALS[::-1])
    assert sorted(each.code for each in findings(declared, BOXES)) == ["C571", "C572", "C573"]


def test_what_no_constants_explain_is_reported_as_such() -> None:
    def original(outputs: Outputs) -> list[Any]:
        found = results("labels", wrapped(LABELS), outputs)
        return [found[0]] * len(found)  # the first row's label for all rows

    [finding] = result_findings(
        "labels", "outputs.0.postprocess", wrapped(LABELS), original, drawn(LABELS)
    )
    assert finding.code == "C570"
    assert "rows have a different result" in finding.message


def test_drawn_scores_are_of_the_originals_kind() -> None:
    """Probabilities stay probabilities: an original may take their logarithm."""
    random = np.random.default_rng(0)
    shares = np.full((2, 4), 0.25, np.float32)
    several = np.array([[0.9, 0.8, 0.1, 0.2]], np.float32)
    for like, total in ((shares, 1.0), (several, None)):
        made = [each["p"] for each in drawn_outputs("p", wrapped(LABELS), {"p": like}, random)]
        assert all(each.min() >= 0 and each.max() <= 1 for each in made)
        if total is not None:
            assert np.concatenate(made).sum(-1) == pytest.approx(total, abs=1e-5)


def best(outputs: Sequence[Outputs], name: str) -> set[int]:
    return {int(index) for each in outputs for index in each[name].argmax(-1).ravel()}


def test_every_label_is_the_best_one_somewhere() -> None:
    outputs = {"labels": np.zeros((2, 301), np.float32)}
    made = list(drawn_outputs("labels", wrapped(LABELS), outputs, np.random.default_rng(0)))
    assert best(made, "labels") == set(range(301))
