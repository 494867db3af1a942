"""Which case a cause is searched on: one with enough values to tell explanations apart."""

import dataclasses

import pytest
from records import case_verdict, output_verdict

from convkit.host.record.run_record import Verification
from convkit.host.verdict.cases_to_explain import most_informative_case, unusual_cases, worst_case


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
    assert most_informative_case([case(*each) for each in cases]) == expected


@pytest.mark.parametrize(
    ("batch", "values", "expected"),
    [(2, 640, "typical"), (1, 640, "smallest"), (2, 5000, "smallest"), (2, 3, "smallest")],
)
def test_a_small_case_of_several_rows_is_preferred(batch: int, values: int, expected: str) -> None:
    several = dataclasses.replace(case("typical", values), sizes={"batch": batch})
    assert most_informative_case([case("smallest", 64), several]) == expected


def test_rounding_is_searched_on_the_case_furthest_beyond_its_limits() -> None:
    def off(name: str, error: float):
        output = output_verdict(error, "max_abs > 0.1")
        return case_verdict(name, 1, 1, output)

    name = off("typical", 0.5).outputs[0].output
    limits = {name: {"max_abs": 0.1}}
    cases = [off("typical", 0.5), off("masked-row", 0.9), off("extreme", 5.0)]
    cases.append(off("largest", float("nan")))
    assert worst_case(cases, limits) == "masked-row"
    assert worst_case([off("typical", 0.05)], limits) is None
    assert worst_case([off("extreme", 5.0)], limits) == "extreme"
    assert worst_case([], limits) is None


def test_of_cases_about_as_far_off_the_smallest_is_searched() -> None:
    def off(name: str, error: float, elements: int):
        output = output_verdict(error, "max_abs > 0.1")
        metrics = dataclasses.replace(output.metrics, elements=elements)
        return case_verdict(name, 1, 1, dataclasses.replace(output, metrics=metrics))

    limits = {output_verdict(1.0, "").output: {"max_abs": 0.1}}
    largest = off("largest", 1.0, 4096)
    assert worst_case([off("typical", 0.9, 64), largest], limits) == "typical"
    assert worst_case([off("typical", 0.5, 64), largest], limits) == "largest"


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (("extreme", "values:2", "masked-row"), ("extreme", "values:2", "masked-row")),
        (("masked-row", "typical"), ()),
        (("padded",), ()),
    ],
)
def test_rounding_is_looked_for_if_only_unusual_cases_fail(failing, expected) -> None:
    passing = case_verdict("largest", 1, 1, output_verdict(1e-7))
    verification = verified(*(case(name, 64) for name in failing), passing)
    assert unusual_cases(verification) == expected


def verified(*cases) -> Verification:
    return Verification("verify:ort", None, "failed", "device", "", cases)
