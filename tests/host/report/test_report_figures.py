import dataclasses
import math

import pytest
from records import (
    build_record,
    case_verdict,
    failed_target,
    non_finite_record,
    output_verdict,
    skipped_target,
    verified_target,
)
from svg import description, height_of, limit_height, marks, words

from convkit.host.record.bench_record import BenchRecord, Interval, ModelFigures, SizeFigures
from convkit.host.report.bench_section import latency_measure
from convkit.host.report.run_plots import (
    case_point,
    cost_plot,
    decisive,
    float32_bytes,
    float32_measure,
    growth_plot,
    headroom_plot,
    ladder_measure,
    output_plots,
    rounds_plot,
    search_plot,
    size_measure,
)
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    EvaluationMetrics,
    LowPrecision,
    ModulePrecision,
    PlanRound,
    PrecisionResult,
)

RECORD = build_record()
MODULES = (
    ModulePrecision("first", 3, 0, 75, 0, (), 100.0, 655.0, "t", "typical"),
    ModulePrecision("second", 4, 0, 0, 0, (), 0.5, 131000.0, "u", "extreme"),
    ModulePrecision("third", 0, 5, 0, 25, ("pattern third",), 0.1, 655000.0, "v", "extreme"),
    ModulePrecision("", 1, 0, 0, 0),
)
PLAN = PrecisionResult(LowPrecision("float16"), MODULES)


def low_target(**changes):
    return dataclasses.replace(verified_target(), plan=PLAN, **changes)


def points_of(cases):
    return [case_point(case, simulated=False) for case in cases]


def test_a_case_is_plotted_at_its_share_of_the_limit():
    (point,) = points_of([case_verdict("typical", 1, 2, output_verdict(2e-5))])
    assert point.value == pytest.approx(0.2)
    assert point.detail == "typical: max_abs 2e-05 <= 0.0001, 20 % of the limit"


def test_of_several_outputs_the_one_closest_to_its_limit():
    outputs = (output_verdict(1e-5, output="a"), output_verdict(5e-5, output="b"))
    (point,) = points_of([case_verdict("typical", 1, 2, *outputs)])
    assert point.value == pytest.approx(0.5)
    assert point.detail.startswith("typical, b:")


def test_what_has_no_figure_says_why():
    nan = output_verdict(
        2e-6, "384 NaN in the converted model, none in the original", nan_candidate=384
    )
    shaped = output_verdict(0.0, "shape [3], the original's is [4]")
    shaped = dataclasses.replace(
        shaped, metrics=dataclasses.replace(shaped.metrics, mismatch="shape [3]")
    )
    free = dataclasses.replace(output_verdict(0.3), limits={})
    cases = [
        case_verdict("nan", 1, 2, nan),
        case_verdict("shape", 1, 2, shaped),
        case_verdict("free", 1, 2, free),
        case_verdict("refused", 1, 2, error="out of memory"),
        case_verdict("nothing", 1, 2),
    ]
    bands = [point.band for point in points_of(cases)]
    assert bands == ["not finite", "not compared", "no limit", "did not run", "no output"]
    assert [point.passed for point in points_of(cases)] == [False, False, True, False, True]


def test_without_limits_the_scores_are_shown_and_no_band_of_errors():
    free = dataclasses.replace(output_verdict(0.3), limits={})
    scored = EvaluationMetrics("accuracy", 600, 0.98, 0.975, 0.005, 0.0, 0.01)
    target = verified_target()
    by_task = dataclasses.replace(
        target.verifications[0],
        cases=(case_verdict("free", 1, 2, free),),
        evaluation=scored,
        decided_by="task metric",
    )
    figure = ladder_measure(RECORD, dataclasses.replace(target, verifications=(by_task,)))
    assert figure.caption == "accuracy on 600 rows"
    assert "0.975" in figure.svg
    assert "no limit" not in figure.svg
    judged = dataclasses.replace(by_task, cases=target.verifications[0].cases)
    figure = ladder_measure(RECORD, dataclasses.replace(target, verifications=(judged,)))
    assert figure.caption.startswith("Error against its limit")


def test_infinite_and_nan_errors_are_plotted_as_not_finite():
    target = non_finite_record().targets[0]
    figure = ladder_measure(RECORD, target)
    assert figure is not None
    assert "2 cases, 2 not finite, 2 beyond the limit" in description(figure.svg)


def test_the_card_shows_the_release_closest_to_its_limit():
    target = verified_target()
    assert decisive(target) is target.verifications[1]
    figure = ladder_measure(RECORD, target)
    assert figure is not None
    assert figure.caption.endswith("(onnxruntime 1.31.0)")
    heights = [height_of(mark) for mark in marks(figure.svg).values()]
    assert heights == sorted(heights, reverse=True)
    assert limit_height(figure.svg) < heights[-1]


def test_nothing_is_plotted_for_what_did_not_run():
    target = skipped_target()
    assert ladder_measure(RECORD, target) is None
    assert size_measure(RECORD, target) is None
    assert float32_measure(RECORD, target) is None


def test_a_simulation_is_hollow_and_a_device_is_not():
    simulated, device = failed_target(), verified_target()
    for target, hollow in ((simulated, True), (device, False)):
        figure = ladder_measure(RECORD, target)
        assert figure is not None
        assert {("hollow" in mark.attrib["class"]) for mark in marks(figure.svg).values()} == {
            hollow
        }


def test_each_output_has_its_plot_and_a_case_that_did_not_run_is_in_all():
    outputs = (output_verdict(1e-5, output="a"), output_verdict(3e-4, "x", output="b"))
    cases = (case_verdict("one", 1, 2, *outputs), case_verdict("two", 1, 2, error="no memory"))
    verification = dataclasses.replace(failed_target().verifications[0], cases=cases)
    plots = output_plots(verification)
    assert [name for name, _ in plots] == ["a", "b"]
    told = [description(figure.svg) for _, figure in plots]
    assert "1 did not run, 1 beyond the limit" in told[0]
    assert "1 did not run, 2 beyond the limit" in told[1]


def test_a_size_is_compared_with_the_float32_weights():
    record = build_record(targets=(low_target(size_bytes=200),))
    assert float32_bytes(record, record.targets[0]) == 400
    figure = size_measure(record, record.targets[0])
    assert figure is not None
    assert "200 B, 50 % of the float32 weights" in words(figure.svg)


def test_the_size_of_a_part_is_compared_with_its_own_weights():
    low = low_target(size_bytes=200, name="low/head")
    others = (verified_target(), verified_target(), failed_target())
    names = ("low", "low/encoder", "other/head")
    named = [dataclasses.replace(each, name=name) for each, name in zip(others, names, strict=True)]
    record = build_record(targets=(*named, low))
    # The encoder's weights are not counted, so neither are the whole model's.
    assert [float32_bytes(record, each) for each in record.targets] == [0, 0, 400, 400]
    whole = size_measure(record, record.targets[0])
    assert whole is not None
    assert words(whole.svg) == ["Size", "86.7 MiB"]


def test_or_with_the_largest_target():
    figure = size_measure(RECORD, failed_target())
    assert figure is not None
    assert "86.2 MiB, 99 % of the largest target" in words(figure.svg)
    largest = size_measure(RECORD, verified_target())
    assert largest is not None
    assert words(largest.svg) == ["Size", "86.7 MiB"]


def test_the_share_in_float32_is_of_weights_and_of_operations():
    figure = float32_measure(RECORD, low_target())
    assert figure is not None
    assert words(figure.svg) == [
        "Weights in float32",
        "25 %, 25 of 100",
        "Operations in float32",
        "38 %, 5 of 13",
    ]


def test_headroom_shows_every_module_and_which_overflows():
    figure = headroom_plot(MODULES, "float16")
    assert figure is not None
    found = {name.partition(":")[0]: mark for name, mark in marks(figure.svg).items()}
    assert list(found) == ["first", "second", "third", "(root)"]
    limit = limit_height(figure.svg)
    assert height_of(found["first"]) < limit < height_of(found["second"])
    kinds = {name: mark.attrib["class"] for name, mark in found.items()}
    # What is kept in float32 cannot overflow float16; what has no range is in its own band.
    assert kinds == {"first": "good", "second": "bad", "third": "good hollow", "(root)": "good"}
    assert "1 no figure, 1 beyond the limit" in description(figure.svg)
    assert "Worst: second: reaches 1.31e+05 in extreme, beyond float16's limit." in description(
        figure.svg
    )
    assert headroom_plot(MODULES[3:], "float16") is None


def test_a_headroom_that_is_no_number_fails():
    rows = (MODULES[0], dataclasses.replace(MODULES[1], headroom=math.nan))
    figure = headroom_plot(rows, "float16")
    assert figure is not None
    assert "1 not finite, 1 beyond the limit" in description(figure.svg)


def test_a_search_is_plotted_round_by_round():
    rounds = (PlanRound((), None, "extreme"), PlanRound(("third",), 0.25, "typical"))
    figure = rounds_plot(rounds)
    assert figure is not None
    first, second = marks(figure.svg).items()
    assert first[0] == "round 1, nothing in float32: beyond any limit in extreme"
    assert second[0] == "round 2, third in float32: 25 % of the limit in typical"
    assert height_of(first[1]) < limit_height(figure.svg) < height_of(second[1])
    assert rounds_plot(()) is None
    finding = Finding("N209", "x", evidence={"rounds": encode(rounds)})
    assert search_plot(finding) == figure


@pytest.mark.parametrize("rounds", [None, [], "two", [{"case": 3}], [1]])
def test_other_evidence_is_no_search(rounds):
    assert search_plot(Finding("N209", "x", evidence={"rounds": rounds})) is None


def test_an_errors_growth_is_plotted_along_the_depth():
    finding = Finding(
        "N405", "x", evidence={"growth": [["norm", 1.2], ["fc", 0.012], ["y", "inf"]]}
    )
    figure = growth_plot(finding)
    assert figure is not None
    found = marks(figure.svg)
    assert list(found)[:2] == ["norm: off by 1.2 of its rms", "fc: off by 0.012 of its rms"]
    heights = [height_of(mark) for mark in found.values()]
    assert heights[2] < heights[0] < heights[1]
    assert "not finite" in words(figure.svg)


@pytest.mark.parametrize("growth", [None, "text", [], [1, 2], [["a"]], {"a": 1}])
def test_other_evidence_is_no_growth(growth):
    assert growth_plot(Finding("N405", "x", evidence={"growth": growth})) is None


def test_the_cost_of_quantization_is_plotted_by_module():
    rows = [
        {"module": "head", "operators": ["MatMul"], "output_error": 0.08, "share": 0.9},
        {"module": "", "operators": ["Gemm"], "output_error": 0.02, "share": 0.1},
        {"module": "odd", "operators": [], "output_error": "nan", "share": None},
    ]
    figure = cost_plot(Finding("Q102", "x", evidence={"modules": rows}))
    assert figure is not None
    assert list(marks(figure.svg)) == [
        "head: 8.00%, 90% of the whole",
        "(root): 2.00%, 10% of the whole",
        "odd: not finite",
    ]
    # N210's modules are headrooms by name, not costs.
    assert cost_plot(Finding("N210", "x", evidence={"modules": {"head": 0.5}})) is None


def test_a_card_shows_a_measured_latency_beside_the_originals():
    time = Interval(0.002, 0.0018, 0.0023)
    original = SizeFigures("typical", {"batch": 2}, 10, time)
    fast = dataclasses.replace(original, ratios={"p50": Interval(0.004, 0.0038, 0.0042)})
    models = (
        ModelFigures("original", "torch", "cpu", "float32", sizes=(original,)),
        ModelFigures("ort", "onnxruntime", "cpu", "float32", sizes=(fast,)),
        ModelFigures("trt", "tensorrt", "cuda", "float16", absent="no cuda"),
    )
    record = BenchRecord(1, "id", "r", 0.0, 1.0, {}, 4, {"typical": 7}, {"typical": 0.1}, models)
    assert "Latency: 0.004x the original at typical" in latency_measure(record, "ort").svg
    assert latency_measure(record, "trt") is None
    assert latency_measure(record, "unknown") is None
    assert latency_measure(None, "ort") is None
