"""Every row of the registry, from the recipe to the report."""

import dataclasses
import io
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import build_record, case_verdict, contract, failed_target, tensor_metrics
from rich.console import Console
from run_folders import write_run
from small_recipe import recipe

from convkit.cli.output.difference_text import difference_text
from convkit.cli.output.run_table import summary
from convkit.host.audit.differences.run_difference import compare_runs
from convkit.host.recipe.keys.recipe import Tolerance
from convkit.host.recipe.keys.tolerances import limits_of
from convkit.host.recipe.reading.json_schema import recipe_schema
from convkit.host.record.headroom import worst_of_output
from convkit.host.record.run_record import OutputVerdict, RunRecord
from convkit.host.report.report_file import render_report
from convkit.host.track.run_entries import case_table, child_entries, parent_entry
from convkit.host.verdict.target_verdict import judge
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    ReferenceResult,
    TensorMetrics,
    VerifyResult,
)
from convkit.protocol.metrics.limits import breaches, is_within, overshoot, problems
from convkit.protocol.metrics.metric_registry import (
    DEFAULTS,
    METRICS,
    PARAMETERS,
    ROWS,
    absolute_limit,
    limits_set,
)

ALL_METRICS = pytest.mark.parametrize("name", METRICS)
ALL_LIMITS = pytest.mark.parametrize("name", [row.name for row in ROWS])
FIGURES = {"max_abs": 0.01, "max_rel": 0.1, "mean_abs": 0.005, "rms": 0.006, "cosine": 0.9}
EXACT = dataclasses.replace(
    tensor_metrics(0.0, cosine=1.0),
    frontier=((1.0, 0.0),),
    worst_candidate=0.734,
    agreement=1.0,
    nrmse=0.0,
)


def limit_of(name: str) -> float:
    """A limit that a recipe may set, on neither of its ends."""
    parameter = PARAMETERS[name]
    return parameter.least + 0.5 if parameter.most is None else (parameter.most + 0.5) / 2


def with_figure(name: str, value: float) -> TensorMetrics:
    """Metrics of equal outputs, but for one figure."""
    changed = {name: value} if name in METRICS else {"frontier": ((1.0, value),)}
    return dataclasses.replace(EXACT, **changed)


def beyond(name: str) -> float:
    """A figure on the wrong side of the limit, too close to it for a few digits to show."""
    limit = limit_of(name)
    worse = -1e-9 if name in METRICS and METRICS[name].larger_is_better else 1e-9
    return limit + worse


def record_of(metrics: TensorMetrics, limits: dict[str, float]) -> RunRecord:
    found = problems(metrics, limits)
    texts = tuple(problem.message for problem in found)
    output = OutputVerdict(metrics.output, not found, texts, limits, metrics, found)
    target = failed_target()
    verification = dataclasses.replace(
        target.verifications[0], cases=(case_verdict("typical", 4, 128, output),), findings=()
    )
    return build_record(targets=(dataclasses.replace(target, verifications=(verification,)),))


def printed(text: Any) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(text)
    return " ".join(file.getvalue().split())


@ALL_METRICS
def test_a_metric_is_a_number_of_every_output(name: str) -> None:
    fields = {field.name: field.type for field in dataclasses.fields(TensorMetrics)}
    assert fields[name] is float
    assert METRICS[name].read(with_figure(name, 0.25)) == 0.25


def test_names_headings_and_columns_are_unique() -> None:
    rows = METRICS.values()
    for values in ([m.name for m in rows], [m.heading for m in rows], [m.logged_as for m in rows]):
        assert len(set(values)) == len(METRICS)
    assert len(PARAMETERS) == sum(len(row.parameters) for row in ROWS)


def test_the_recipe_has_exactly_the_registry_s_keys() -> None:
    properties = recipe_schema()["$defs"]["Tolerance"]["properties"]
    assert list(properties) == list(PARAMETERS) == list(Tolerance.model_fields)
    assert all(
        properties[name]["description"] == PARAMETERS[name].description for name in PARAMETERS
    )
    assert limits_of(recipe(verify={}).verify.tolerance) == {
        name: float(value) for name, value in DEFAULTS.items()
    }


def test_errors_are_not_negative_and_a_cosine_is_between_minus_one_and_one() -> None:
    properties = recipe_schema()["$defs"]["Tolerance"]["properties"]
    for name, schema in properties.items():
        number = next(each for each in schema["anyOf"] if each["type"] == "number")
        bounds = {
            "cosine": {"exclusiveMinimum": -1, "maximum": 1},
            "agreement": {"exclusiveMinimum": 0, "maximum": 1},
            "nrmse": {"minimum": 0, "maximum": 1},
            "by_scores": {"minimum": 0, "maximum": 1},
        }.get(name, {"minimum": 0})
        assert number == {"type": "number"} | bounds


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_recipe_accepts_what_the_row_accepts(name: str) -> None:
    parameter = PARAMETERS[name]
    assert limits_of(Tolerance.model_validate({name: limit_of(name)})) == {name: limit_of(name)}
    refused = [parameter.least - 1e-6, math.nan, math.inf, "0.1", True]
    refused += [] if parameter.least_is_allowed else [parameter.least]
    refused += [] if parameter.most is None else [parameter.most + 1e-6]
    for value in refused:
        with pytest.raises(ValueError, match=name):
            Tolerance.model_validate({name: value})
    allowed = [parameter.least] if parameter.least_is_allowed else []
    allowed += [] if parameter.most is None else [parameter.most]
    for value in allowed:
        assert Tolerance.model_validate({name: value})


@ALL_LIMITS
def test_a_limit_holds_at_its_value_and_not_beyond_nor_for_nan(name: str) -> None:
    limits = {name: limit_of(name)}
    at_limit = with_figure(name, limit_of(name))
    assert is_within(EXACT, limits)
    assert is_within(at_limit, limits)
    [limit] = limits_set(limits)
    assert limit.share(EXACT) == limit.overshoot(EXACT) == 0.0
    assert limit.share(at_limit) == pytest.approx(1.0)
    assert overshoot(at_limit, limits) <= 1.0 < overshoot(with_figure(name, beyond(name)), limits)
    for value in (beyond(name), math.nan):
        [problem] = breaches(with_figure(name, value), limits)
        assert (problem.kind, problem.limit) == ("limit", name)
        assert problem.allowed == limit_of(name)
    nothing = dataclasses.replace(EXACT, frontier=(), **dict.fromkeys(METRICS, math.nan))
    assert [problem.limit for problem in breaches(nothing, limits)] == [name]
    assert limit.share(nothing) == limit.overshoot(nothing) == math.inf


@ALL_LIMITS
def test_a_breach_shows_two_figures_that_differ(name: str) -> None:
    [problem] = breaches(with_figure(name, beyond(name)), {name: limit_of(name)})
    key, found, relation, allowed = problem.message.split()
    assert key == name
    assert (float(found) < float(allowed)) == (relation == "<")
    assert (float(found) > float(allowed)) == (relation == ">")


@ALL_LIMITS
def test_a_distance_leads_back_to_its_figure(name: str) -> None:
    [limit] = limits_set({name: limit_of(name)})
    assert limit.at_distance(limit.allowed_distance) == pytest.approx(limit_of(name))
    assert limit.distance(EXACT) == pytest.approx(0.0)
    assert math.isnan(limit.at_distance(math.nan))


@given(st.floats(-0.99, 1.0), st.floats(0.0, math.pi))
def test_the_cosine_of_a_distance_beyond_the_farthest_is_minus_one(
    allowed: float, more: float
) -> None:
    [limit] = limits_set({"cosine": allowed})
    assert limit.at_distance(math.pi + more) == -1.0


@ALL_LIMITS
def test_the_verdict_follows_each_limit(name: str) -> None:
    def status(value: float) -> tuple[str, list[str]]:
        metrics = dataclasses.replace(with_figure(name, value), output="y")
        case = CaseMetrics("smallest", 0.1, (metrics,))
        judged = judge(
            *(recipe(), recipe().targets["ort"]),
            ReferenceResult((CaseRecord("smallest", "ladder", "", {"batch": 1}, 0.1),), ()),
            VerifyResult("device", contract(), (), (), (case,), (), ()),
            stage="verify:ort",
            version=None,
            override=Tolerance.model_validate({name: limit_of(name)}),
        )
        assert (judged.leading is None) == (judged.status == "verified")
        assert judged.leading is None or judged.headline.startswith(
            f"N101 {judged.leading.message}"
        )
        return judged.status, [each.code for each in judged.findings]

    assert status(limit_of(name)) == ("verified", [])
    assert status(beyond(name)) == ("failed", ["N101"])


@ALL_LIMITS
def test_everything_that_people_read_shows_the_broken_limit(name: str) -> None:
    limits = {name: limit_of(name)}
    record = record_of(with_figure(name, beyond(name)), limits)
    [output] = record.targets[0].verifications[0].cases[0].outputs
    [message] = output.failures
    assert str(worst_of_output("typical", output)) == message
    assert message in printed(summary(record, up_to_date=False))
    assert message.replace(">", "&gt;").replace("<", "&lt;") in render_report(record)
    table = case_table(record.targets[0].verifications[0])
    assert table.rows[0][table.columns.index("failures")] == message


@ALL_METRICS
def test_the_report_has_a_column_for_each_metric_and_mlflow_a_figure(name: str) -> None:
    metric, value = METRICS[name], FIGURES.get(name, 0.3)
    record = record_of(with_figure(name, value), {"max_abs": 1e9})
    page = render_report(record)
    assert f">{metric.heading}</th>" in page
    assert f'<td class="number">{metric.loss(value):.3g}</td>' in page
    entry = {point.name: point.value for point in parent_entry(record).points}
    assert entry[f"ort-optimized/{metric.logged_as}"] == value
    verified = child_entries(record)[6]
    assert {point.value for point in verified.points if point.name.endswith(metric.logged_as)} == {
        value
    }
    table = case_table(record.targets[0].verifications[0])
    assert table.rows[0][table.columns.index(metric.logged_as)] == value


@ALL_METRICS
def test_the_worst_of_a_target_is_the_one_furthest_from_equal_outputs(name: str) -> None:
    metric = METRICS[name]
    values = [FIGURES.get(name, 0.3), metric.best]
    assert metric.worst(values) == metric.worst(values[::-1]) == values[0]
    assert metric.loss(values[0]) > metric.loss(metric.best) == 0.0


@ALL_METRICS
def test_a_difference_between_runs_shows_a_metric_that_is_limited(
    name: str, tmp_path: Path
) -> None:
    limits = {name: PARAMETERS[name].least + 1e-3}
    before = record_of(with_figure(name, FIGURES.get(name, 0.3)), limits)
    after = record_of(with_figure(name, FIGURES.get(name, 0.3) + 1e-9), limits)
    after = dataclasses.replace(after, id="20251010-085320-0001")
    difference = compare_runs(write_run(tmp_path, before), write_run(tmp_path, after))
    [figure] = difference.metrics
    assert figure.metric == name
    line = next(x for x in printed(difference_text(difference)).split("typical, ") if name in x)
    assert line.split(" -> ")[0].split()[-1] != line.split(" -> ")[1].split()[0]


def test_the_limit_on_every_element_s_error() -> None:
    assert absolute_limit({"max_abs": 0.1, "atol": 0.2}) == 0.1
    assert absolute_limit({"atol": 0.2, "rtol": 0.1}) == 0.2
    assert absolute_limit({"rtol": 0.1, "cosine": 0.9}) is None


def test_rtol_is_named_beside_atol() -> None:
    metrics = with_figure("atol", 0.5)
    [problem] = breaches(metrics, {"rtol": 0.1})
    assert problem.message == "atol 0.4 > 0 with rtol 0.1"
