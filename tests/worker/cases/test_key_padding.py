"""Masks with 1 at padding are drawn, lengthened and read as those with 0, the other way round."""

import dataclasses

import numpy as np
import pytest
from small_graphs import CONTRACT, SAMPLES, tensor

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import Feed, Sample, Steps
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import Case, CaseInputs
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.invariance_cases import (
    MASKED,
    base_case,
    base_sizes,
    build_variants,
    find_layout,
    real_elements,
)
from convkit.worker.cases.values.padding_masks import output_padding
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.steps.call_inputs import build_loops, padding_of


def marked(contract: Contract, padding: int) -> Contract:
    """Return a contract whose masks mark padding by a value."""
    inputs = tuple(
        dataclasses.replace(spec, padding=padding) if spec.name == "mask" else spec
        for spec in contract.inputs
    )
    return dataclasses.replace(contract, inputs=inputs)


def made_from(padding: int, contract: Contract = CONTRACT) -> CaseInputs:
    samples = SAMPLES | {"ids": Sample("token_ids")}
    return CaseInputs(marked(contract, padding), samples, 0, ModelFacts(vocabulary=50, pad_token=0))


def cases(padding: int) -> dict[str, Case]:
    """Return all cases of the ladder and of the invariance checks."""
    made = made_from(padding)
    layout, _ = find_layout(made.contract, made.samples)
    base = base_case(made, layout, base_sizes(made.contract, layout, probe_sizes(made.contract)))
    variants, _ = build_variants(made, layout, base)
    ladder, _ = build_ladder(made, (), None)
    return {case.name: case for case in (*ladder, base, *variants)}


def test_every_case_differs_in_the_mask_alone() -> None:
    usual, inverted = cases(0), cases(1)
    assert usual.keys() == inverted.keys() >= {"padded", "ragged", "masked-row", MASKED}
    for name, case in usual.items():
        one, other = case.inputs(), inverted[name].inputs()
        for key in ("ids", "types"):
            np.testing.assert_array_equal(one[key], other[key], name)
        np.testing.assert_array_equal(one["mask"], 1 - other["mask"], name)
    assert (usual["masked-row"].inputs()["mask"][0] == 0).all()
    assert (usual["padded"].inputs()["ids"] == 0).any()  # the pad token, at the same places


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_what_is_real_is_read_from_any_type(dtype: str) -> None:
    output = dataclasses.replace(tensor("y"), mask="mask")
    contract = Contract((tensor("mask", dtype),), (output,), CONTRACT.axes)
    values = np.array([[0, 1, 1], [0, 0, 1]]).astype(dtype)
    expected = {0: [[1, 0, 0], [1, 1, 0]], 1: [[0, 1, 1], [0, 0, 1]]}
    for padding, padded in expected.items():
        found = output_padding({"mask": values}, marked(contract, padding), output)
        np.testing.assert_array_equal(found, np.array(padded, dtype=bool))
        layout, _ = find_layout(contract, {"mask": Sample("padding_mask")})
        real = real_elements(output, marked(contract, padding), layout, {"mask": values}, (2, 3))
        np.testing.assert_array_equal(real, ~np.array(padded, dtype=bool))
    assert output_padding({}, contract, output) is None
    assert output_padding({"mask": values}, contract, tensor("z")) is None


def test_loops_pad_on_the_left_with_either_mark() -> None:
    steps = Steps((Feed("h_out", "h", None, "h"),), "sequence", (), 3, 1, 2, False, mask="mask")
    contract = Contract(
        (tensor("ids", "int64"), tensor("mask", "int64"), tensor("h", shape=("batch", 4))),
        (tensor("score"), tensor("h_out", shape=("batch", 4))),
        (Axis("batch", 1, 2, 4), Axis("sequence", 1, 6, 12)),
    )
    padded = []
    for padding in (0, 1):
        loops, omitted = build_loops(made_from(padding, contract), steps)
        assert omitted.keys() == {"steps-full"}
        loop = next(each for each in loops if each.name == "steps-padded")
        mask = loop.whole["mask"]
        assert len(np.unique((mask == padding).sum(-1))) > 1  # rows of different lengths
        assert (mask[:, -1] != padding).all()
        found = padding_of(contract.outputs[0], loop.contract, steps, loop.whole, loop.whole_sizes)
        np.testing.assert_array_equal(found, mask == padding)
        padded.append((loop.whole["ids"], found))
    np.testing.assert_array_equal(padded[0], padded[1])
