import dataclasses

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import CONTRACT, SAMPLES, tensor

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import Draw, draw_inputs, padding_mask
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import StageFailedError, UnfitDataError

NO_FACTS = ModelFacts()
FULL = Draw()
BERT = ModelFacts(vocabulary=100, pad_token=0, max_positions=64)
SIZES = {"batch": 4, "sequence": 12}


def one(
    dtype, sample, *, shape=("batch", "sequence"), facts=NO_FACTS, sizes=SIZES, seed=0, draw=FULL
):
    contract = Contract((tensor("x", dtype, shape),), (), CONTRACT.axes)
    samples = {} if sample is None else {"x": sample}
    return draw_inputs(contract, samples, sizes, seed, facts=facts, draw=draw)["x"]


def test_inputs_come_in_order_typed_and_shaped():
    inputs = draw_inputs(CONTRACT, SAMPLES, SIZES, 0, facts=NO_FACTS)
    assert list(inputs) == ["ids", "mask", "types"]
    assert all(values.shape == (4, 12) and values.dtype == np.int64 for values in inputs.values())


def test_values_depend_on_seed_case_and_name_only():
    def draw(seed=0, case="typical", contract=CONTRACT):
        return draw_inputs(contract, SAMPLES, SIZES, seed, facts=NO_FACTS, draw=Draw(case))["ids"]

    alone = dataclasses.replace(CONTRACT, inputs=CONTRACT.inputs[:1])
    np.testing.assert_array_equal(draw(), draw(contract=alone))
    assert (draw() != draw(seed=1)).any()
    assert (draw() != draw(case="largest")).any()
    other_name = dataclasses.replace(CONTRACT, inputs=(tensor("other", "int64"),))
    other = draw_inputs(
        other_name, {"other": SAMPLES["ids"]}, SIZES, 0, facts=NO_FACTS, draw=Draw("typical")
    )
    assert (other["other"] != draw()).any()
    # Held against a value: a change of the generator would silently change every reference.
    assert draw()[0, :4].tolist() == [38, 32, 30, 39]


def test_token_ids_stay_in_the_vocabulary_and_off_the_pad_token():
    ids = one(
        "int64", Sample("token_ids"), facts=ModelFacts(vocabulary=3, pad_token=2), sizes=SIZES
    )
    assert set(np.unique(ids)) == {0, 1}
    with pytest.raises(StageFailedError, match=r"'x' is drawn as token_ids.*no vocabulary"):
        one("int64", Sample("token_ids"))


def test_padding_holds_the_pad_token():
    contract = Contract(
        (tensor("ids", "int64"), tensor("mask", "int64"), tensor("labels", "int64", ("batch",))),
        (),
        CONTRACT.axes,
    )
    samples = {
        "ids": Sample("token_ids"),
        "mask": Sample("padding_mask"),
        "labels": Sample("token_ids"),
    }
    facts = ModelFacts(vocabulary=100, pad_token=7)
    inputs = draw_inputs(contract, samples, SIZES, 0, facts=facts, draw=Draw("padded", "right"))
    mask = inputs["mask"].astype(bool)
    assert (inputs["ids"][~mask] == 7).all()
    assert (inputs["ids"][mask] != 7).all()
    assert 7 not in inputs["labels"]
    bare = draw_inputs(
        contract, samples, SIZES, 0, facts=facts, draw=Draw("padded", "right", pad_tokens=False)
    )
    assert (bare["ids"] != 7).all()


@given(st.integers(1, 9), st.integers(1, 40))
def test_masks(rows, positions):
    assert padding_mask((rows, positions), "full").all()
    right = padding_mask((rows, positions), "right")
    assert right[:, 0].all()  # a real position in every row
    assert (np.diff(right.astype(int), axis=1) <= 0).all()  # zeros on the right
    if positions >= 3:
        share = 1 - right.mean(axis=1)
        assert ((share > 0.2) & (share < 0.8)).all()
    ragged = padding_mask((rows, positions), "ragged").sum(axis=1)
    assert ragged[0] == positions
    assert ragged.min() >= 1
    if rows <= positions:
        assert len(set(ragged)) == rows
    masked = padding_mask((rows, positions), "masked-row").sum(axis=1)
    assert masked.tolist() == [0] + [positions] * (rows - 1)


def test_masks_of_other_ranks():
    assert padding_mask((6,), "right").sum() == 2
    mask = padding_mask((3, 1, 1, 6), "ragged")
    assert mask.shape == (3, 1, 1, 6)
    assert mask.sum(axis=(1, 2, 3)).tolist() == [6, 4, 1]
    assert one("float32", Sample("padding_mask"), draw=Draw("padded", "right")).dtype == np.float32
    assert one("bool", Sample("padding_mask")).all()


def test_positions_count_along_the_last_axis():
    assert one("int64", Sample("positions"))[2].tolist() == list(range(12))
    assert one("int64", Sample("positions"), shape=("sequence",)).tolist() == list(range(12))


def test_floats():
    normal = one("float32", Sample("normal", (3.0, 0.5)), sizes={"batch": 100, "sequence": 100})
    assert normal.dtype == np.float32
    assert normal.mean() == pytest.approx(3.0, abs=0.05)
    assert normal.std() == pytest.approx(0.5, abs=0.05)
    uniform = one("float64", Sample("uniform", (-1.0, 2.0)))
    assert ((uniform >= -1) & (uniform <= 2)).all()
    assert one("float32", None).std() > 0.5  # standard normal where nothing is said
    assert one("bfloat16", Sample("constant", (1.5,))).dtype == ml_dtypes.bfloat16
    with pytest.raises(StageFailedError, match="'x' is int64 and has no sample"):
        one("int64", None)


def test_extremes_are_the_ends_and_legal():
    extreme = Draw("extreme", extreme=True)
    ids = one("int64", Sample("token_ids"), facts=BERT, draw=extreme)
    assert set(np.unique(ids)) == {0, 99}
    assert set(np.unique(one("int8", Sample("integers", (-3.0, 5.0)), draw=extreme))) == {-3, 4}
    assert set(np.unique(one("float32", Sample("normal", (1.0, 2.0)), draw=extreme))) == {
        -15.0,
        17.0,
    }
    assert set(np.unique(one("float32", Sample("uniform", (0.0, 1.0)), draw=extreme))) == {0.0, 1.0}
    assert np.isfinite(one("float16", Sample("normal", (0.0, 1e5)), draw=extreme)).all()


def test_extremes_have_whole_numbers_that_float32_skips():
    extreme = Draw("extreme", extreme=True)
    large = one("int64", Sample("integers", (0.0, 2.0**24 + 3)), draw=extreme)
    assert set(np.unique(large)) == {0, 1, 2**24 + 1, 2**24 + 2}
    assert int(np.float32(2**24 + 1)) != 2**24 + 1
    exact = one("int64", Sample("integers", (0.0, 2.0**24 + 1)), draw=extreme)
    assert set(np.unique(exact)) == {0, 2**24}


def test_values_that_a_dtype_does_not_hold_are_refused():
    with pytest.raises(StageFailedError, match="int8 does not hold the values 0 to 999"):
        one("int8", Sample("integers", (0.0, 1000.0)))
    with pytest.raises(StageFailedError, match="is not an integer"):
        one("int64", Sample("constant", (0.5,)))


def test_files_are_cut_and_repeated_to_the_shape(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    values = one(
        "float32", Sample("file", path=str(tmp_path / "x.npy")), sizes={"batch": 3, "sequence": 2}
    )
    assert values.tolist() == [[0, 1], [3, 4], [0, 1]]
    np.save(tmp_path / "row.npy", np.arange(3))
    assert one("int64", Sample("file", path=str(tmp_path / "row.npy")))[3].tolist() == [0, 1, 2] * 4
    with pytest.raises(
        UnfitDataError, match=r"holds float32 of shape \[2, 3\]; input 'x' is int64 with 2 axes"
    ):
        one("int64", Sample("file", path=str(tmp_path / "x.npy")))
    with pytest.raises(UnfitDataError, match=r"not a readable \.npy file"):
        one("int64", Sample("file", path=str(tmp_path / "absent.npy")))


def test_an_archive_has_an_array_of_the_input_s_name(tmp_path):
    file = tmp_path / "example.npz"
    np.savez(file, x=np.arange(3), y=np.zeros(3))
    sample = Sample("file", path=str(file))
    assert one("int64", sample)[3].tolist() == [0, 1, 2] * 4
    np.savez(file, y=np.zeros(3))
    with pytest.raises(UnfitDataError, match=r"no array named 'x'; it has 'y'"):
        one("int64", sample)
    file.write_bytes(b"PK no archive")
    with pytest.raises(UnfitDataError, match=r"not a readable \.npz file"):
        one("int64", sample)


def test_texts_are_the_sample_s():
    drawn = one("string", Sample("strings", strings=("a", "longer")))
    assert drawn.shape == (4, 12)
    assert set(drawn.ravel()) == {"a", "longer"}


@pytest.mark.parametrize(
    ("padding", "expected"),
    [("full", [12, 12, 12, 12]), ("ragged", [12, 9, 5, 1]), ("masked-row", [1, 12, 12, 12])],
)
def test_lengths_are_bounded_by_their_axis(padding, expected):
    sample = Sample("lengths", along="sequence")
    drawn = one("int64", sample, shape=("batch",), draw=Draw("case", padding))
    assert drawn.tolist() == expected


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        ("full", [12, 12, 12, 12]),
        ("ragged", [12, 9, 5, 1]),
        ("right", [12, 8, 4, 4]),
        ("masked-row", [12, 12, 12, 1]),
    ],
)
def test_lengths_that_fill_their_axis_descend_from_it(padding, expected):
    sample = Sample("lengths", (1.0,), along="sequence")
    drawn = one("int64", sample, shape=("batch",), draw=Draw("case", padding))
    assert drawn.tolist() == expected


def test_lengths_follow_arithmetic_over_axes():
    drawn = one("int64", Sample("lengths", along="2 * sequence + 1"), shape=("batch",))
    assert drawn.tolist() == [25, 25, 25, 25]


def test_a_mask_that_is_added_hides_by_minus_infinity():
    sample = Sample("padding_mask", (-np.inf,))
    mask = one("float32", sample, draw=Draw("padded", "right"))
    assert set(np.unique(mask)) == {-np.inf, 0.0}
    assert np.array_equal(mask == 0, padding_mask((4, 12), "right"))


def test_a_causal_mask_shows_each_position_itself_and_those_before_it():
    mask = one("bool", Sample("causal_mask"), shape=("batch", "sequence", "sequence"))
    assert np.array_equal(mask, np.broadcast_to(np.tri(12, dtype=bool), (4, 12, 12)))


def test_columns_lie_within_their_own_ranges_and_at_the_ends_of_these():
    sample = Sample("columns", (0.0, 1.0, -40.0, 60.0, 5.0, 5.0))
    drawn = one("float32", sample, shape=("batch", 3), sizes={"batch": 64, "sequence": 2})
    ends = np.array([[0, 1], [-40, 60], [5, 5]])
    assert (drawn >= ends[:, 0]).all()
    assert (drawn <= ends[:, 1]).all()
    assert np.ptp(drawn, axis=0).tolist()[2] == 0
    assert np.ptp(drawn, axis=0)[1] > 50
    extreme = Draw("extreme", extreme=True)
    drawn = one(
        "float32", sample, shape=("batch", 3), sizes={"batch": 64, "sequence": 2}, draw=extreme
    )
    assert {tuple(np.unique(column)) for column in drawn.T} == {(0, 1), (-40, 60), (5,)}
