"""A search says what its type cannot hold of what it keeps in float32."""

import numpy as np
import onnx
import onnx_ir
import pytest

from convkit.protocol.messages import LowPrecision, ModulePrecision, PlanRound
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.search.float32_modules import FoundModules
from convkit.worker.precision.search.search_findings import searched_finding
from convkit.worker.precision.search.unheld_in_graph import unheld_in_graph
from convkit.worker.precision.search.unheld_values import unheld_of_modules
from convkit.worker.precision.value_ranges import run_ranges

MEAN = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n,400] x) => (float[n,1] y) <float count = {COUNT}, int64[1] last = {1}> {
    sum = ReduceSum(x, last)
    y = Div(sum, count)
}"""


def unheld(tmp_path, count: str, kept: tuple[str, ...], value: float = 200) -> list[str]:
    model = prepare(onnx_ir.from_onnx_text(MEAN.replace("COUNT", count)))
    path = tmp_path / "model.onnx"
    onnx.save(onnx_ir.to_proto(model), path)
    case = JudgedCase({"x": np.full((1, 400), value, np.float32)}, {}, {})
    report = run_ranges(path, {"typical": case.feeds})
    assignment = assign(model, PrecisionPlan("float16", kept))
    return unheld_in_graph(model, assignment, report, {"typical": case})


def test_constants_and_results_beyond_the_type_are_told(tmp_path) -> None:
    found = unheld(tmp_path, "147456.0", (".",))
    assert found == ["147456, a constant of Div", "80000, a result of ReduceSum"]
    precision = LowPrecision("float16", (".",))
    rounds = (PlanRound((), 3.5, "typical"), PlanRound((".",), 0.5, "typical"))
    said = searched_finding(precision, FoundModules((".",), True, rounds), found)
    assert said.code == "N208"
    assert "in it are 147456, a constant of Div, and 80000, a result of" in said.message
    assert said.message.endswith("which float16 cannot hold")
    whole = searched_finding(precision, FoundModules((".",), True, rounds, keeps_all=True), found)
    assert (whole.code, whole.place.case) == ("N207", "typical")
    assert (
        "With none of it, the error of case 'typical' is 3.5 times the tolerance" in whole.message
    )
    assert whole.remedy is not None
    assert whole.remedy.change == {"target.precision": "float32"}


def test_modules_that_are_kept_whole_are_told_with_the_inputs() -> None:
    rows = [
        ModulePrecision("stage", 0, 2, 0, 0, headroom=0.5, largest=131008.0),
        ModulePrecision("low", 2, 0, 0, 0, headroom=0.1, largest=655040.0),
    ]
    cases = [{"x": np.array([1.0, -7e4, np.inf], np.float32), "past": np.zeros((1, 0), np.float32)}]
    precision = LowPrecision("float16", ("stage",))
    assert unheld_of_modules(rows, precision, cases) == [
        "70000, a value of the input 'x'",
        "131008, a result of module stage",
    ]
    assert not unheld_of_modules(rows[1:], precision, cases), "nothing is kept"


def test_an_input_beyond_the_type_is_told(tmp_path) -> None:
    found = unheld(tmp_path, "400.0", (":ReduceSum",), 70000)
    assert found == ["70000, a value of the input 'x'", "2.8e+07, a result of ReduceSum"]
    assert not unheld(tmp_path, "400.0", (":Div",), 1)


@pytest.mark.parametrize(
    ("count", "kept", "told"),
    [
        ("1e-12", (":Div",), ["1e-12, a constant of Div", "8e+16, a result of Div"]),
        ("400.0", (":Div",), []),
        ("147456.0", (), []),  # nothing is kept
    ],
)
def test_what_the_type_holds_or_no_plan_keeps_is_not(
    tmp_path, count: str, kept: tuple[str, ...], told: list[str]
) -> None:
    assert unheld(tmp_path, count, kept) == told
