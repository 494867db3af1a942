"""Contracts of files with features, texts and single numbers for inputs, and tolerances from
rounding.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from small_classifiers import COLORS, FLOWERS, TREE, classifier
from test_file_survey import saved, shapes, surveyed

from convkit.host.draft.surveyed_model import comments_of, signature_of_survey, tolerances_of
from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Rounding, SurveyResult


def test_maps_become_tables_and_the_draft_says_so(tmp_path: Path) -> None:
    result = surveyed(classifier(tmp_path, FLOWERS))
    assert result.ran
    assert shapes(result) == {"x": ("rows", 2), "label": ("rows",), "chances": ("rows", 2)}
    assert [spec.dtype for spec in result.contract.outputs] == ["string", "float32"]
    text = " ".join(line.removeprefix("# ") for line in comments_of(result) or ())
    assert "'chances' as one map per row" in text
    assert "one column per class: lily, rose" in text


def test_texts_are_those_that_the_graph_knows(tmp_path: Path) -> None:
    result = surveyed(classifier(tmp_path, COLORS))
    assert result.ran  # a color of another name ends the run
    assert result.samples["color"].strings == ("green", "red")
    drawn = signature_of_survey(result).inputs[0].sample
    assert getattr(drawn, "numbers", None) == ["green", "red"]


def test_features_lie_on_both_sides_of_a_tree_s_splits(tmp_path: Path) -> None:
    result = surveyed(classifier(tmp_path, TREE))
    low, high = result.samples["x"].numbers
    assert low < 42 < high
    assert any("are from 42 to 42" in note for note in result.notes)


def test_features_lie_where_the_scaler_before_a_model_expects_them(tmp_path: Path) -> None:
    """Two features, of around 1000 and around -3."""
    text = """g (float[rows,2] x) => (float[rows,2] y) {
        y = ai.onnx.ml.Scaler<offset=[1000.0, -3.0], scale=[0.1, 2.0]>(x)
    }"""
    result = surveyed(classifier(tmp_path, text))
    assert result.samples["x"].kind == "uniform"
    low, high = result.samples["x"].numbers
    assert -120 < low <= -4
    assert 1020 <= high < 1200


@pytest.mark.parametrize(
    ("known", "kind", "numbers"), [("1, 3, 2", "integers", (1, 4)), ("10, 30", "one_of", (10, 30))]
)
@pytest.mark.parametrize("dtype", ["int64", "float"])
def test_categories_are_those_that_the_encoder_knows(
    tmp_path: Path, known: str, kind: str, numbers: tuple[int, ...], dtype: str
) -> None:
    text = f"""g ({dtype}[rows,1] grade) => (float[rows,1,m] y) {{
        y = ai.onnx.ml.OneHotEncoder<cats_int64s=[{known}], zeros=0>(grade)
    }}"""
    result = surveyed(classifier(tmp_path, text))
    assert result.ran  # a category of another number ends the run
    assert (result.samples["grade"].kind, result.samples["grade"].numbers) == (kind, numbers)


def test_a_model_that_multiplies_rounding_gets_a_tolerance_it_can_keep(tmp_path: Path) -> None:
    """A sine of many periods is bounded by 1, and off by 1e-4 if its input is off by 1e-7."""
    text = """g (float[rows,64] x) => (float[rows,64] y) {
        angle = Mul(x, k)
        y = Sin(angle)
    }"""
    many, few = (
        tolerances_of(surveyed(saved(tmp_path, text, k=np.float32(factor))))
        for factor in (1e3, 1.0)
    )
    assert isinstance(limit := many["y"]["max_abs"], float)
    assert 1e-3 < limit < 0.1
    assert few == {}


@pytest.mark.parametrize(("wave", "key"), [("Identity", "rtol"), ("Sin", "agreement")])
def test_what_is_counted_may_be_off_by_a_share_of_itself(
    tmp_path: Path, wave: str, key: str
) -> None:
    """Microseconds are counted; the phases of a fast wave may be labels, and jump."""
    text = f"""g (float[rows,64] x) => (int64[rows,64] y) {{
        scaled = Mul(x, k)
        turned = {wave}(scaled)
        large = Mul(turned, k)
        y = Cast<to=7>(large)
    }}"""
    limits = tolerances_of(surveyed(saved(tmp_path, text, k=np.float32(1e5))))["y"]
    assert key in limits
    assert limits.get("rtol", 2e-5) == pytest.approx(2e-5, rel=1.0)


@pytest.mark.parametrize(("scale", "bias", "has_cosine"), [(8, -15, False), (2, 0, True)])
def test_no_cosine_is_asked_of_a_case_that_the_limit_calls_noise(tmp_path, scale, bias, has_cosine):
    """A detector's map is nearly zero where there is nothing to see."""
    text = """g (float[4,n] x) => (float[4,n] y) {
        scaled = Mul(x, k)
        moved = Add(scaled, b)
        y = Sigmoid(moved)
    }"""
    path = saved(tmp_path, text, k=np.float32(scale), b=np.float32(bias))
    limits = tolerances_of(surveyed(path)).get("y")
    assert (limits is None or "cosine" in limits) is has_cosine


def test_an_index_in_floats_does_not_round_to_another(tmp_path):
    """The neighbor of 3.0 below would look up row 2; a scale that is cast does round to another."""
    lookup = """g (float[1,n] x) => (float[1,n,1] y) {
        index = Cast<to=7>(x)
        y = Gather(table, index)
    }"""
    table = np.arange(9, dtype=np.float32).reshape(9, 1) * 100
    assert surveyed(saved(tmp_path, lookup, table=table)).rounding["y"].largest == 0
    scaled = """g (float[1,n] x) => (float[1,n] y) {
        more = Mul(x, k)
        whole = Cast<to=7>(more)
        y = Cast<to=1>(whole)
    }"""
    assert surveyed(saved(tmp_path, scaled, k=np.float32(1e7))).rounding["y"].largest > 0


def test_rounded_activations_excuse_one_step_and_not_dozens():
    output = TensorSpec("y", "float32", (1, 8))
    contract = Contract((TensorSpec("x", "float32", (1, 8)),), (output,), ())
    survey = SurveyResult(
        contract,
        {},
        ran=True,
        magnitudes={"y": 25.0},
        rounding={"y": Rounding(0.8)},
        quantized=True,
    )
    assert tolerances_of(survey)["y"]["max_abs"] == 3.0  # three times that, rounded up
    floats = dataclasses.replace(survey, quantized=False)
    assert tolerances_of(floats)["y"]["max_abs"] == 3.0  # a tenth of the values, rounded up
    small = dataclasses.replace(floats, rounding={"y": Rounding(1e-3)})
    assert tolerances_of(small)["y"]["max_abs"] == 0.04


PITCH = """g (float[1,n] x, float fmin, float fmax, float iou_threshold, float speed) => (
    float[1,n] y) {
    span = Sub(fmax, fmin)
    root = Sqrt(span)
    scaled = Mul(x, speed)
    kept = Add(scaled, iou_threshold)
    y = Mul(kept, root)
}"""


def test_single_numbers_are_what_their_names_say(tmp_path: Path) -> None:
    """Two normal numbers would make an empty range half of the time."""
    result = surveyed(saved(tmp_path, PITCH))
    assert result.ran
    chosen = {name: sample.numbers for name, sample in result.samples.items() if name != "x"}
    assert chosen == {"fmin": (0,), "fmax": (1000,), "iou_threshold": (0.5,), "speed": (1,)}
    assert any("which value 'fmin' should have: 0 was assumed" in note for note in result.notes)


def test_a_file_that_always_returns_nan_still_shows_its_sizes(tmp_path: Path) -> None:
    text = """g (float[n,4] x) => (float[n,2] y) {
        square = Mul(x, x)
        below = Sub(square, k)
        root = Sqrt(below)
        y = MatMul(root, w)
    }"""
    weights = {"k": np.float32(1e6), "w": np.ones((4, 2), np.float32)}
    result = surveyed(saved(tmp_path, text, **weights))
    assert result.ran
    assert shapes(result)["y"] == ("n", 2)
    assert any("has NaN with all sizes and values that were tried" in note for note in result.notes)


HALF = """g (float[1,n] x) => (float[1,n] y) {
    low = Cast<to=10>(x)
    slow = Mul(low, low)
    y = Cast<to=1>(slow)
}"""


@pytest.mark.parametrize(
    ("text", "types"),
    [
        (HALF, ("float16",)),
        # Stored in half precision, and computed in float32.
        ("g (float[1,n] x) => (float[1,n] y) { k = Cast<to=1>(half)\ny = Mul(x, k) }", ()),
    ],
)
def test_a_file_that_computes_in_half_precision_has_a_limit_of_such_steps(
    tmp_path: Path, text: str, types: tuple[str, ...]
) -> None:
    stored = {"half": np.float16(3.0)} if "half" in text else {}
    found = surveyed(saved(tmp_path, text, **stored))
    assert found.computes_in == types
    limits = tolerances_of(dataclasses.replace(found, magnitudes={"y": 1.0}, rounding={}))
    if not types:
        assert limits == {}
        return
    step = 2**-10
    assert isinstance(limit := limits["y"]["max_abs"], float)
    assert 2 * step <= limit <= 3 * step
