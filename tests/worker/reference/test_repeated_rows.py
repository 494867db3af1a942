"""The largest case with three rows, repeated: only where that is proven to be the same."""

import dataclasses

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, DataAxis, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.decision_sizes import NO_DECISIONS, Decisions, SizeDecision
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.reference.repeated_rows import few_rows
from convkit.worker.runtime_interface.sessions import RunFailedError

CONTRACT = Contract(
    inputs=(
        TensorSpec("x", "float32", ("batch", "width")),
        TensorSpec("place", "int64", ("width",)),
    ),
    outputs=(TensorSpec("y", "float32", ("batch", "width")), TensorSpec("n", "int64", ("width",))),
    axes=(Axis("batch", 1, 2, 16), Axis("width", 2, 3, 8)),
)
SAMPLES = {"x": Sample("normal", (0.0, 1.0)), "place": Sample("positions")}


def inputs_of(contract=CONTRACT):
    return CaseInputs(contract, SAMPLES, 0, ModelFacts())


def largest(made_from):
    cases, _ = build_ladder(made_from, (), None)
    return next(case for case in cases if case.name == "largest")


def rows_of(contract=CONTRACT, decisions=NO_DECISIONS):
    made_from = inputs_of(contract)
    return few_rows(made_from, largest(made_from), decisions)


class Original:
    """Computes `y` by a function of `x`, and counts the elements that it was given."""

    def __init__(self, y=lambda x: 2 * x + 1, n=lambda _, place: place):
        self.y, self.n, self.elements = y, n, 0

    def __call__(self, feeds):
        self.elements += feeds["x"].size
        return {"y": self.y(feeds["x"]), "n": self.n(feeds["x"], feeds["place"])}


def test_all_rows_are_what_the_original_returns_for_them():
    few, original = rows_of(), Original()
    found, feeds = few.outputs(original), few.repeated.inputs()
    assert original.elements < 16 * 8
    expected = original(feeds)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert feeds["x"].shape == (16, 8)
    assert len(np.unique(feeds["x"], axis=0)) == 3
    assert few.repeated.description.endswith("three different rows, repeated")
    assert few.repeated.sizes == {"batch": 16, "width": 8}


def test_the_rows_are_the_same_again():
    np.testing.assert_array_equal(
        rows_of().repeated.inputs()["x"], rows_of().repeated.inputs()["x"]
    )


def only_when_wide(x):
    return x - x.mean(0) if x.shape[1] > 4 else x


def with_a_bad_row(x):
    y = x.copy()
    y[0, 0] = np.nan
    return y


@pytest.mark.parametrize(
    "original",
    [
        Original(lambda x: x - x.mean(0)),
        Original(lambda x: np.roll(x, 1, axis=0)),
        Original(only_when_wide),
        Original(lambda x: x if len(x) <= 8 else -x),
        Original(lambda x: x * (1 + 1e-4 * len(x))),
        Original(lambda x: x + np.arange(len(x), dtype=np.float32)[:, None] * (len(x) > 2)),
        Original(lambda x: np.concatenate([x[:8], 2 * x[8:]])),
        Original(with_a_bad_row),
        Original(lambda x: x[:, :-1]),
        Original(lambda x: x.sum(0)),
        Original(n=lambda x, place: place + len(x)),
        Original(n=lambda x, place: place + int(x.sum() > 0)),
    ],
    ids=[
        *("mean", "neighbor", "mean-if-wide", "branch", "slope", "position", "halves"),
        *("nan", "shape", "rank", "count", "shared-output"),
    ],
)
def test_rows_that_depend_on_others_all_run(original):
    assert rows_of().outputs(original) is None


def test_an_original_that_rejects_few_rows_runs_on_all():
    def refuse(x):
        if len(x) < 4:
            raise RunFailedError("four rows at least")
        return x

    assert rows_of().outputs(Original(refuse)) is None


def test_noise_of_other_kernels_is_allowed():
    few = rows_of()
    assert few.outputs(Original(lambda x: x * np.float32(1 + 1e-7 * len(x)))) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"axes": (Axis("batch", 1, 2, 7), Axis("width", 2, 3, 8))},
        {"axes": (Axis("batch", 3, 4, 16), Axis("width", 2, 3, 8))},
        {"outputs": (TensorSpec("y", "float32", ("width", 4)),)},
        {"outputs": (TensorSpec("y", "float32", ("2*batch", "width")),)},
        {"data_axes": (DataAxis("hits", 5),)},
    ],
    ids=["few-anyway", "never-two", "no-rows", "computed", "counted"],
)
def test_contracts_whose_rows_all_run(change):
    assert rows_of() is not None
    assert rows_of(dataclasses.replace(CONTRACT, **change)) is None


@pytest.mark.parametrize(
    ("sample", "few"),
    [
        (Sample("integers", (0.0, 24.0)), True),  # three rows of eight hold all of them
        (Sample("integers", (0.0, 25.0)), False),
        (Sample("integers", (0.0, 128.0)), False),
        (Sample("integers", (0.0, 129.0)), True),  # not even all rows do
        (Sample("file", path="rows.npy"), False),
    ],
    ids=["few-hold-all", "one-more", "all-hold-all", "too-many", "file"],
)
def test_values_that_only_all_rows_hold(sample, few):
    contract = dataclasses.replace(
        CONTRACT, inputs=(TensorSpec("x", "int64", ("batch", "width")), CONTRACT.inputs[1])
    )
    made_from = CaseInputs(contract, SAMPLES | {"x": sample}, 0, ModelFacts())
    assert (few_rows(made_from, largest(made_from), NO_DECISIONS) is not None) == few


@pytest.mark.parametrize(
    "holds",
    [lambda sizes: sizes["batch"] > 8, lambda sizes: sizes["batch"] * sizes["width"] > 64],
    ids=["rows", "elements"],
)
def test_a_decision_that_falls_otherwise_for_few_rows(holds):
    assert rows_of(decisions=Decisions((SizeDecision("model.py:1", holds),))) is None


def test_a_decision_that_falls_alike_changes_nothing():
    by_width = SizeDecision("model.py:1", lambda sizes: sizes["width"] > 4)
    assert rows_of(decisions=Decisions((by_width,))) is not None


def test_a_decision_without_an_outcome():
    by_division = SizeDecision("model.py:1", lambda sizes: 8 // (sizes["batch"] - 2) > 1)
    assert rows_of(decisions=Decisions((by_division,))) is None
