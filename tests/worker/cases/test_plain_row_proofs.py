"""Rows of zeros, of one value, equal rows, one huge value, if the original has a result."""

import dataclasses

import numpy as np
import pytest
from reference_runs import factory, run

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Held, Sample
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.plain_rows import plain_rows
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.reference.defined_rows import with_defined_rows

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", "sequence")),),
    (TensorSpec("y", "float32", ("batch", "sequence")),),
    (Axis("batch", 1, 2, 8), Axis("sequence", 2, 4, 8)),
)


def cases(contract=CONTRACT, samples=None, facts=None):
    made = plain_rows(CaseInputs(contract, samples or {}, 0, facts or ModelFacts()))
    return {case.name: case for case in made}


def with_batch(low, high):
    return dataclasses.replace(CONTRACT, axes=(Axis("batch", low, low, high), CONTRACT.axes[1]))


def test_the_rows_of_one_case():
    found = cases()
    kinds = ("", ":zeros", ":huge", ":faint", ":offset")
    assert list(found) == [f"plain-rows{kind}" for kind in kinds]
    drawn, equal, zeros, constant = found["plain-rows"].inputs()["x"]
    assert len(set(drawn)) == len(drawn)
    assert (equal == drawn).all()
    assert not zeros.any()
    assert (constant == 0.5).all()
    both = found["plain-rows:zeros"].inputs()["x"]
    assert not both.any()
    assert np.signbit(both).tolist() == [[bool(at % 2) for at in range(both.shape[1])]] * len(both)
    usual, huge, low = found["plain-rows:huge"].inputs()["x"]
    assert np.abs(usual).max() < 8
    assert np.sort(huge)[-2:].max() == 1024
    assert np.sort(huge)[-2] < 8
    assert low.min() == -1024
    assert np.sort(low)[1] > -8
    sizes = np.abs(found["plain-rows:faint"].inputs()["x"]).max(axis=1)
    assert (sizes[1:] < [0.08, 8e-4, 8e-6]).all()
    assert (sizes > [0.1, 1e-3, 1e-5, 1e-7]).all()


def test_rows_may_be_single_numbers():
    found = cases(
        Contract(
            (TensorSpec("x", "float32", ("batch",)),),
            (TensorSpec("y", "float32", ("batch",)),),
            CONTRACT.axes[:1],
        )
    )
    kinds = {name: case.inputs()["x"] for name, case in found.items()}
    assert all(values.ndim == 1 for values in kinds.values())
    assert any(0 in values and 0.5 in values for values in kinds.values())


def test_tiny_values_are_legal():
    assert "plain-rows:faint" not in cases(samples={"x": Sample("uniform", (1.0, 2.0))})
    faint = cases(samples={"x": Sample("uniform", (0.0, 2.0))})["plain-rows:faint"]
    assert faint.inputs()["x"].min() >= 0


def test_another_epsilon_shows_in_tiny_rows_alone():
    """The difference that an epsilon makes to a normalization of drawn values is within limits."""
    x = cases()["plain-rows:faint"].inputs()["x"].astype(np.float64)

    def normalized(epsilon):
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon)

    errors = np.abs(normalized(1e-12) - normalized(1e-6)).max(axis=1)
    assert errors[0] < 1e-5
    assert errors[1:].min() > 1e-3


@pytest.mark.parametrize(
    "sample", [Sample("normal", (0.0, 1.0)), Sample("uniform", (0.0, 1.0)), Sample("image", (0, 1))]
)
def test_a_variance_by_squares_shows_in_values_far_from_zero_alone(sample):
    """The mean of squares less the square of the mean is within limits for drawn values."""
    drawn, far = cases(samples={"x": sample})["plain-rows:offset"].inputs()["x"]
    if sample.kind != "normal":
        assert 0 <= far.min() <= far.max() <= 1

    def normalized(row, variance):
        return (row - row.mean()) / np.sqrt(variance + 1e-5)

    def error(row):
        exact = row.astype(np.float64)
        squares = (row * row).mean() - row.mean() * row.mean()
        return np.abs(normalized(row, squares) - normalized(exact, exact.var())).max()

    def rounding(row):
        exact = row.astype(np.float64)
        return np.abs(normalized(row, row.var()) - normalized(exact, exact.var())).max()

    assert error(drawn) < 1e-4
    assert not error(far) < 1e-4
    assert rounding(far) < 5e-5


def test_whole_numbers_have_no_row_far_from_zero():
    assert "plain-rows:offset" not in cases(samples={"x": Sample("integers", (0, 9))})


@pytest.mark.parametrize("most", [1, 3, 99])
def test_inputs_of_one_shape_and_range_meet(most):
    inputs = (*CONTRACT.inputs, TensorSpec("other", "float32", ("batch", "sequence")))
    contract = dataclasses.replace(with_batch(1, most), inputs=inputs)
    feeds = cases(contract)["plain-rows:alike"].inputs()
    are_alike = (feeds["x"] == feeds["other"]).all(axis=1)
    assert are_alike.tolist() == ([True] if most == 1 else [False, *[True] * min(most - 1, 7)])
    assert len(np.unique(feeds["x"])) == feeds["x"].size
    another = {"other": Sample("uniform", (0.0, 1.0))}
    assert "plain-rows:alike" not in cases(contract, another)
    whole = {"x": Sample("integers", (0.0, 9.0)), "other": Sample("integers", (0.0, 9.0))}
    whole_inputs = tuple(dataclasses.replace(each, dtype="int64") for each in inputs)
    assert "plain-rows:alike" not in cases(
        dataclasses.replace(contract, inputs=whole_inputs), whole
    )


def test_inputs_are_what_the_model_holds():
    """A row of each table that is as wide as the input and within its range, in turn."""
    table = np.arange(28.0).reshape(4, 7) / 28
    facts = ModelFacts(tables=(table, np.ones((2, 6)), table + 9))
    contract = Contract(
        (TensorSpec("x", "float32", ("batch", 7)),),
        (TensorSpec("y", "float32", ("batch", 7)),),
        CONTRACT.axes[:1],
    )
    sample = {"x": Sample("uniform", (0.0, 1.0))}
    drawn, *held = cases(contract, sample, facts)["plain-rows:held"].inputs()["x"]
    assert (np.stack(held) == np.resize(table, (7, 7)).astype(np.float32)).all()
    assert not any((drawn == row).all() for row in held)
    assert "plain-rows:held" not in cases(contract, {"x": Sample("uniform", (2.0, 3.0))}, facts)
    assert "plain-rows:held" not in cases(contract, sample)
    places = dataclasses.replace(
        contract, inputs=(TensorSpec("x", "float32", ("batch", 3, 7)),), axes=CONTRACT.axes[:1]
    )
    rows = cases(places, sample, facts)["plain-rows:held"].inputs()["x"][1:].reshape(-1, 7)
    assert (rows == np.resize(table, rows.shape).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("guarded", "lost"),
    [
        (
            lambda x, y: np.arccos(np.clip(cosine(x, y), -1, 1)),
            lambda x, y: np.arccos(cosine(x, y)),
        ),
        (lambda x, y: (x - y) / (np.abs(x - y) + 1e-6), lambda x, y: (x - y) / np.abs(x - y)),
    ],
    ids=["a lost clip", "a lost epsilon"],
)
def test_what_guards_a_distance_of_zero_is_missed(guarded, lost):
    inputs = (*CONTRACT.inputs, TensorSpec("other", "float32", ("batch", "sequence")))
    feeds = cases(dataclasses.replace(CONTRACT, inputs=inputs))["plain-rows:alike"].inputs()
    x, y = feeds["x"], feeds["other"]
    with np.errstate(invalid="ignore"):
        found = lost(x, y)
    assert np.isfinite(guarded(x, y)).all()
    assert np.isfinite(found[0]).all()  # drawn as ever
    assert not np.isfinite(found).all()


def cosine(x, y):
    one, other = (each / np.sqrt((each * each).sum(1, keepdims=True)) for each in (x, y))
    return (one * other).sum(1, keepdims=True)


def test_equal_rows_are_equal_in_all_inputs():
    other = TensorSpec("mask", "int64", ("batch", "sequence"))
    contract = dataclasses.replace(CONTRACT, inputs=(*CONTRACT.inputs, other))
    samples = {"mask": Sample("integers", (0.0, 9.0), held=(Held(3),))}
    mask = cases(contract, samples)["plain-rows"].inputs()["mask"]
    assert (mask[0] == mask[1]).all()
    assert (mask != mask[0]).any()  # numbers with a meaning stay as they are drawn


@pytest.mark.parametrize(
    ("sample", "zeros", "constant", "huge"),
    [
        (Sample("uniform", (0.25, 1.0)), 0.25, 1.0, 1.0),
        (Sample("uniform", (0.0, 0.99)), 0.0, 0.5, 0.99),
        (Sample("uniform", (-3.0, -1.0)), -1.0, -1.5, -1.0),
        (Sample("normal", (100.0, 1.0)), 92.0, 100.5, 1124.0),
    ],
)
def test_all_values_are_legal(sample, zeros, constant, huge):
    found = cases(samples={"x": sample})
    rows = found["plain-rows"].inputs()["x"]
    assert (rows[2] == np.float32(zeros)).all()
    assert (rows[3] == np.float32(constant)).all()
    assert found["plain-rows:huge"].inputs()["x"][1].max() == np.float32(huge)


def test_zeros_of_what_is_never_negative_have_no_sign():
    zeros = cases(samples={"x": Sample("uniform", (0.0, 1.0))})["plain-rows:zeros"].inputs()["x"]
    assert not zeros.any()
    assert not np.signbit(zeros).any()


def test_whole_numbers():
    contract = dataclasses.replace(
        CONTRACT, inputs=(TensorSpec("x", "int64", ("batch", "sequence")),)
    )
    found = cases(contract, {"x": Sample("integers", (2.0, 50.0))})
    rows = found["plain-rows"].inputs()["x"]
    assert (rows[2] == 2).all()
    assert (rows[3] == 26).all()
    assert 49 in found["plain-rows:huge"].inputs()["x"][1]


def test_a_small_batch_takes_several_cases_and_a_large_one_repeats():
    found = cases(with_batch(1, 2))
    assert list(found) == [
        *("plain-rows", "plain-rows:2", "plain-rows:zeros"),
        *("plain-rows:huge", "plain-rows:huge-negative", "plain-rows:fainter"),
        "plain-rows:offset",
    ]
    assert not found["plain-rows:2"].inputs()["x"][0].any()
    rows = cases(with_batch(6, 8))["plain-rows"].inputs()["x"]
    assert len(rows) == 6
    assert (rows[5] == rows[0]).all()


def test_without_rows_each_kind_is_a_case():
    contract = Contract(
        (TensorSpec("x", "float32", (3, 4)),), (TensorSpec("y", "float32", (3, 4)),), ()
    )
    found = cases(contract)
    assert list(found) == [
        f"plain-rows:{kind}"
        for kind in ("zeros", "constant", "huge", "huge-negative", "fainter", "offset")
    ]
    assert not found["plain-rows:zeros"].inputs()["x"].any()
    assert (found["plain-rows:huge"].inputs()["x"] == 1024).sum() == 1


UNDEFINED = {
    "NaN for zeros": ("return {'y': x / x.norm(dim=-1, keepdim=True)}", {"zeros"}),
    "refuses zeros": ("assert x.abs().sum(-1).min() > 0\nreturn {'y': x * 2}", {"zeros"}),
    "NaN where all are equal": (
        "return {'y': (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)}",
        {"zeros", "constant"},
    ),
    "NaN for one row spreads": ("return {'y': x + 0 * (1 / x.abs().sum(-1)).sum()}", {"zeros"}),
}


@pytest.mark.parametrize(("forward", "without"), UNDEFINED.values(), ids=UNDEFINED)
def test_rows_without_a_result_are_left_out_and_the_others_stay(tmp_path, forward, without):
    result, findings, output = run(tmp_path, factory(tmp_path, forward, "x"), CONTRACT, {})
    assert {each.code for each in findings} <= {"N103", "N307"}
    assert not [each for each in findings if (each.place.case or "").startswith("plain-rows")]
    reasons = {each.name: each.reason for each in result.omitted}
    left = {name for name in reasons if name.startswith("plain-rows:")} - {"plain-rows:zeros"}
    assert left | {"plain-rows:zeros"} == {f"plain-rows:{kind}" for kind in without}
    (case,) = [each for each in result.cases if each.name == "plain-rows"]
    y = read_tensors(output, case.name, "outputs", CONTRACT.outputs)["y"]
    assert len(y) == 4 - len(without)
    assert np.isfinite(y).all()


def test_where_no_row_but_the_drawn_one_has_a_result_the_case_is_left_out(tmp_path):
    forward = "return {'y': x + 0 / (x.std(-1, keepdim=True) * (x[0] - x[-1]).abs().max())}"
    result, _, _ = run(tmp_path, factory(tmp_path, forward, "x"), CONTRACT, {})
    assert "plain-rows" not in {each.name for each in result.cases}
    assert "plain-rows" in {each.name for each in result.omitted}


def test_each_kind_of_row_is_tried_once_by_itself():
    """A case may have several rows of a kind, and each trial is a run of the original."""
    inputs = (*CONTRACT.inputs, TensorSpec("other", "float32", ("batch", "sequence")))
    case = cases(dataclasses.replace(CONTRACT, inputs=inputs))["plain-rows:alike"]
    assert case.rows == ("drawn", *["alike"] * 7)
    runs = []

    def run(feeds):
        runs.append(feeds)
        is_drawn = (feeds["x"] != feeds["other"]).all()
        return {"y": np.full(1, np.nan if is_drawn else 0.0)}

    kept, omitted = with_defined_rows(case, run)
    assert len(runs) == 2
    assert kept.rows == ("alike",) * 7
    assert [each.name for each in omitted] == ["plain-rows:alike:drawn"]
