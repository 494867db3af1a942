"""How many of few labels may differ shows in all cases together."""

import dataclasses

import pytest
from records import tensor_metrics

from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.few_labels import for_few, shares_of_few


def labels(equal: int, of: int, scored: float = 0.0) -> TensorMetrics:
    return dataclasses.replace(
        tensor_metrics(0.1), output="y", elements=of, agreement=equal / of, scored=scored
    )


def least(cases: list[TensorMetrics], case: TensorMetrics, agreement: float = 0.9) -> float:
    few = shares_of_few(cases)
    return for_few({"agreement": agreement}, case, few)["agreement"]


def test_one_of_few_labels_may_differ_if_nearly_all_agree_in_all_cases() -> None:
    cases = [labels(0, 1), *[labels(1, 1)] * 14, labels(3, 4)]
    assert least(cases, cases[0]) == 0
    assert least(cases, cases[-1]) <= 0.75
    assert least(cases, labels(1, 4)) > 0.25, "three of four are more than chance"


@pytest.mark.parametrize(
    "cases",
    [
        [labels(0, 1)] * 8 + [labels(1, 1)] * 8,  # half of all differ
        [labels(0, 1)] * 3,
    ],
)
def test_none_may_differ_where_too_many_do(cases: list[TensorMetrics]) -> None:
    assert least(cases, cases[0]) == 0.9


def test_cases_of_many_labels_are_judged_by_themselves() -> None:
    many = labels(60, 100)
    assert shares_of_few([many]) == {}
    assert least([labels(1, 1), many], many) == 0.9


def test_what_the_own_scores_choose_does_not_differ() -> None:
    assert shares_of_few([labels(1, 2, scored=0.5)]) == {"y": (0.0, 2)}


def test_other_limits_stay() -> None:
    assert for_few({"max_abs": 1.0}, labels(0, 1), {}) == {"max_abs": 1.0}
    assert least([labels(0, 1)], labels(0, 1), agreement=1.0) == 1.0
