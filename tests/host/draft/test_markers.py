"""Numbers that a model does not look up or count, and files whose rounding shows."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from test_file_survey import saved, surveyed

from convkit.host.draft.surveyed_model import tolerances_of
from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Rounding, SurveyResult

# The mean of a table's rows over the positions of other kinds than 0; NaN if there are none.
MEAN = """g (int64[1,n] words, int64[1,n] kinds) => (float[1,4] y) {
    counts = Cast<to=1>(kinds)
    one = Constant<value_float=1.0>()
    kept = Min(counts, one)
    last = Constant<value_ints=[2]>()
    weights = Unsqueeze(kept, last)
    rows = Gather(table, words)
    named = Gather(names, kinds)
    both = Add(rows, named)
    weighted = Mul(both, weights)
    middle = Constant<value_ints=[1]>()
    total = ReduceSum<keepdims=0>(weighted, middle)
    number = ReduceSum<keepdims=0>(weights, middle)
    y = Div(total, number)
}"""


def tables() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        "table": draw.standard_normal((20, 4)).astype(np.float32),
        "names": draw.standard_normal((5, 4)).astype(np.float32),
    }


def test_a_number_that_marks_what_does_not_count_is_not_drawn(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, MEAN, **tables()))
    assert found.samples["kinds"].numbers == (1, 5)
    assert found.samples["words"].numbers == (0, 20)
    (note,) = [each for each in found.notes if "NaN" in each]
    assert "'kinds' is 0 everywhere" in note


def test_a_number_that_counts_is_drawn(tmp_path: Path) -> None:
    counted = MEAN.replace("kept = Min(counts, one)", "kept = Max(counts, one)")
    found = surveyed(saved(tmp_path, counted, **tables()))
    assert found.samples["kinds"].numbers == (0, 5)
    assert not any("NaN" in each for each in found.notes)


# As converters from TensorFlow write it: negative indices count from the end.
SHIFTED = """g (int32[a,b] x) => (float[a,b,4] y) {
    rows = Constant<value_int=49>()
    count = Cast<to=6>(rows)
    shifted = Add(x, count)
    zero = Constant<value_int=0>()
    none = Cast<to=6>(zero)
    negative = Less(x, none)
    index = Where(negative, shifted, x)
    y = Gather(table, index)
}"""


def test_a_table_behind_arithmetic_limits_the_numbers(tmp_path: Path) -> None:
    table = np.zeros((49, 4), np.float32)
    found = surveyed(saved(tmp_path, SHIFTED, table=table))
    assert found.samples["x"].numbers == (0, 49)
    assert [axis.max > axis.min for axis in found.contract.axes] == [True, True]


@pytest.mark.parametrize(
    "stored",
    [
        "whole = Cast<to=1>(table)\n scaled = Mul(whole, scale)",
        "scaled = DequantizeLinear(table, scale)",
    ],
)
def test_a_table_in_few_bits_limits_the_numbers(tmp_path: Path, stored: str) -> None:
    text = f"g (int64[a,b] x) => (float[a,b,4] y) {{ {stored}\n y = Gather(scaled, x) }}"
    given = {"table": np.zeros((49, 4), np.int8), "scale": np.float32(0.5)}
    found = surveyed(saved(tmp_path, text, **given))
    assert found.samples["x"].numbers == (0, 49)


def test_a_single_number_that_happens_to_be_small_enough_is_tried_at_its_end(
    tmp_path: Path,
) -> None:
    single = SHIFTED.replace("[a,b]", "[1,1]").replace("[a,b,4]", "[1,1,4]")
    named = re.sub(r"\bx\b", "input_layer", single)  # of which the lower end is drawn
    found = surveyed(saved(tmp_path, named, table=np.zeros((49, 4), np.float32)))
    assert found.samples["input_layer"].numbers == (0, 49)


# Activations in 8 bits, and weights: sums that are a step further leave other outputs.
ROUNDED = """g (int64[batch,n] words) => (float[batch,n,8] y) {
    rows = Gather(table, words)
    eight, scale, zero = DynamicQuantizeLinear(rows)
    sums = MatMulInteger(eight, weights, zero)
    wide = Cast<to=1>(sums)
    y = Mul(wide, scale)
}"""


def test_a_file_that_rounds_activations_is_tried_with_weights_that_are_a_little_off(
    tmp_path: Path,
) -> None:
    """Its inputs are whole numbers: nothing else could be moved."""
    draw = np.random.default_rng(0)
    path = saved(
        tmp_path,
        ROUNDED,
        table=draw.standard_normal((30, 16)).astype(np.float32),
        weights=draw.integers(-127, 128, (16, 8)).astype(np.int8),
    )
    found = surveyed(path)
    assert found.quantized
    assert 0 < found.rounding["y"].largest < found.magnitudes["y"]
    assert 0.999 < found.rounding["y"].cosine < 1
    assert not any("rounding" in each for each in found.notes)


def test_outputs_that_rounding_alone_makes_are_said_to_prove_nothing(tmp_path: Path) -> None:
    text = "g (float[batch,8] x) => (float[batch,8] y) { more = Mul(x, k)  y = Sin(more) }"
    found = surveyed(saved(tmp_path, text, k=np.float32(1e8)))
    assert found.rounding["y"].decides
    (note,) = [each for each in found.notes if "rounding alone" in each]
    assert "'y'" in note
    steady = surveyed(saved(tmp_path, text, k=np.float32(2.0)))
    assert not steady.rounding["y"].decides
    assert not any("rounding alone" in each for each in steady.notes)


@pytest.mark.parametrize(
    ("rounding", "limits"),
    [
        (Rounding(0.1, 0.99999), {"max_abs": 0.5, "cosine": 0.999}),
        (Rounding(0.4, 0.999), {"max_abs": 2.0, "cosine": 0.997}),
        (Rounding(6.0, 0.99), {"nrmse": 0.3, "cosine": 0.97}),
        (Rounding(20.0, 0.5), {"max_abs": 20.0}),
        (Rounding(20.0, float("nan")), {"max_abs": 20.0}),
    ],
)
def test_limits_leave_what_rounding_moves(rounding: Rounding, limits: dict[str, float]) -> None:
    output = TensorSpec("y", "float32", (1, 8))
    contract = Contract((TensorSpec("x", "float32", (1, 8)),), (output,), ())
    survey = SurveyResult(
        contract, {}, ran=True, magnitudes={"y": 25.0}, rounding={"y": rounding}, quantized=True
    )
    assert tolerances_of(survey)["y"] == limits
    # Without rounded activations, a cosine that rounding moves is a fault of the model.
    floats = dataclasses.replace(survey, quantized=False)
    assert tolerances_of(floats)["y"]["ulps"] == 10  # of values larger than those measured
    assert tolerances_of(floats)["y"]["cosine"] == 0.99999
