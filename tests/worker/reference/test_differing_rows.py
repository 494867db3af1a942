"""Rows of tables that a file has otherwise than the original, found without running anything."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from convkit.worker.reference.differing_rows import differing_rows

TABLE = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
STATE = {"other": torch.zeros(500, 4), "table": torch.from_numpy(TABLE), "bias": torch.zeros(500)}


def file_with(tmp_path, values, *, external=False, axis=0):
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "ids"], ["y"], axis=axis)],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(values, "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph),
        path,
        save_as_external_data=external,
        location="weights",
        size_threshold=0,
    )
    return path


def changed(*rows):
    values = TABLE.copy()
    values[list(rows)] += 0.5
    return values


@pytest.mark.parametrize("external", [False, True])
def test_rows_that_differ(tmp_path, external):
    path = file_with(tmp_path, changed(3, 77, 499), external=external)
    assert differing_rows(path, STATE) == (3, 77, 499)


def test_a_table_may_be_stored_in_columns(tmp_path):
    columns = np.ascontiguousarray(changed(7, 480).T)
    assert differing_rows(file_with(tmp_path, columns, axis=1), STATE) == (7, 480)


def test_a_table_may_be_stored_in_another_shape(tmp_path):
    folded = changed(3, 77, 499).reshape(50, 10, 4)
    assert differing_rows(file_with(tmp_path, folded), STATE) == (3, 77, 499)
    assert differing_rows(file_with(tmp_path, TABLE.reshape(50, 10, 4)), STATE) == ()


def test_a_half_type_is_compared_as_such(tmp_path):
    assert differing_rows(file_with(tmp_path, TABLE.astype(np.float16)), STATE) == ()
    assert differing_rows(file_with(tmp_path, changed(9).astype(np.float16)), STATE) == (9,)


@pytest.mark.parametrize(
    "values",
    [TABLE, TABLE * np.float32(1 + 1e-7), np.zeros_like(TABLE), TABLE[::-1].copy(), TABLE[:400]],
    ids=["equal", "rounded", "another that is equal", "another table", "another shape"],
)
def test_what_says_nothing(tmp_path, values):
    assert differing_rows(file_with(tmp_path, values), STATE) == ()


def test_many_rows_are_as_many_as_a_case_can_use(tmp_path):
    assert len(differing_rows(file_with(tmp_path, changed(*range(240))), STATE)) == 240


def test_a_table_in_a_constant_node_of_a_body(tmp_path):
    node = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(changed(7), "w"))
    body = helper.make_graph(
        [node], "body", [], [helper.make_tensor_value_info("w", TensorProto.FLOAT, [500, 4])]
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    graph = helper.make_graph(
        [choice],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [500, 4])],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), path)
    assert differing_rows(path, STATE) == (7,)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_scale_folded_into_the_columns_is_no_difference(tmp_path, dtype):
    scale = np.array([2.5, -0.3, 1.0, 8**0.5])
    assert differing_rows(file_with(tmp_path, (TABLE * scale).astype(dtype)), STATE) == ()
    assert differing_rows(file_with(tmp_path, (changed(12) * scale).astype(dtype)), STATE) == (12,)


@pytest.mark.parametrize("part", [slice(0, 300), slice(200, 500), slice(100, 400)])
def test_a_part_of_a_table(tmp_path, part):
    assert differing_rows(file_with(tmp_path, TABLE[part]), STATE) == ()
    assert differing_rows(file_with(tmp_path, changed(250)[part]), STATE) == (250,)


def test_a_table_with_further_rows(tmp_path):
    padded = np.concatenate([changed(250), np.zeros((12, 4), np.float32)])
    assert differing_rows(file_with(tmp_path, padded), STATE) == (250,)


def test_a_table_of_numbers_is_its_own_rule(tmp_path):
    numbers = np.arange(500)
    assert differing_rows(file_with(tmp_path, numbers), STATE) == ()
    numbers[123] = 3
    assert differing_rows(file_with(tmp_path, numbers), STATE) == (123,)
    known = {**STATE, "map": torch.from_numpy(numbers)}
    assert differing_rows(file_with(tmp_path, numbers), known) == ()


def test_a_table_of_one_number_each(tmp_path):
    values = TABLE[:, 0].copy()
    state = {"scale": torch.from_numpy(TABLE[:, 0].copy())}
    values[33] += 1
    assert differing_rows(file_with(tmp_path, values), state) == (33,)


def test_a_table_of_which_a_part_is_another_is_compared_as_a_whole(tmp_path):
    parts = {**STATE, "first": STATE["table"][:200], "second": STATE["table"][200:]}
    assert differing_rows(file_with(tmp_path, changed(250)), parts) == (250,)
