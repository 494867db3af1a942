"""Which case a cause is searched on: one with enough values to tell explanations apart."""

import dataclasses

import pytest
from records import case_verdict, output_verdict

from convkit.execute.causes import telling_case


def case(name: str, values: int):
    output = output_verdict(1.0, "max_abs 1 > 0.1")
    metrics = dataclasses.replace(output.metrics, elements=values)
    return case_verdict(name, 1, 1, dataclasses.replace(output, metrics=metrics))


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([("smallest", 64), ("typical", 640)], "smallest"),
        ([("smallest", 1), ("typical", 4), ("largest", 640)], "typical"),
        ([("smallest", 1), ("typical", 2), ("largest", 3), ("values", 3)], "largest"),
        ([("values", 2), ("extreme", 3)], "extreme"),
        ([("values", 20), ("typical", 3)], "values"),
        ([], None),
    ],
)
def test_the_first_with_enough_values_or_the_usual_one_with_the_most(cases, expected) -> None:
    assert telling_case([case(*each) for each in cases]) == expected
