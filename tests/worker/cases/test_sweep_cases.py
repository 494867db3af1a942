"""A model that computes little is tried at many sizes, and with every id."""

import dataclasses

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Held, Sample, is_of_sweep
from convkit.worker.cases.case import CaseInputs, case_cost
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.decision_sizes import Decisions
from convkit.worker.cases.values.sampling_facts import ModelFacts

CONTRACT = Contract(
    (TensorSpec("x", "int64", ("batch", "sequence")),),
    (TensorSpec("y", "float32", ("batch", "sequence")),),
    (Axis("batch", 1, 4, 8), Axis("sequence", 1, 16, 64)),
)
IDS = {"x": Sample("integers", (0.0, 1000.0))}


def cases(samples=IDS, contract=CONTRACT, **facts):
    made_from = CaseInputs(contract, samples, 0, ModelFacts(**{"weights": 100} | facts))
    made, omitted = build_ladder(made_from, (), None)
    return made, {each.name: each.reason for each in omitted}


def sizes_of(made, axis):
    return {case.sizes[axis] for case in made}


def test_every_small_batch_and_no_gap_of_five_lengths_is_left():
    made, _ = cases()
    assert set(range(1, 9)) == sizes_of(made, "batch")
    lengths = sizes_of(made, "sequence")
    for start in range(1, 61):
        assert lengths & set(range(start, start + 5)), start


def test_padding_begins_at_places_where_it_does_in_no_other_case():
    mask = TensorSpec("mask", "int64", ("batch", "sequence"))
    contract = dataclasses.replace(CONTRACT, inputs=(*CONTRACT.inputs, mask))
    made, _ = cases(IDS | {"mask": Sample("padding_mask")}, contract)
    sweep = [each for each in made if is_of_sweep(each.name) and ":numbers" not in each.name]
    padded = [each for each in sweep if not each.inputs()["mask"].all()]
    assert [each.description.partition(" (")[0] for each in sweep[:2]] == [
        "sizes that no other case has, with padding",
        "sizes that no other case has",
    ]
    assert len(padded) == -(-len(sweep) // 2)
    masks = [each.inputs()["mask"] for each in padded]
    assert all(each.any(axis=1).all() for each in masks)
    assert max((each == 0).argmax(axis=1).max() for each in masks) > 16  # beyond the typical size


def test_every_id_occurs():
    made, _ = cases()
    parts = [case for case in made if case.name.startswith("sweep:numbers")]
    assert len(parts) == 2
    assert set(np.concatenate([each.inputs()["x"].ravel() for each in parts])) == set(range(1000))


@pytest.mark.parametrize("count", [1025, 1535, 1536])
def test_a_last_part_that_is_not_full_has_every_id_too(count):
    made, _ = cases({"x": Sample("integers", (0.0, float(count)))})
    parts = [case for case in made if case.name.startswith("sweep:numbers")]
    assert set(np.concatenate([each.inputs()["x"].ravel() for each in parts])) == set(range(count))


def test_ids_with_a_meaning_and_those_that_the_largest_case_has_stay():
    held = {"x": Sample("integers", (0.0, 1000.0), held=(Held(3),))}
    for samples in (held, {"x": Sample("integers", (0.0, 512.0))}):
        made, _ = cases(samples)
        assert not any(case.name.startswith("sweep:numbers") for case in made)


def test_a_model_that_computes_much_has_none():
    made, omitted = cases(weights=10**9)
    assert not any(is_of_sweep(case.name) for case in made)
    assert omitted["sweep"].startswith("other cases cover the sizes, or")
    _, omitted = cases(weights=None)
    assert omitted["sweep"] == "how much the model computes is unknown"


def test_their_cost_is_bounded():
    wide = dataclasses.replace(
        CONTRACT, axes=(Axis("batch", 1, 4, 64), Axis("sequence", 1, 9, 4096))
    )
    made, _ = cases(contract=wide)
    swept = [case for case in made if is_of_sweep(case.name)]
    assert 4 < len(swept) <= 20
    assert sum(case_cost(wide, case.sizes) for case in swept) <= 2**19


def test_lengths_of_the_sweep_are_odd_and_even():
    made, _ = cases()
    swept = {case.sizes["sequence"] for case in made if case.name.startswith("sweep:")}
    assert {length % 2 for length in swept} == {0, 1}


def test_the_row_of_a_table_that_differs_is_a_size():
    made_from = CaseInputs(CONTRACT, IDS, 0, ModelFacts(weights=100))
    made, _ = build_ladder(made_from, (), None, decisions=Decisions(rows=(43, 44)))
    assert {43, 44} <= sizes_of(made, "sequence")
    assert not any(case.sizes["batch"] > 8 for case in made)
