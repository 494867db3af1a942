"""Which cases a search for float32 modules runs: few, and small ones first."""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx_ir
import onnxruntime

from convkit.protocol.messages import LowPrecision
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.search.float32_modules import MOST_REFINEMENTS, search_modules
from convkit.worker.precision.search.graph_search import search_plan
from convkit.worker.precision.search.search_findings import searched_finding
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

    def by_operation(self) -> "Model | None":
        return None

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


def test_the_worst_case_is_examined_where_one_that_fails_alike_changes_nothing() -> None:
    # A plan with "b" in low precision fails in the middle case too, which does not show it.
    class Unseen(Model):
        def outputs(self, case: str, low: Collection[str]) -> Outputs:
            wanted = {"small": "a", "middle": "a", "large": "b"}[case]
            return {"y": np.array([2.0 * (wanted in low)], np.float32)}

        def planned(
            self, patterns: tuple[str, ...], cases: Mapping[str, JudgedCase]
        ) -> Iterator[tuple[str, Outputs]]:
            low = [each for each in self.modules if each not in patterns]
            for case in cases:
                yield case, self.outputs("large" if case == "middle" else case, low)

    model = Unseen({"small": 1.0, "middle": 1.0, "large": 1.0})
    found = search_modules(model, cases("large", "small", "middle"), LIMITS)
    assert (found.met, set(found.patterns)) == (True, {"a", "b"})
    assert len({each.keep_float32 for each in found.rounds}) == len(found.rounds)


class Decisive(Model):
    """A model that decides by each of `deciding` modules, in cases of their own: how far off it is
    says nothing.
    """

    deciding: Mapping[str, str] = {"large": "a", "middle": "b", "small": "c"}

    def outputs(self, case: str, low: Collection[str]) -> Outputs:
        seen = case.partition(":")[0]
        return {"y": np.array([math.inf if self.deciding[seen] in low else 0.1], np.float32)}


def test_what_meets_the_limits_is_lowered_where_every_failure_is_infinite() -> None:
    class Unsteady(Decisive):
        # Each plan that is still too low fails in a case that was not looked at.
        def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> Outputs:
            del feeds, low
            return {"y": np.array([0.0], np.float32)}

    model = Unsteady({"small": 1.0, "middle": 1.0, "large": 1.0})
    found = search_modules(model, cases("large", "small", "middle"), LIMITS)
    assert (found.met, set(found.patterns)) == (True, {"a", "b", "c"})


def test_a_search_in_which_nothing_can_be_lowered_ends_with_float32() -> None:
    class Wary(Model):
        def outputs(self, case: str, low: Collection[str]) -> Outputs:
            return {"y": np.array([math.inf if low else 0.1], np.float32)}

        # Of single cases nothing shows.
        def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> Outputs:
            del feeds, low
            return {"y": np.array([0.0], np.float32)}

    found = search_modules(Wary({"small": 1.0}), cases("small"), LIMITS)
    assert (found.met, found.keeps_all) == (True, True)
    assert searched_finding(LowPrecision("float16", found.patterns), found).code == "N207"


def test_what_float32_does_not_meet_is_told_as_such() -> None:
    class Off(Model):
        def outputs(self, case: str, low: Collection[str]) -> Outputs:
            return {"y": super().outputs(case, low)["y"] + 3}

    found = search_modules(Off({"small": 1.0}), cases("small"), LIMITS)
    assert (found.met, found.keeps_all, set(found.patterns)) == (False, True, set(COSTS))
    said = searched_finding(LowPrecision("float16", found.patterns), found)
    assert said.code == "N209"
    assert "even with everything in float32 the error of case 'small' is 3 times" in said.message


def test_a_model_that_meets_its_limits_is_not_searched() -> None:
    model = Model({"small": 0.1})
    found = search_modules(model, cases("small"), LIMITS)
    assert (found.met, found.patterns, dict(model.runs)) == (True, (), {})


LEVEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x) => (float[n,4] y) <float[4,4] w = {
    0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, -0.8, 0.9, 1.0, -1.1, 1.2, 0.2, 0.3, -0.5, 0.1
}, float gain = {300000.0}> {
    mixed = MatMul(x, w)
    power = Abs(mixed)
    large = Mul(power, gain)
    level = Log(large)
    y = Neg(level)
}"""


def test_operations_are_searched_where_a_module_as_a_whole_would_leave_nothing() -> None:
    model = prepare(onnx_ir.from_onnx_text(LEVEL))
    x = np.random.default_rng(0).uniform(0.5, 2, (8, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())
    expected = {"y": session.run(None, {"x": x})[0]}
    judged = {"typical": JudgedCase({"x": x}, expected, {})}
    searched = search_plan(model, LowPrecision("float16"), judged, {"y": {"max_abs": 2e-2}})
    assert searched.found.met
    assert ":Mul" in searched.precision.keep_float32
    kept = assign(model, PrecisionPlan("float16", searched.precision.patterns))
    low = {node.op_type for node, choice in kept.choices.items() if choice.dtype == "float16"}
    assert "MatMul" in low
    assert not kept.unmatched


UNIT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x) => (float[n,4] y) <float[4,4] w = {
    0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, -0.8, 0.9, 1.0, -1.1, 1.2, 0.2, 0.3, -0.5, 0.1
}, float guard = {1e-10}> {
    mixed = MatMul(x, w)
    length = ReduceL2<axes = [1]>(mixed)
    guarded = Add(length, guard)
    y = Div(mixed, guarded)
}"""


def test_an_epsilon_that_vanishes_is_kept_for_rows_of_zeros_that_have_no_limit_else() -> None:
    model = prepare(onnx_ir.from_onnx_text(UNIT))
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())

    def case(x: np.ndarray, *, only_finite: bool = False) -> JudgedCase:
        return JudgedCase(
            {"x": x}, {"y": session.run(None, {"x": x})[0]}, {}, only_finite=only_finite
        )

    usual = case(np.random.default_rng(0).uniform(0.5, 2, (8, 4)).astype(np.float32))
    zeros = case(np.zeros((2, 4), np.float32), only_finite=True)
    limits = {"y": {"max_abs": 2e-2}}
    alone = search_plan(model, LowPrecision("float16"), {"typical": usual}, limits)
    assert (alone.found.met, alone.precision.keep_float32) == (True, ())
    judged = {"typical": usual, "plain-rows": zeros}
    searched = search_plan(model, LowPrecision("float16"), judged, limits)
    assert searched.found.met
    kept = assign(model, PrecisionPlan("float16", searched.precision.patterns))
    low = {node.op_type for node, choice in kept.choices.items() if choice.dtype == "float16"}
    assert "MatMul" in low
    assert "Add" not in low
    # Finite rows there have no limit: what a normalization makes of rounding is not judged.
    off = dataclasses.replace(usual, expected={"y": usual.expected["y"] + 1}, only_finite=True)
    assert search_plan(model, LowPrecision("float16"), {"plain-rows": off}, limits).found.met
