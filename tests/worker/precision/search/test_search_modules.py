"""Which cases a search for float32 modules runs: few, and small ones first."""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.search.float32_modules import MOST_REFINEMENTS, search_modules
from convkit.worker.precision.search_judgment import Outputs

LIMITS = {"y": {"max_abs": 1.0}}
# What each module's rounding costs, of the limit.
COSTS = {"a": 2.0, "b": 0.9, "c": 0.6, "d": 0.2}


@dataclasses.dataclass
class Model:
    """Errors of low modules add up by their squares; `factors` multiply them in each case."""

    factors: Mapping[str, float]
    modules: tuple[str, ...] = tuple(COSTS)
    runs: Counter[str] = dataclasses.field(default_factory=Counter)

    def outputs(self, case: str, low: Collection[str]) -> Outputs:
        error = self.factors[case] * math.sqrt(sum(COSTS[module] ** 2 for module in low))
        return {"y": np.array([error], np.float32)}

    def planned(
        self, patterns: tuple[str, ...], cases: Mapping[str, JudgedCase]
    ) -> Iterator[tuple[str, Outputs]]:
        for case in cases:
            yield case, self.outputs(case, [each for each in self.modules if each not in patterns])

    @contextlib.contextmanager
    def switched(self) -> Iterator["Model"]:
        yield self

    def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> Outputs:
        case = {8: "small", 80: "middle", 800: "large"}[feeds["x"].size]
        self.runs[case] += 1
        return self.outputs(case, low)


def cases(*names: str) -> dict[str, JudgedCase]:
    sizes = {"small": 8, "middle": 80, "large": 800}
    return {
        name: JudgedCase({"x": np.zeros(sizes[name])}, {"y": np.zeros(1, np.float32)}, {})
        for name in names
    }


def test_a_small_case_is_examined_for_a_large_one_about_as_far_off() -> None:
    model = Model({"large": 1.0, "small": 0.95})
    found = search_modules(model, cases("large", "small"), LIMITS)
    assert (found.met, set(model.runs)) == (True, {"small"})
    assert found.patterns == ("a", "b")


def test_a_large_case_nearly_within_its_limits_takes_a_smaller_error_on_a_small_one() -> None:
    model = Model({"small": 1.0, "large": 1.2})
    found = search_modules(model, cases("small", "large"), LIMITS)
    assert (found.met, set(model.runs)) == (True, {"small"})


def test_a_small_case_that_is_further_off_is_examined_as_well() -> None:
    model = Model({"middle": 3.0, "small": 1.0})
    found = search_modules(model, cases("small", "middle"), LIMITS)
    assert (found.met, set(model.runs)) == (True, {"middle"})


def test_a_case_that_alone_is_far_off_is_examined_in_the_end() -> None:
    # What matters in the large case does nothing in the small one.
    class Apart(Model):
        def outputs(self, case: str, low: Collection[str]) -> Outputs:
            wanted = {"small": "a", "large": "b"}[case]
            error = self.factors[case] * (wanted in low)
            return {"y": np.array([error], np.float32)}

    model = Apart({"small": 1.9, "large": 1.6})
    found = search_modules(model, cases("small", "large"), LIMITS)
    assert found.met
    assert set(model.runs) == {"small", "large"}
    assert len(found.rounds) <= 1 + MOST_REFINEMENTS
    assert set(found.patterns) == {"a", "b"}


def test_a_model_that_meets_its_limits_is_not_searched() -> None:
    model = Model({"small": 0.1})
    found = search_modules(model, cases("small"), LIMITS)
    assert (found.met, found.patterns, dict(model.runs)) == (True, (), {})
