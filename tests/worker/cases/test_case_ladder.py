import dataclasses
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import CONTRACT, SAMPLES, tensor

from convkit.host.recipe.keys.recipe import ALWAYS_RUN as RECIPES_ALWAYS_RUN
from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import CaseName, Sample, is_usual
from convkit.worker.cases.axis_sizes import off_typical_sizes, probe_sizes
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.case_ladder import LADDER, build_ladder
from convkit.worker.cases.decision_sizes import NO_DECISIONS, Decisions, SizeDecision, Threshold
from convkit.worker.cases.decision_values import ValueDecision
from convkit.worker.cases.time_budget import ALWAYS_RUN
from convkit.worker.cases.values.sampled_values import draw_inputs, padding_mask
from convkit.worker.cases.values.sampling_facts import ModelFacts

FACTS = ModelFacts(vocabulary=100, pad_token=0)


class WordTokenizer:
    """A tokenizer with transformers' interface: one id per word."""

    model_input_names = ("ids", "mask")
    pad_token = "[PAD]"

    def __call__(self, texts, *, padding, truncation, max_length, return_tensors):
        assert truncation
        assert return_tensors == "np"
        rows = [[1 + len(word) for word in text.split()][:max_length] for text in texts]
        longest = max_length if padding == "max_length" else max(map(len, rows))
        ids = np.array([row + [0] * (longest - len(row)) for row in rows])
        return {"ids": ids, "mask": (ids > 0).astype(np.int64)}


def ladder(
    contract=CONTRACT,
    samples=SAMPLES,
    texts=(),
    tokenizer=None,
    skip=(),
    decisions=NO_DECISIONS,
    ladder="full",
):
    cases, omitted = build_ladder(
        CaseInputs(contract, samples, 0, FACTS), texts, tokenizer, skip, decisions, ladder=ladder
    )
    return {case.name: case for case in cases}, {case.name: case.reason for case in omitted}


def test_names_are_the_recipes():
    assert get_args(CaseName) == LADDER
    assert set(ALWAYS_RUN) == set(RECIPES_ALWAYS_RUN)


def test_the_quick_ladder_lists_what_it_leaves_out():
    full, _ = ladder(texts=["a bb ccc", "dd"], tokenizer=WordTokenizer)
    quick, omitted = ladder(
        texts=["a bb ccc", "dd"], tokenizer=WordTokenizer, skip=("padded",), ladder="quick"
    )
    assert list(quick) == ["smallest", "typical", "masked-row"]
    for name, case in quick.items():
        for tensor_name, values in case.inputs().items():
            np.testing.assert_array_equal(values, full[name].inputs()[tensor_name])
    assert set(omitted) == set(LADDER) - set(quick) - {"files"}
    assert omitted["padded"] == "skipped by the recipe (verify.skip)"
    assert omitted["largest"] == "not in the quick ladder (verify.ladder)"


@pytest.mark.parametrize("texts", [(), ("a", "b")])
def test_only_cases_with_something_to_prove_count_as_left_out(texts):
    samples = dict.fromkeys(("ids", "mask", "types"), Sample("integers", (0, 9)))
    made_from = CaseInputs(CONTRACT, samples, 0, FACTS)
    _, omitted = build_ladder(made_from, texts, None, skip=("largest",))
    applies = {case.name for case in omitted if case.applies}
    # The recipe skips one; and its texts cannot be encoded, if it has any.
    assert applies == {"largest", "texts"} if texts else applies == {"largest"}
    assert {"padded", "ragged", "masked-row", "values"} < {case.name for case in omitted}


def test_every_case_in_order_with_its_sizes():
    cases, omitted = ladder(texts=["a bb ccc", "dd"], tokenizer=WordTokenizer)
    without = {"example", "batch", "sizes", "values", "decisions", "files", "sweep"}
    expected = [name for name in LADDER if name not in without]
    expected.insert(expected.index("texts") + 1, "texts:unusual")
    kinds = [f"plain-rows:{kind}" for kind in ("zeros", "huge")]
    expected[expected.index("plain-rows") + 1 : 0] = kinds
    between = [name for name in cases if name.startswith("sizes:")]
    expected[expected.index("plain-rows") : 0] = between
    assert list(cases) == expected
    # All others: 2, 5, 6 and 12. First, the largest batch alone.
    assert cases[between[0]].sizes == {"batch": 4, "sequence": 2}
    assert [cases[name].sizes["sequence"] for name in between[1:]] == [11, 3]
    assert omitted == {
        "batch": "other cases cover every 'batch' up to 4",
        "sweep": "how much the model computes is unknown",
        "example": "the recipe has no example (verify.example)",
        "values": "the model's code compares no input with a number within its sample's range",
        "decisions": "the model rounds, compares or looks up no input within its sample's range",
    }
    assert cases["smallest"].sizes == {"batch": 1, "sequence": 2}
    assert cases["typical"].sizes == {"batch": 2, "sequence": 6}
    assert cases["largest"].sizes == {"batch": 4, "sequence": 12}
    assert cases["ragged"].sizes == {"batch": 3, "sequence": 6}
    assert cases["off-typical"].sizes == {"batch": 3, "sequence": 5}
    for case in cases.values():
        inputs = case.inputs()
        assert list(inputs) == ["ids", "mask", "types"]
        for spec in CONTRACT.inputs:
            assert inputs[spec.name].shape == spec.concrete_shape(case.sizes), case.name
        again = case.inputs()
        assert all((again[name] == values).all() for name, values in inputs.items())


def test_masks_of_the_cases():
    cases, _ = ladder()
    masks = {name: case.inputs()["mask"] for name, case in cases.items()}
    for name in ("smallest", "typical", "largest", "off-typical", "extreme"):
        assert masks[name].all()
    assert 0.2 < masks["padded"].mean() < 0.8
    assert masks["ragged"].sum(axis=1).tolist() == [6, 4, 1]
    assert masks["masked-row"].sum(axis=1).tolist() == [0, 6]


def test_without_a_mask_the_cases_about_padding_are_omitted_with_the_reason():
    samples = SAMPLES | {"mask": Sample("integers", (0.0, 2.0))}
    cases, omitted = ladder(samples=samples)
    plain = {"plain-rows", "plain-rows:zeros", "plain-rows:huge"}
    usual = {name for name in cases if not name.startswith("sizes:")} - plain
    assert usual == {"smallest", "typical", "largest", "off-typical", "extreme"}
    assert (
        omitted["padded"]
        == omitted["ragged"]
        == omitted["masked-row"]
        == "no input has sample: padding_mask or lengths"
    )
    assert omitted["texts"] == "the recipe has no texts (verify.texts)"


def test_without_axes_one_size_is_one_case():
    contract = Contract((tensor("x", shape=(3, 4)),), (tensor("y", shape=(3, 4)),), ())
    cases, omitted = ladder(contract, {})
    plain = {
        f"plain-rows:{kind}"
        for kind in ("zeros", "constant", "huge", "huge-negative", "fainter", "offset")
    }
    assert set(cases) == {"smallest", "extreme"} | plain
    assert omitted["typical"] == omitted["largest"] == "the same sizes as smallest (fixed shapes)"
    assert omitted["off-typical"] == "no axis can leave its typical size"


def test_equal_sizes_are_not_run_twice():
    axes = (Axis("batch", 1, 1, 4), Axis("sequence", 2, 2, 12))
    cases, omitted = ladder(dataclasses.replace(CONTRACT, axes=axes))
    assert omitted["typical"] == "the same sizes as smallest (batch=1, sequence=2)"
    assert "largest" in cases
    assert cases["ragged"].sizes["batch"] == 3  # a ragged batch needs rows
    assert cases["padded"].inputs()["mask"].tolist() == [[1, 0]]


def test_a_batch_of_one_cannot_be_ragged_and_one_position_cannot_be_padded():
    axes = (Axis("batch", 1, 1, 1), Axis("sequence", 1, 1, 12))
    _, omitted = ladder(dataclasses.replace(CONTRACT, axes=axes))
    assert omitted["padded"] == "a mask of 1 position leaves no room for padding"
    axes = (Axis("batch", 1, 1, 1), Axis("sequence", 2, 6, 12))
    cases, omitted = ladder(dataclasses.replace(CONTRACT, axes=axes))
    assert omitted["ragged"] == "the batch never has two rows"
    assert not cases["masked-row"].inputs()["mask"].any()


def test_two_rows_are_enough_to_be_ragged():
    axes = (Axis("batch", 1, 1, 2), Axis("sequence", 2, 6, 12))
    cases, _ = ladder(dataclasses.replace(CONTRACT, axes=axes))
    assert cases["ragged"].sizes == {"batch": 2, "sequence": 6}
    assert cases["ragged"].inputs()["mask"].sum(axis=1).tolist() == [6, 1]


def test_skipped_cases_are_listed():
    cases, omitted = ladder(skip=("masked-row",))
    assert "masked-row" not in cases
    assert omitted["masked-row"] == "skipped by the recipe (verify.skip)"


def test_without_values_to_choose_there_is_no_extreme():
    contract = Contract((tensor("x"),), (tensor("y"),), CONTRACT.axes)
    _, omitted = ladder(contract, {"x": Sample("constant", (1.0,))})
    assert omitted["extreme"] == "no input's values have a range"
    assert omitted["plain-rows"] == "no input's values are free to choose"


axis_ranges = st.tuples(st.integers(1, 600), st.integers(1, 600), st.integers(1, 600)).map(sorted)


@given(st.lists(axis_ranges, min_size=1, max_size=4))
def test_off_typical_sizes(ranges):
    axes = tuple(Axis(f"a{i}", *limits) for i, limits in enumerate(ranges))
    sizes = off_typical_sizes(Contract((), (), axes))
    if all(axis.min == axis.max for axis in axes):
        assert sizes is None
        return
    assert sizes is not None
    for axis in axes:
        size = sizes[axis.name]
        assert axis.min <= size <= axis.max
        if axis.min < axis.max:
            assert size != axis.typical
        if axis.max - axis.min > 2 * len(axes) + 4:
            assert size not in (axis.min, axis.typical, axis.max)
            assert list(sizes.values()).count(size) == 1


def test_off_typical_sizes_are_primes_in_the_middle():
    axes = (Axis("batch", 1, 4, 16), Axis("sequence", 2, 128, 512))
    assert off_typical_sizes(Contract((), (), axes)) == {"batch": 5, "sequence": 31}


def test_probe_sizes_are_small_and_different():
    axes = (
        Axis("batch", 1, 4, 16),
        Axis("sequence", 2, 128, 512),
        Axis("height", 32, 64, 96),
        Axis("one", 1, 1, 1),
    )
    assert probe_sizes(Contract((), (), axes)) == {
        "batch": 3,
        "sequence": 7,
        "height": 32,
        "one": 1,
    }


def text_cases(texts, axes=CONTRACT.axes, tokenizer=WordTokenizer, contract=CONTRACT):
    cases, omitted = ladder(
        dataclasses.replace(contract, axes=axes), texts=texts, tokenizer=tokenizer
    )
    return {name: case for name, case in cases.items() if name.startswith("texts")}, omitted


def test_texts_fill_batches_up_to_the_largest():
    cases, _ = text_cases([f"word {'w ' * i}" for i in range(6)])
    assert {name: case.sizes for name, case in cases.items()} == {
        "texts": {"batch": 4, "sequence": 4},
        "texts:2": {"batch": 2, "sequence": 6},
        "texts:unusual": {"batch": 4, "sequence": 3},
    }
    assert cases["texts:unusual"].inputs()["mask"].sum(axis=1).tolist() == [0, 1, 3, 1]
    assert cases["texts:unusual"].may_be_nan
    inputs = cases["texts"].inputs()
    assert inputs["ids"][0].tolist() == [5, 0, 0, 0]
    assert inputs["mask"][0].tolist() == [1, 0, 0, 0]
    assert inputs["types"].shape == (4, 4)  # not the tokenizer's: drawn


def test_texts_stay_within_the_axes():
    cases, _ = text_cases(["w " * 100, "w"])
    assert cases["texts"].sizes["sequence"] == 12
    axes = (Axis("batch", 3, 3, 3), Axis("sequence", 5, 6, 12))
    cases, _ = text_cases(["one", "two"], axes)
    assert cases["texts"].sizes == {"batch": 3, "sequence": 5}
    assert cases["texts"].inputs()["ids"][:, 0].tolist() == [4, 4, 4]


def test_texts_with_fixed_shapes():
    shape = (2, 8)
    contract = dataclasses.replace(
        CONTRACT, inputs=tuple(tensor(s.name, "int64", shape) for s in CONTRACT.inputs)
    )
    cases, _ = text_cases(["one", "two three", "four"], contract=contract)
    assert [case.inputs()["ids"].shape for case in cases.values()] == [(2, 8)] * 3


@pytest.mark.parametrize("least", [0, 2])
def test_texts_of_a_decoder_start_without_a_past(least):
    mask = tensor("mask", "int64", ("batch", "past + sequence"))
    contract = dataclasses.replace(
        CONTRACT,
        inputs=(CONTRACT.inputs[0], mask, tensor("cache", shape=("batch", "past", 4))),
        axes=(*CONTRACT.axes, Axis("past", least, 3, 5)),
    )
    cases, _ = ladder(contract, SAMPLES, ["a bb ccc", "dd"], WordTokenizer)
    case = cases["texts"]
    assert case.sizes["past"] == least
    feeds = case.inputs()
    assert {name: values.shape for name, values in feeds.items()} == {
        spec.name: spec.concrete_shape(case.sizes) for spec in contract.inputs
    }
    if least == 0:  # the tokenizer's own mask
        np.testing.assert_array_equal(feeds["mask"], feeds["ids"] > 0)


def test_reasons_for_no_texts():
    assert text_cases(["a"], tokenizer=None)[1]["texts"] == "the model has no tokenizer"

    class Foreign(WordTokenizer):
        model_input_names = ("pixel_values",)

    assert (
        "makes pixel_values: none of them is an input"
        in text_cases(["a"], tokenizer=Foreign)[1]["texts"]
    )

    class NoPadding(WordTokenizer):
        pad_token = None

    assert "no padding token" in text_cases(["a"], tokenizer=NoPadding)[1]["texts"]


@pytest.mark.parametrize("name", ["smallest", "typical"])
def test_inputs_of_a_case_differ_from_each_other(name):
    contract = dataclasses.replace(CONTRACT, inputs=(tensor("a"), tensor("b")))
    cases, _ = ladder(contract, {})
    inputs = cases[name].inputs()
    assert (inputs["a"] != inputs["b"]).all()


def test_rows_of_unusual_masks():
    cases, _ = ladder()
    left, holes, both, second = cases["mask-patterns"].inputs()["mask"].astype(bool)
    assert not left[0]
    assert left[-1]
    assert holes[0]
    assert holes[-1] or holes[-2]
    assert not holes.all()
    assert not both[0]
    assert not both[-1]
    assert (second[1:] != second[:-1]).any()
    assert cases["mask-patterns"].may_be_nan


@given(st.integers(1, 9), st.integers(2, 40))
def test_every_row_of_patterns_has_a_real_position(rows, positions):
    mask = padding_mask((rows, positions), "patterns")
    assert mask.shape == (rows, positions)
    assert mask.any(axis=1).all()


def test_every_small_batch_is_a_case():
    axes = (Axis("batch", 1, 16, 32), Axis("sequence", 2, 6, 12))
    cases, _ = ladder(dataclasses.replace(CONTRACT, axes=axes))
    sizes = {case.sizes["batch"] for case in cases.values()}
    assert {1, 2, 3, 4} <= sizes
    assert cases["batch:2"].sizes == {"batch": 2, "sequence": 7}
    one = (Axis("batch", 3, 3, 3), Axis("sequence", 2, 6, 12))
    cases, _ = ladder(dataclasses.replace(CONTRACT, axes=one))
    assert not any(name.startswith("batch") for name in cases)


def test_both_sides_of_a_comparison_of_sizes_are_cases():
    decision = SizeDecision("model.py:7", lambda sizes: sizes["sequence"] > 8)
    cases, _ = ladder(decisions=Decisions((decision,)))
    made = {case.sizes["sequence"] for name, case in cases.items() if name.startswith("sizes:")}
    assert made == {8, 9}
    assert "model.py:7" in cases["sizes:batch=3,sequence=9"].description


def test_both_sides_of_a_comparison_of_values_are_drawn():
    thresholds = (Threshold("ids", 42.0, True, "model.py:3"), Threshold("ids", 1e6, True, "m:4"))
    cases, omitted = ladder(decisions=Decisions((), thresholds))
    drawn = set(cases["values"].inputs()["ids"].ravel().tolist())
    assert {41, 42, 43} <= drawn
    _, omitted = ladder(decisions=Decisions((), thresholds[1:]))
    assert "values" in omitted


def test_a_fraction_is_drawn_on_either_side_of_a_threshold():
    contract = Contract((tensor("x"),), (tensor("y"),), CONTRACT.axes)
    scaled = Threshold("x", 5.0, False, "model.py:3")
    cases, _ = ladder(contract, {}, decisions=Decisions((), (scaled,)))
    drawn = cases["values"].inputs()["x"].ravel()
    assert (drawn > 5.0).any()
    assert ((drawn < 5.0) & (drawn > 4.9)).any()
    assert not (drawn == 5.0).any()


def test_values_at_a_decision_are_drawn_with_their_neighbors():
    contract = Contract((tensor("x"),), (tensor("y"),), CONTRACT.axes)
    tenths = ValueDecision("x", "model.py:3", "floor", lambda values: np.floor(values * 10))
    cases, _ = ladder(contract, {}, decisions=Decisions(values=(tenths,)))
    drawn = cases["decisions"].inputs()["x"].ravel()
    (turn,) = {each for each in drawn if each * 10 >= 2 > np.nextafter(each, np.float32(-1)) * 10}
    for neighbor in (turn, np.nextafter(turn, np.float32(0)), np.nextafter(turn, np.float32(1))):
        assert neighbor in drawn
    assert "model.py:3" in cases["decisions"].description
    assert not ((drawn != 0) & (np.abs(drawn) < 1.2e-38)).any()


def test_values_without_room_in_one_small_case_get_several():
    fixed = dataclasses.replace(tensor("x"), shape=(4,))
    contract = Contract((fixed,), (dataclasses.replace(tensor("y"), shape=(4,)),), ())
    tenths = ValueDecision("x", "model.py:3", "floor", lambda values: np.floor(values * 10))
    cases, _ = ladder(contract, {}, decisions=Decisions(values=(tenths,)))
    names = [name for name in cases if name.startswith("decisions")]
    assert names == ["decisions", *(f"decisions:{number}" for number in range(2, 9))]
    drawn = [cases[name].inputs()["x"].tolist() for name in names]
    assert len({each for values in drawn for each in values}) == 32
    assert not any(map(is_usual, names))


def test_a_decision_on_whole_numbers_is_drawn_on_both_sides():
    even = ValueDecision("ids", "model.py:3", "remainder", lambda values: values // 40)
    cases, _ = ladder(decisions=Decisions(values=(even,)))
    assert {39, 40} <= set(cases["decisions"].inputs()["ids"].ravel().tolist())


def test_a_decision_beyond_the_samples_range_has_no_case():
    far = ValueDecision("ids", "model.py:3", "gt", lambda values: values > 1e6)
    _, omitted = ladder(decisions=Decisions(values=(far,)))
    assert "decisions" in omitted


@given(st.integers(1, 40), st.integers(1, 60))
def test_whole_numbers_are_all_drawn_where_there_is_room(count, size):
    spec = dataclasses.replace(tensor("x"), dtype="int64", shape=(size,))
    drawn = draw_inputs(
        Contract((spec,), (), ()),
        {"x": Sample("integers", (0.0, float(count)))},
        {},
        0,
        facts=FACTS,
    )["x"]
    assert set(drawn.tolist()) <= set(range(count))
    if size >= count:
        assert set(drawn.tolist()) == set(range(count))


def test_lengths_are_padded_and_ragged_and_never_empty():
    contract = Contract(
        (tensor("sound"), tensor("lengths", "int64", ("batch",))), (tensor("y"),), CONTRACT.axes
    )
    samples = {"lengths": Sample("lengths", along="sequence")}
    cases, omitted = ladder(contract, samples)
    assert cases["typical"].inputs()["lengths"].tolist() == [6, 6]
    padded = cases["padded"].inputs()["lengths"]
    assert (padded > 0).all()
    assert (padded < 6).all()
    assert len(set(cases["ragged"].inputs()["lengths"].tolist())) > 1
    assert "padding_mask" in omitted["masked-row"]
