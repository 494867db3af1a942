"""Which limits are out of reach of a type, and whether they are why a target fails."""

import dataclasses
from typing import Any

import pytest
from records import tensor_metrics
from small_recipe import recipe

from convkit.host.recipe.keys.low_precision_types import usual_nrmse
from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.findings.unreachable_limits import (
    folded,
    futile_searches,
    out_of_reach,
    unreachable_limits,
)
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.messages import RoundedOutput
from convkit.protocol.metrics.limits import problems

INT8 = {"quantize": "dynamic-int8"}


def found(
    limits: dict[str, float],
    nrmse: float,
    precision: Any = "float16",
    *,
    case: str = "typical",
    original: float | None = None,
    verify: Any = None,
) -> list[Finding]:
    """Return what is said of a target whose output, of values of about 1, is off by `nrmse`, and
    whose original by `original` if it is rounded.
    """
    chosen = recipe(
        targets={"t": {"runtime": "onnxruntime", "precision": precision}},
        verify={"tolerance": limits} if verify is None else verify,
    )
    metrics, alone = (
        dataclasses.replace(
            tensor_metrics(4 * off, cosine=1 - off**2 / 2), output="y", nrmse=off, rms=off
        )
        for off in (nrmse, original or 0.0)
    )
    rounded = [RoundedOutput("float16", case, alone)] if original is not None else []
    failures = problems(metrics, limits)
    output = OutputVerdict("y", not failures, (), limits, metrics, failures)
    judged = CaseVerdict(case, case, {}, not failures, 0.1, (output,))
    return unreachable_limits(chosen, chosen.targets["t"], [judged], None, rounded)


@pytest.mark.parametrize(
    ("limits", "precision", "nrmse"),
    [
        ({"max_abs": 1e-4}, "float16", 0.002),
        ({"nrmse": 1e-4}, "float16", 0.002),
        ({"atol": 1e-4}, "float16", 0.002),
        ({"max_abs": 1e-3}, INT8, 0.05),
        ({"max_abs": 1e-2}, {"quantize": "int4-weights"}, 0.2),
        ({"max_abs": 1e-4}, {"default": "float16", "keep_float32": "auto"}, 0.002),
    ],
)
def test_a_limit_below_one_rounding_is_why_a_right_conversion_fails(
    limits: dict[str, float], precision: Any, nrmse: float
) -> None:
    (finding,) = found(limits, nrmse, precision)
    assert (finding.code, finding.severity) == ("N502", "error")
    assert finding.remedy is not None
    ((path, allowed),) = finding.remedy.change.items()
    assert path.startswith("verify.by_precision.")
    assert nrmse <= allowed["nrmse"]  # type: ignore[call-overload, index]


@pytest.mark.parametrize(
    ("limits", "precision", "nrmse"),
    [
        ({"max_abs": 1e-4}, "float16", 0.05),  # wrong: beyond what the type is allowed
        ({"max_abs": 1e-3}, INT8, 0.5),
        ({"max_abs": 5e-3}, "float16", 0.002),  # missed, and not out of reach
        ({"atol": 1e-4, "rtol": 1e-4}, "float16", 0.002),
        ({"max_abs": 1e-4}, "float32", 0.002),
        ({"max_abs": 1e-4}, {"default": "float16", "keep_float32": ["encoder"]}, 0.002),
        ({"max_abs": 1.0}, "float16", 0.002),  # nothing fails
    ],
)
def test_a_limit_that_is_not_the_reason(
    limits: dict[str, float], precision: Any, nrmse: float
) -> None:
    assert found(limits, nrmse, precision) == []


def test_values_that_the_model_does_not_meet_say_nothing_of_the_type() -> None:
    assert found({"max_abs": 1e-4}, 0.002, case="extreme") == []


def test_other_causes_keep_their_remedies() -> None:
    (limit,) = found({"max_abs": 1e-4}, 0.002)
    own = Remedy("Swap them.", {"inputs": []})
    others = [Finding("N101", "off", remedy=own), Finding("C110", "swapped", remedy=own)]
    rounding, swapped = folded(others, [limit])
    assert rounding.remedy is not None
    assert rounding.remedy.change == {}
    assert swapped.remedy == own
    assert folded(others, []) == others


def test_what_the_original_itself_gives_is_said_and_allowed() -> None:
    limits = {"max_abs": 5e-3}  # above one rounding
    assert found(limits, 0.015, "float16") == []
    (finding,) = found(limits, 0.015, "float16", original=0.01)
    assert finding.severity == "warning"  # modules in float32 may meet the limit
    assert "the original itself" in finding.message
    assert finding.remedy is not None
    assert finding.remedy.change == {"verify.by_precision.float16.tolerance": {"nrmse": 0.02}}
    assert found(limits, 0.03, "float16", original=0.01) == []  # worse than rounding alone
    assert found({"max_abs": 0.1}, 0.05, "float16", original=0.01) == []  # the original meets it


def test_a_limit_below_one_rounding_leads_with_what_the_original_gives() -> None:
    (finding,) = found({"max_abs": 1e-4}, 0.015, original=0.01)
    assert finding.severity == "error"
    assert finding.remedy is not None
    assert finding.remedy.change == {"verify.by_precision.float16.tolerance": {"nrmse": 0.02}}


def test_what_modules_in_float32_may_meet_does_not_lead() -> None:
    auto = {"default": "float16", "keep_float32": "auto"}
    assert found({"max_abs": 5e-3}, 0.015, auto, original=0.01) == []  # not rounded throughout
    (finding,) = found({"max_abs": 5e-3}, 0.015, original=0.01)
    others = [Finding("N101", "off", remedy=Remedy("Search.", {"targets.t.precision": auto}))]
    assert out_of_reach([finding]) == []
    assert folded(others, out_of_reach([finding])) == others


@pytest.mark.parametrize(
    ("limit", "code", "leads"),
    [
        (1e-4, "N207", True),
        (1e-4, "N209", True),
        (5e-3, "N207", True),  # above one rounding, and everything in float32 met it
        (5e-3, "N209", False),  # nothing met it: the type need not be why
        (0.1, "N207", False),
    ],
)
def test_a_search_in_vain_is_explained_by_what_the_original_gives(
    limit: float, code: str, *, leads: bool
) -> None:
    auto = {"default": "float16", "keep_float32": "auto"}
    chosen = recipe(
        targets={"t": {"runtime": "onnxruntime", "precision": auto}},
        verify={"tolerance": {"max_abs": limit}},
    )
    alone = dataclasses.replace(tensor_metrics(0.04), output="y", nrmse=0.01, rms=0.01)
    rounded = [RoundedOutput("float16", "typical", alone)]
    searched = [Finding(code, "in vain", severity="error")]
    limits = futile_searches(chosen, chosen.targets["t"], searched, [], None, rounded)
    assert [each.is_error for each in limits] == [True] * leads
    for each in limits:
        assert each.remedy is not None
        usual = {"nrmse": usual_nrmse("float16")}  # which a search may meet
        assert each.remedy.change == {"verify.by_precision.float16.tolerance": usual}


def test_a_limit_of_this_very_type_may_count_on_float32_in_places() -> None:
    chosen = {"by_precision": {"float16": {"tolerance": {"max_abs": 5e-3}}}}
    assert found({"max_abs": 5e-3}, 0.015, "float16", original=0.01, verify=chosen) == []


def test_a_usual_limit_out_of_reach_is_a_warning_with_the_number_to_write() -> None:
    usual = {"nrmse": 0.0098}
    (finding,) = found(usual, 0.05, "float16", original=0.03, verify={})
    assert (finding.code, finding.severity) == ("N502", "warning")
    assert finding.remedy is not None
    assert finding.remedy.change == {"verify.by_precision.float16.outputs.y": {"nrmse": 0.06}}
    assert found(usual, 0.05, "float16", verify={}) == []
    assert found(usual, 0.05, "float16", original=0.004, verify={}) == []
