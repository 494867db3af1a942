"""Labels that differ are explained by the scores that they were chosen from."""

import numpy as np
import pytest

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import CaseMetrics
from convkit.worker.metrics.label_flips import flip_findings
from convkit.worker.metrics.tensor_metrics import compare

CONTRACT = Contract(
    (),
    (
        TensorSpec("scores", "float32", ("batch", "sequence", 5)),
        TensorSpec("label", "int64", ("batch", "sequence")),
    ),
    (),
)
SCORES = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)


def find(scores, built, contract=CONTRACT, labels=None, chosen=None):
    labels = scores.argmax(-1) if labels is None else labels
    chosen = built.argmax(-1) if chosen is None else chosen
    case = CaseMetrics("typical", 0.1, (compare("label", labels, chosen),))
    return flip_findings(
        contract,
        [case],
        lambda _: {"scores": scores, "label": labels},
        lambda _: {"scores": built, "label": chosen},
    )


def flipped(margin):
    """Scores and others, in which the second row's first label is another by a margin."""
    scores = SCORES.copy()
    best = int(scores[1, 0].argmax())
    other = (best + 2) % 5
    scores[1, 0, other] = scores[1, 0, best] - margin
    built = scores.copy()
    built[1, 0, other] += 2 * margin
    return scores, built


def test_a_near_tie():
    (finding,) = find(*flipped(1e-5))
    assert finding.code == "N505"
    assert "near tie, which rounding decides" in finding.message
    assert finding.evidence["tie"] is True
    assert finding.evidence["margin"] == pytest.approx(1e-5, rel=0.1)
    assert finding.evidence["flipped"] == 1
    assert "[1, 0]" in finding.message


def test_a_wide_margin_is_no_tie():
    (finding,) = find(*flipped(0.5))
    assert finding.evidence["tie"] is False
    assert "the scores themselves are off" in finding.message


def test_equal_labels_need_no_explanation():
    assert find(SCORES, SCORES) == []


def test_labels_that_are_no_argmax_of_an_output_are_not_explained():
    labels = np.zeros((2, 3), np.int64)
    assert find(SCORES, SCORES, labels=labels, chosen=labels + 1) == []


def test_other_axes_than_the_last():
    scores, built = (np.moveaxis(each, -1, 1).copy() for each in flipped(1e-5))
    contract = Contract(
        (), (TensorSpec("scores", "float32", ("batch", 5, "sequence")), CONTRACT.outputs[1]), ()
    )
    (finding,) = find(scores, built, contract, labels=scores.argmax(1), chosen=built.argmax(1))
    assert finding.evidence["tie"] is True
