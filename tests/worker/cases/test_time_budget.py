import pytest

from convkit.worker.cases.time_budget import Budget, running_order


def test_without_a_budget_everything_runs():
    budget = Budget(None)
    budget.record(1, 1000.0)
    assert budget.refusal("largest", 10**12) is None


def test_what_exceeds_the_rest_is_refused_with_figures():
    budget = Budget(10.0)
    assert budget.refusal("typical", 100) is None  # nothing is known yet
    budget.record(100, 1.0)
    budget.record(200, 2.0)
    assert budget.predict(400) == pytest.approx(4.0)
    assert budget.refusal("typical", 400) is None
    reason = budget.refusal("largest", 1000)
    assert reason == "would take about 10 s; 7 s of the budget of 10 s (verify.budget) remain"


def test_overhead_is_not_multiplied():
    budget = Budget(10.0)
    budget.record(4, 0.5)
    budget.record(512, 0.6)
    assert budget.predict(8192) == pytest.approx(2.1, rel=0.01)


def test_one_measurement_is_scaled():
    budget = Budget(10.0)
    budget.record(100, 1.0)
    assert budget.predict(400) == pytest.approx(4.0)


def test_noise_gives_no_negative_slope():
    budget = Budget(10.0)
    budget.record(10, 2.0)
    budget.record(100, 1.0)
    assert budget.predict(10_000) == pytest.approx(1.5)


@pytest.mark.parametrize("name", ["smallest", "padded", "masked-row"])
def test_some_cases_always_run(name):
    budget = Budget(1.0)
    budget.record(1, 100.0)
    assert budget.refusal(name, 10**9) is None
    assert budget.refusal("typical", 1) is not None


def test_what_always_runs_goes_first():
    names = ["smallest", "typical", "padded", "largest", "masked-row", "extreme"]
    assert running_order(names) == [0, 2, 4, 1, 3, 5]
