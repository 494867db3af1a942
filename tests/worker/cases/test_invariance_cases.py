import dataclasses

import numpy as np
import pytest
from small_graphs import CONTRACT, SAMPLES, tensor

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Layout, Sample
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.invariance_cases import (
    ALONE,
    MASKED,
    PADDED,
    ROW,
    base_case,
    base_sizes,
    build_variants,
    find_layout,
    lengthened_axes,
    real_elements,
)
from convkit.worker.cases.values.sampling_facts import ModelFacts

LAYOUT = Layout("batch", ("mask",))
AXES = (Axis("batch", 1, 4, 16), Axis("sequence", 2, 64, 128))


def made_from(contract=CONTRACT, samples=SAMPLES, **facts):
    return CaseInputs(contract, samples, 0, ModelFacts(**facts))


def make(contract=CONTRACT, samples=SAMPLES, **facts):
    """Return the layout, the base case's inputs, those of each variant, and what was left out."""
    made = made_from(contract, samples, **facts)
    layout, omitted = find_layout(contract, samples)
    base = base_case(made, layout, base_sizes(contract, layout, probe_sizes(contract)))
    variants, left_out = build_variants(made, layout, base)
    return (
        layout,
        base,
        {case.name: case for case in variants},
        {case.name: case.reason for case in (*omitted, *left_out)},
    )


Y = tensor("y", shape=("batch", "sequence", 8))


def contract_of(*inputs, outputs=(Y,), axes=AXES):
    return Contract(inputs, tuple(outputs), axes)


IDS, MASK = tensor("ids", "int64"), tensor("mask", "int64")


def test_the_base_case_is_small_and_ragged():
    contract = dataclasses.replace(
        CONTRACT, axes=(Axis("batch", 1, 8, 64), Axis("sequence", 2, 128, 512))
    )
    _, base, variants, omitted = make(contract)
    assert base.sizes == {"batch": 3, "sequence": 8}
    assert base.inputs()["mask"].sum(axis=1).tolist() == [8, 5, 1]
    assert list(variants) == [ALONE, PADDED, MASKED]
    assert omitted == {}
    assert all(case.kind == "invariance" for case in (base, *variants.values()))


def test_sizes_stay_in_the_axes_ranges():
    contract = dataclasses.replace(
        CONTRACT, axes=(Axis("batch", 4, 8, 8), Axis("sequence", 30, 31, 32))
    )
    _, base, variants, _ = make(contract)
    assert base.sizes == {"batch": 4, "sequence": 30}
    assert variants[PADDED].sizes == {"batch": 4, "sequence": 32}
    assert variants[ALONE].sizes == {"batch": 4, "sequence": 30}


def test_a_row_alone_is_that_row():
    _, base, variants, _ = make()
    feeds, alone = base.inputs(), variants[ALONE].inputs()
    assert variants[ALONE].base == base.name
    for name, values in alone.items():
        np.testing.assert_array_equal(values, feeds[name][ROW : ROW + 1])


def test_a_row_is_repeated_where_a_batch_has_more():
    contract = dataclasses.replace(CONTRACT, axes=(Axis("batch", 2, 2, 4), CONTRACT.axes[1]))
    _, base, variants, _ = make(contract)
    feeds, alone = base.inputs(), variants[ALONE].inputs()
    assert alone.keys() == feeds.keys()
    for name, values in alone.items():
        np.testing.assert_array_equal(values, feeds[name][[ROW, ROW]])


def test_more_padding_leaves_what_was_there():
    _, base, variants, _ = make(
        samples=SAMPLES | {"ids": Sample("token_ids")}, vocabulary=50, pad_token=7
    )
    feeds, padded = base.inputs(), variants[PADDED].inputs()
    before = feeds["ids"].shape[1]
    assert padded["ids"].shape[1] > before
    for name, values in feeds.items():
        np.testing.assert_array_equal(padded[name][:, :before], values)
    assert not padded["mask"][:, before:].any()
    assert (padded["ids"][padded["mask"] == 0] == 7).all()
    assert (padded["ids"][padded["mask"] != 0] != 7).all()


def test_only_masked_values_change():
    layout, _, variants, _ = make()
    before, after = variants[PADDED].inputs(), variants[MASKED].inputs()
    assert variants[MASKED].base == PADDED
    masked = before["mask"] == 0
    assert (after["ids"][masked] != before["ids"][masked]).all()
    np.testing.assert_array_equal(after["ids"][~masked], before["ids"][~masked])
    np.testing.assert_array_equal(after["mask"], before["mask"])
    assert layout == LAYOUT


def test_positions_and_constants_stay_at_padding():
    contract = contract_of(IDS, MASK, tensor("place", "int64"), tensor("one", "float32"))
    samples = SAMPLES | {"place": Sample("positions"), "one": Sample("constant", (1.0,))}
    _, base, variants, _ = make(contract, samples)
    after, length = variants[MASKED].inputs(), base.sizes["sequence"]
    assert length == 8
    for row in after["place"]:
        np.testing.assert_array_equal(row, np.arange(12))
    assert (after["one"] == 1).all()


def test_a_fixed_length_is_masked_only():
    ids, mask = (tensor(name, "int64", ("batch", 6)) for name in ("ids", "mask"))
    contract = contract_of(ids, mask, outputs=[tensor("y", shape=("batch", 6, 8))], axes=AXES[:1])
    _, base, variants, omitted = make(contract)
    assert list(variants) == [ALONE, MASKED]
    assert variants[MASKED].base == base.name
    assert omitted == {PADDED: "the positions of 'mask' (6) are not an axis that can grow"}
    before, after = base.inputs(), variants[MASKED].inputs()
    assert (after["ids"][before["mask"] == 0] != before["ids"][before["mask"] == 0]).all()


def test_a_single_row_of_a_fixed_length_is_padded_itself():
    ids, mask = (tensor(name, "int64", (1, 6)) for name in ("ids", "mask"))
    _, base, variants, omitted = make(
        contract_of(ids, mask, outputs=[tensor("y", shape=(1, 6))], axes=())
    )
    assert 0 < base.inputs()["mask"].sum() < 6
    assert list(variants) == [MASKED]
    assert omitted[ALONE] == "the inputs do not share a first axis, so there are no rows"


def test_several_masks_grow_together():
    target = [tensor(name, "int64", ("batch", "target")) for name in ("target_ids", "target_mask")]
    contract = contract_of(IDS, MASK, *target, axes=(*AXES, Axis("target", 1, 8, 32)))
    samples = SAMPLES | {"target_ids": SAMPLES["ids"], "target_mask": SAMPLES["mask"]}
    layout, base, variants, _ = make(contract, samples)
    assert layout.masks == ("mask", "target_mask")
    assert base.sizes == {"batch": 3, "sequence": 8, "target": 8}
    padded = variants[PADDED].inputs()
    assert padded["mask"].shape == padded["target_mask"].shape == (3, 12)
    assert not padded["target_mask"][:, 8:].any()


def test_new_queries_of_a_two_dimensional_mask_see_something():
    mask = tensor("mask", "int64", ("batch", "sequence", "sequence"))
    _, base, variants, _ = make(contract_of(IDS, mask))
    padded, length = variants[PADDED].inputs()["mask"], base.sizes["sequence"]
    np.testing.assert_array_equal(padded[:, :length, :length], base.inputs()["mask"])
    assert padded.any(axis=-1).all()
    assert not padded[..., length:].any()


@pytest.mark.parametrize(
    ("contract", "reason"),
    [
        (
            contract_of(tensor("a", shape=("batch", 3)), tensor("b", shape=("sequence", 3))),
            "the inputs do not share a first axis",
        ),
        (
            contract_of(IDS, axes=(Axis("batch", 1, 1, 1), AXES[1])),
            "the axis 'batch' never has two rows",
        ),
        (
            contract_of(IDS, outputs=[tensor("y", shape=("2 * batch",))]),
            "'y' does not have one row for each of 'batch'",
        ),
        (
            contract_of(IDS, outputs=[tensor("y", shape=("sequence",))]),
            "no output has the axis 'batch'",
        ),
        (
            contract_of(IDS, outputs=[tensor("y", shape=("batch", "batch"))]),
            "'y' does not have one row",
        ),
    ],
    ids=["two leading axes", "one row", "arithmetic", "not in outputs", "twice"],
)
def test_rows_that_cannot_be_told_apart_are_said_to_be(contract, reason):
    samples = {spec.name: Sample("integers", (0, 9)) for spec in contract.inputs}
    layout, omitted = find_layout(contract, samples)
    assert layout.rows is None
    assert next(case.reason for case in omitted if case.name == ALONE).startswith(reason)


def test_without_a_mask_padding_is_left_out():
    layout, omitted = find_layout(contract_of(IDS), {"ids": Sample("integers", (0, 9))})
    assert layout == Layout("batch", ())
    assert {case.name: case.reason for case in omitted} == dict.fromkeys(
        (PADDED, MASKED), "no input has sample: padding_mask"
    )


def test_a_mask_over_a_cache_does_not_grow():
    mask = tensor("mask", "int64", ("batch", "past + sequence"))
    contract = contract_of(IDS, mask, axes=(*AXES, Axis("past", 0, 8, 32)))
    _, _, variants, omitted = make(contract)
    assert list(variants) == [ALONE]
    assert omitted == {
        PADDED: "the positions of 'mask' (past + sequence) are not an axis that can grow",
        MASKED: "no other input has values at a mask's positions",
    }


def test_an_axis_in_arithmetic_does_not_grow():
    contract = contract_of(IDS, MASK, outputs=[tensor("y", shape=("batch", "sequence + 1"))])
    assert lengthened_axes(contract, LAYOUT) == []


def test_an_input_that_all_rows_share_is_left_whole():
    contract = contract_of(IDS, tensor("place", "int64", ("sequence",)))
    _, base, variants, _ = make(contract, SAMPLES | {"place": Sample("positions")})
    np.testing.assert_array_equal(variants[ALONE].inputs()["place"], base.inputs()["place"])
    assert variants[ALONE].inputs()["ids"].shape[0] == 1


MASK_FEEDS = {"mask": np.array([[1, 1, 1], [1, 0, 0]])}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("batch", 8), [[True] * 8] * 2),
        (("batch", "sequence"), [[True, True, True], [True, False, False]]),
        (("batch", 1, "sequence"), [[[True, True, True]], [[True, False, False]]]),
        (("sequence",), [True, False, False]),
    ],
)
def test_real_elements(shape, expected):
    spec = TensorSpec("y", "float32", shape)
    sizes = {"batch": 2, "sequence": 3}
    real = real_elements(spec, CONTRACT, LAYOUT, MASK_FEEDS, spec.concrete_shape(sizes))
    assert real.tolist() == expected


def test_attention_is_real_where_query_and_key_are():
    spec = TensorSpec("y", "float32", ("batch", "sequence", "sequence"))
    real = real_elements(spec, CONTRACT, LAYOUT, MASK_FEEDS, (2, 3, 3))
    assert real[0].all()
    assert np.argwhere(real[1]).tolist() == [[0, 0]]
