import dataclasses
import math

import pytest
from small_recipe import recipe

from convkit.host.recipe.keys.recipe import Tolerance
from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.findings.changed_results import (
    blame_original,
    blame_random,
    invariance_findings,
    weaken_batch_findings,
    weaken_explained_nan,
)
from convkit.host.verdict.float32_resolution import ResolutionLimits
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import (
    CaseMetrics,
    InvarianceMetrics,
    RoundedOutput,
    TensorMetrics,
    VerifyResult,
)


def metrics(max_abs=0.0, *, cosine=1.0, nan=(0, 0), inf=0, magnitude=1.0):
    """Return metrics of an output whose every error is `max_abs`."""
    errors = (max_abs, max_abs / magnitude, max_abs, max_abs, cosine)
    counts = (nan[0], nan[1], 0, 0, inf)
    return TensorMetrics(
        "y", 8, *errors, (0,), magnitude, magnitude, *counts, ((magnitude, max_abs),)
    )


def measured(check, original, candidate, accuracy):
    errors = accuracy if isinstance(accuracy, list) else [metrics(accuracy)]
    return VerifyResult(
        evidence="device",
        session=None,
        providers=(),
        fallbacks=(),
        cases=tuple(CaseMetrics(f"case{n}", 0.1, (error,)) for n, error in enumerate(errors)),
        omitted=(),
        probes=(),
        invariance=(
            InvarianceMetrics(
                check, f"invariance:{check}", "invariance", (original,), (candidate,)
            ),
        ),
    )


def limits_of(recipe, target, override=None, rounded=()):
    return ResolutionLimits(recipe, recipe.targets[target], override, {}, {}, rounded).of_output


def findings(check, original, candidate, *, accuracy=1e-6, override=None, tolerance=None):
    chosen = recipe(verify={"tolerance": tolerance or {"max_abs": 1e-2}})
    limits = limits_of(chosen, "ort", override)
    return invariance_findings(measured(check, original, candidate, accuracy), limits)


def codes(*arguments, **options):
    return [(finding.code, finding.severity) for finding in findings(*arguments, **options)]


CHECKS = [("padding", "N301"), ("masked-values", "N301"), ("batch", "N302")]


@pytest.mark.parametrize(("check", "code"), CHECKS)
def test_a_model_that_moves_where_the_original_does_not(check, code):
    (finding,) = findings(check, metrics(1e-7), metrics(0.5))
    assert (finding.code, finding.severity) == (code, "error")
    assert finding.place.tensor == "y"
    assert finding.place.case == f"invariance:{check}"
    assert "max_abs 0.5 > 0.02" in finding.message
    assert finding.evidence["max_abs_original"] == 1e-7


@pytest.mark.parametrize(("check", "code"), CHECKS)
def test_twice_the_tolerance_is_what_two_accurate_cases_can_differ_by(check, code):
    assert codes(check, metrics(0.0), metrics(0.02)) == []
    assert codes(check, metrics(0.0), metrics(0.021)) == [(code, "error")]


@pytest.mark.parametrize(("check", "code"), CHECKS)
def test_an_original_that_moves_too_allows_as_much(check, code):
    assert codes(check, metrics(0.5), metrics(0.51)) == []
    assert codes(check, metrics(0.5), metrics(0.53)) == [(code, "error")]


def test_an_inaccurate_model_is_not_said_to_depend_on_its_batch():
    assert codes("batch", metrics(), metrics(0.3), accuracy=0.1) == []
    assert codes("batch", metrics(), metrics(0.5), accuracy=0.1) == [("N302", "error")]
    # Right in one case and wrong in the others is what a mask that was lost looks like.
    assert codes("padding", metrics(), metrics(0.3), accuracy=[metrics(1e-6), metrics(0.3)]) == [
        ("N301", "error")
    ]


@pytest.mark.parametrize(
    ("tolerance", "held", "broken"),
    [
        ({"rms": 0.1}, metrics(0.2), metrics(0.21)),
        ({"mean_abs": 0.1}, metrics(0.2), metrics(0.21)),
        ({"max_rel": 0.1}, metrics(0.2), metrics(0.21)),
        ({"atol": 0.1}, metrics(0.2), metrics(0.21)),
        ({"rtol": 0.1}, metrics(0.2), metrics(0.21)),
        ({"atol": 0.05, "rtol": 0.1}, metrics(0.3), metrics(0.31)),
        # Angles of which the triangle inequality holds: twice that of cosine 0.5 is 120 degrees.
        ({"cosine": 0.5}, metrics(cosine=-0.49), metrics(cosine=-0.51)),
    ],
)
def test_every_limit_is_asked(tolerance, held, broken):
    options = {"tolerance": tolerance, "accuracy": 0.0}
    assert (
        codes(
            "batch",
            metrics(),
            dataclasses.replace(held, frontier=((1.0, held.max_abs - 1e-12),)),
            **options,
        )
        == []
    )
    assert codes("batch", metrics(), broken, **options) == [("N302", "error")]


def test_an_override_stands_in_the_tolerance_s_place():
    assert codes("batch", metrics(), metrics(0.5), override=Tolerance(max_abs=1.0)) == []
    assert codes("batch", metrics(), metrics(0.01), override=Tolerance(max_abs=1e-4)) == [
        ("N302", "error")
    ]


def test_nan_in_one_case_only_fails():
    assert codes("padding", metrics(), metrics(nan=(0, 3))) == [("N301", "error")]
    assert codes("batch", metrics(), metrics(inf=1)) == [("N302", "error")]


def test_a_figure_that_is_no_number_fails():
    assert codes("batch", metrics(), metrics(math.nan)) == [("N302", "error")]


def test_nan_in_both_cases_is_another_finding_s():
    assert codes("padding", metrics(), metrics(nan=(3, 3))) == []
    assert codes("padding", metrics(nan=(0, 3)), metrics(nan=(0, 3))) == []


def test_runs_that_differ_within_the_tolerance_are_a_warning():
    assert codes("determinism", metrics(), metrics()) == []
    (finding,) = findings("determinism", metrics(), metrics(0.01))
    assert (finding.code, finding.severity) == ("N303", "warning")
    assert "by 0.01, within the tolerance" in finding.message


def test_runs_that_differ_by_more_than_the_tolerance_are_an_error():
    (finding,) = findings("determinism", metrics(), metrics(0.011))
    assert (finding.code, finding.severity) == ("N303", "error")
    assert "max_abs 0.011 > 0.01" in finding.message
    assert codes("determinism", metrics(), metrics(nan=(0, 1))) == [("N303", "error")]


def test_a_random_original_allows_as_much():
    (finding,) = findings("determinism", metrics(0.5), metrics(0.5))
    assert finding.severity == "warning"
    assert "the original's by 0.5" in finding.message


def test_both_checks_of_padding_give_one_finding():
    chosen = recipe()
    checks = tuple(
        InvarianceMetrics(check, f"invariance:{check}", "invariance", (metrics(),), (metrics(0.5),))
        for check in ("padding", "masked-values")
    )
    measured = VerifyResult("device", None, (), (), (), (), (), invariance=checks)
    (finding,) = invariance_findings(measured, limits_of(chosen, "ort"))
    assert finding.evidence["check"] == "padding"


OFF = (Finding("N402", "the graph"), Finding("N101", "off"), Finding("N303", "differs"))


def test_a_random_original_is_named_and_the_graph_is_not_blamed():
    found = blame_original(OFF, measured("determinism", metrics(0.5), metrics(0.4), 1.0))
    assert [(finding.code, finding.severity) for finding in found] == [
        ("N303", "error"),
        ("N101", "error"),
    ]
    assert (found[0].place.tensor, found[0].evidence) == ("y", {"max_abs_original": 0.5})


@pytest.mark.parametrize(
    ("original", "error", "given"),
    [
        (metrics(0.0), 1.0, OFF),  # the original is not random
        (metrics(1e-6), 1.0, OFF),  # nor so random that it explains the error
        (metrics(0.5), 1.0, OFF[2:]),  # parity holds
    ],
)
def test_the_graph_stays_at_fault_where_the_original_does_not_explain_the_error(
    original, error, given
):
    assert blame_original(given, measured("determinism", original, metrics(0.4), error)) == list(
        given
    )


@pytest.mark.parametrize(
    ("magnitude", "code"),
    [(100.0, "N303"), (5.0, "N402")],
    ids=["values of a hundred times the size", "values of about the size"],
)
def test_what_changes_at_random_grows_with_the_values(magnitude, code):
    twice = dataclasses.replace(metrics(0.5), reference_max=1.0)
    huge = dataclasses.replace(metrics(50.0), reference_max=magnitude)
    found = blame_original(OFF, measured("determinism", twice, metrics(0.4), [metrics(0.5), huge]))
    assert found[0].code == code


@pytest.mark.parametrize(
    ("rows", "passed", "severity"),
    [(1, False, "warning"), (1, True, "error"), (2, False, "error")],
    ids=["a single row fails", "a single row passes", "only several rows fail"],
)
def test_a_row_does_not_depend_on_its_batch_if_it_fails_alone(rows, passed, severity):
    given = findings("batch", metrics(1e-7), metrics(0.5))
    output = OutputVerdict("y", passed, (), {}, metrics(0.5))
    case = CaseVerdict("smallest", "", {"batch": rows}, passed, 0.1, (output,))
    (finding,) = weaken_batch_findings(given, "batch", [case])
    assert (finding.code, finding.severity) == ("N302", severity)
    # The remedy is about the batch, which is not the cause of a warning.
    assert (finding.remedy is None) == (severity == "warning")
    assert ("'smallest'" in finding.message) == (severity == "warning")


@pytest.mark.parametrize("code", ["N301", "N302"])
@pytest.mark.parametrize(
    ("cause", "severity", "broken", "expected"),
    [
        ("N201", "error", "NaN or infinity in one case only", "warning"),
        ("N205", "error", "NaN or infinity in one case only", "warning"),
        ("N201", "note", "NaN or infinity in one case only", "error"),  # it did no harm
        ("N402", "error", "NaN or infinity in one case only", "error"),  # not a cause of NaN
        ("N201", "error", "max_abs 0.3 > 0.02", "error"),  # NaN does not explain it
    ],
)
def test_nan_that_a_proven_cause_explains_is_no_lost_mask(code, cause, severity, broken, expected):
    given = [Finding(code, "changes", Place(), {"failures": [broken]})]
    given.append(Finding(cause, "a constant", severity=severity))
    finding, other = weaken_explained_nan(given)
    assert (finding.code, finding.severity, other) == (code, expected, given[1])
    assert (f"{cause} explains it" in finding.message) is (expected == "warning")


PLACED = Finding("N303", "add draws", Place(source="model.py:7"), {"change": "random"})


@pytest.mark.parametrize(
    ("change", "moved", "named"),
    [
        ("random", 0.4, True),
        ("random", 0.01, False),  # too little to explain an error of 1
        ("number", 0.01, True),  # a clock: two runs in a row hardly differ
        ("state", 0.01, True),
    ],
)
def test_the_references_place_is_the_verdicts(change, moved, named):
    known = dataclasses.replace(PLACED, evidence={"change": change})
    given = measured("determinism", metrics(moved), metrics(moved), 1.0)
    found = blame_original(OFF, given, [Finding("C112", "other"), known])
    assert (found[0].place.source == "model.py:7") is named
    assert (found[0].severity == "error") is (found[0].code in ("N303", "N402"))
    # Where parity holds, nothing is blamed.
    assert blame_original(OFF[2:], given, [known]) == list(OFF[2:])


@pytest.mark.parametrize(
    ("operator", "change", "refusal", "leads"),
    [
        ("bernoulli_", "random", "No conversion rule found for operations: Bernoulli-17", True),
        ("bernoulli_", "random", "No conversion rule found for operations: Erf-17", False),
        ("mul", "number", "No conversion rule found for operations: Mul-17", False),
    ],
)
def test_a_refusal_of_what_draws_is_blamed_on_the_original(operator, change, refusal, leads):
    known = dataclasses.replace(PLACED, evidence={"operator": operator, "change": change})
    given = (Finding("E205", refusal), known)
    found = blame_random(given)
    assert (found[0].code == "N303" and found[0].is_error) is leads
    assert leads or found == given
    # Without a refusal, the original's randomness stays a warning.
    assert blame_random((known,)) == (known,)


@pytest.mark.parametrize(("scored", "found"), [(0.05, []), (0.02, [("N301", "error")])])
def test_labels_that_follow_scores_are_judged_by_these(scored, found):
    off = dataclasses.replace(metrics(1.0), agreement=0.95, scored=scored)
    moved = dataclasses.replace(metrics(1.0), agreement=0.25)
    same = dataclasses.replace(metrics(), agreement=1.0)
    chosen = recipe(
        outputs=[{"name": "y", "dtype": "int64", "shape": ["batch"]}],
        targets={"t": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}},
        verify={},
    )
    result = measured("padding", same, moved, [off])
    got = invariance_findings(result, limits_of(chosen, "t"))
    assert [(each.code, each.severity) for each in got] == found


def test_labels_may_change_as_often_as_the_type_makes_them():
    """One scale for all rows of a batch rounds each of them otherwise."""
    chosen = recipe(
        outputs=[{"name": "y", "dtype": "int64", "shape": ["batch"]}],
        targets={"t": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}},
        verify={},
    )
    same = dataclasses.replace(metrics(), agreement=1.0)
    moved = dataclasses.replace(metrics(1.0), agreement=0.998)
    rounded = [RoundedOutput("int8", "largest", moved, activations=True)]
    result = measured("batch", same, moved, [same])
    assert not invariance_findings(result, limits_of(chosen, "t", rounded=rounded))
    far = measured("batch", same, dataclasses.replace(moved, agreement=0.9), [same])
    found = invariance_findings(far, limits_of(chosen, "t", rounded=rounded))
    assert [each.code for each in found] == ["N302"]
