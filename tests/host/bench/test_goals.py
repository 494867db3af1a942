import dataclasses
import math

import pytest

from convkit.host.bench.goals import goal_findings, judge_goals
from convkit.host.record.bench_record import Interval, ModelFigures, SizeFigures
from convkit.protocol.messages import OperatorCost, Profile

ORIGINAL = ModelFigures("original", "torch", "cpu", "float32", 1000, peak_memory_bytes=500)


def at(size: str, ratio: float, spread: float = 0.01, **sizes: int) -> SizeFigures:
    found = Interval(ratio, ratio - spread, ratio + spread)
    return SizeFigures(size, sizes, calls=100, p50=found, ratios={"p50": found})


def target(*sizes: SizeFigures, **changes: object) -> ModelFigures:
    made = ModelFigures("ort", "onnxruntime", "cpu", "float32", 400, peak_memory_bytes=600)
    return dataclasses.replace(made, sizes=sizes, **changes)


def profiled(**kinds: float) -> Profile:
    cost = OperatorCost("node_1", "Cast", "encoder.layer.0", "CPU", 0.001, 0.5)
    return Profile("typical", (cost,), kinds)


def statuses(made: ModelFigures, **limits: float) -> list[str]:
    return [goal.status for goal in judge_goals(made, ORIGINAL, limits)]


def findings(made: ModelFigures, threads: int = 2, **limits: float):
    return goal_findings(made, ORIGINAL, judge_goals(made, ORIGINAL, limits), threads)


def test_a_latency_goal_is_judged_at_every_size():
    made = target(at("typical", 0.5), at("largest", 0.9))
    assert statuses(made, p50=0.8) == ["met", "missed"]


@pytest.mark.parametrize(
    ("ratio", "spread", "status"),
    [
        (0.7, 0.05, "met"),
        (0.9, 0.05, "missed"),
        (0.79, 0.05, "undecided"),
        (0.81, 0.05, "undecided"),
        (math.nan, 0.0, "missed"),
    ],
)
def test_noise_neither_meets_nor_misses_a_goal(ratio, spread, status):
    assert statuses(target(at("typical", ratio, spread)), p50=0.8) == [status]


def test_bytes_have_no_noise():
    assert statuses(target(), size=0.4, memory=1.2) == ["met", "met"]
    assert statuses(target(), size=0.39, memory=1.1) == ["missed", "missed"]


def test_what_was_not_measured_is_never_met():
    absent = target(absent="simulated: this machine has no cuda", peak_memory_bytes=None)
    assert statuses(absent, p50=9.0, memory=9.0) == ["no-figure", "no-figure"]
    assert statuses(target(at("typical", 0.5)), p99=9.0) == ["no-figure"]
    found = findings(absent, p50=9.0)
    assert [(each.code, each.severity) for each in found] == [("E402", "warning")]
    assert "simulated" in found[0].message


@pytest.mark.parametrize(
    ("profile", "device", "precision", "reason"),
    [
        (profiled(MatMul=1.0, Cast=0.5), "cpu", "float16", "casts"),
        (profiled(MatMul=1.0, QuantizeLinear=0.2, DequantizeLinear=0.2), "cpu", "int8", "unfused"),
        (profiled(MatMul=1.0), "cpu", "float16", "half-on-cpu"),
        (dataclasses.replace(profiled(MatMul=1.0), fallbacks=3), "cuda", "float32", "fallback"),
    ],
)
def test_a_missed_goal_says_why(profile, device, precision, reason):
    made = target(at("typical", 1.5), profile=profile, device=device, precision=precision)
    (found,) = findings(made, p50=1.0)
    assert (found.code, found.severity) == ("E401", "error")
    assert found.evidence["reasons"] == [reason]
    assert found.evidence["most_expensive"] == ["encoder.layer.0 (Cast): 50%, 1 ms"]
    assert found.remedy is not None


def test_one_thread_and_the_runtimes_silence_are_said():
    made = target(at("typical", 1.5), profile=profiled(MatMul=1.0))
    (alone,) = findings(made, threads=1, p50=1.0)
    assert alone.evidence["reasons"] == ["threads"]
    (unknown,) = findings(made, p50=1.0)
    assert unknown.evidence["reasons"] == []
    (blind,) = findings(target(at("typical", 1.5), unprofiled="no profile"), p50=1.0)
    assert blind.message.endswith("1.50x: no profile")


def test_dynamic_quantization_is_blamed_only_where_larger_inputs_do_better():
    profile = profiled(DynamicQuantizeLinear=0.3, MatMulInteger=1.0)
    better = target(at("small", 1.5, batch=1), at("large", 0.5, batch=16), profile=profile)
    (found,) = findings(better, p50=1.0)
    assert found.evidence["reasons"] == ["small-batch"]
    no_better = target(at("small", 1.5, batch=1), at("large", 1.6, batch=16), profile=profile)
    assert all(each.evidence["reasons"] == [] for each in findings(no_better, p50=1.0))


def test_a_size_goal_names_the_weights():
    (found,) = findings(target(), size=0.1)
    assert found.evidence["reasons"] == ["same-weights"]
    assert found.evidence["most_expensive"] == []


def test_a_missed_goal_of_bytes_names_them_and_what_would_lower_them():
    made = dataclasses.replace(target(), size_bytes=400 << 10, peak_memory_bytes=600 << 10)
    for figure, measured in (("size", "409.60x (400.0 KiB)"), ("memory", "1228.80x (600.0 KiB)")):
        (found,) = findings(made, **{figure: 0.001})
        assert measured in found.message
        assert found.remedy is not None
        if figure == "memory":
            assert found.remedy.text == "Choose a lower precision for the target, or another goal."


def test_what_noise_leaves_undecided_is_said_with_its_interval():
    (found,) = findings(target(at("typical", 0.79, 0.05)), p50=0.8)
    assert (found.code, found.severity) == ("E402", "warning")
    assert "measured 0.79x, 95 % between 0.74x and 0.84x" in found.message
    assert found.evidence == pytest.approx({"goal": 0.8, "low": 0.74, "high": 0.84})


def test_a_slow_target_without_a_known_reason_points_at_its_operators():
    made = target(at("typical", 1.5), profile=profiled(MatMul=1.0))
    (found,) = findings(made, p50=1.0)
    assert (found.code, found.evidence["reasons"]) == ("E401", [])
    assert len(found.evidence["most_expensive"]) == 1
    assert found.remedy.text.startswith("Look at the most expensive operators")
