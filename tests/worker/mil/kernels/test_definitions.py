"""Kernels that neither value inference nor torch's layers reach, against their definitions written
out.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from mil_programs import assert_close, computed, ct, mb, run, run_one, small_program
from torch.nn import functional

from convkit.worker.mil.program_errors import EvaluationError

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_depth_to_space_and_back() -> None:
    x = floats(2, 8, 3, 4)
    found = computed("depth_to_space", x=x, block_size=2)
    for n, c, h, w in itertools.product(range(2), range(2), range(6), range(8)):
        assert found[n, c, h, w] == x[n, (h % 2 * 2 + w % 2) * 2 + c, h // 2, w // 2]
    np.testing.assert_array_equal(computed("space_to_depth", x=found, block_size=2), x)


def test_space_to_batch_and_back() -> None:
    x = floats(2, 3, 3, 6)
    paddings = np.array([[1, 0], [1, 1]], np.int32)
    found = computed("space_to_batch", x=x, block_shape=[2, 4], paddings=paddings)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (1, 1)))
    assert found.shape == (16, 3, 2, 2)
    for row, column, n in itertools.product(range(2), range(4), range(2)):
        np.testing.assert_array_equal(
            found[(row * 4 + column) * 2 + n], padded[n, :, row::2, column::4]
        )
    np.testing.assert_array_equal(
        computed("batch_to_space", x=found, block_shape=[2, 4], crops=paddings), x
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_that_devices_refuse(mode: str) -> None:
    x = np.zeros((2, 3, 4, 5), np.float32)
    assert computed("pad", x=x, pad=[0, 0, 0, 0, 1, 1, 2, 1], mode=mode).shape == (2, 3, 6, 8)
    with pytest.raises(EvaluationError, match="the last two axes only"):
        computed("pad", x=x, pad=[0, 0, 1, 0, 0, 0, 0, 0], mode=mode)


def test_crop() -> None:
    x = floats(2, 5, 6)
    np.testing.assert_array_equal(
        computed("crop", x=x, crop_height=[1, 2], crop_width=[0, 3]), x[:, 1:3, :3]
    )


def test_dequantize() -> None:
    data = RANDOM.integers(-128, 127, (2, 3)).astype(np.int8)
    scale, zero = np.array([0.5, 0.1, 2], np.float32), np.array([1, -3, 0], np.int8)
    found = computed("dequantize", input=data, scale=scale, zero_point=zero, axis=-1)
    np.testing.assert_allclose(found, (data.astype(np.float32) - zero) * scale, rtol=1e-6)
    np.testing.assert_allclose(
        computed("dequantize", input=data, scale=np.float32(0.5)), data * 0.5
    )


def test_gather_nd() -> None:
    x = floats(3, 4, 5)
    indices = np.array([[0, 3], [2, -1]], np.int32)
    np.testing.assert_array_equal(computed("gather_nd", x=x, indices=indices), x[[0, 2], [3, 3]])
    batched = np.array([[[1], [0]], [[3], [2]], [[0], [0]]], np.int32)
    expected = np.stack([x[n, batched[n, :, 0]] for n in range(3)])
    np.testing.assert_array_equal(
        computed("gather_nd", x=x, indices=batched, batch_dims=1), expected
    )


def test_gather_with_batches_on_another_axis() -> None:
    x = floats(2, 3, 4, 5)
    indices = np.array([[[1, 3]], [[0, 2]]], np.int32)
    expected = np.stack([x[n][:, indices[n, 0]] for n in range(2)])[:, :, None]
    assert_close(computed("gather", x=x, indices=indices, axis=2, batch_dims=1), expected)


@pytest.mark.parametrize("index", [4, -5])
def test_an_index_out_of_range_is_an_error(index: int) -> None:
    program = small_program(
        lambda at: mb.gather(x=floats(4), indices=at, axis=0), {"at": ((1,), "int32")}
    )
    with pytest.raises(
        EvaluationError, match=r"gather .*: indices from .* are out of range for an axis of 4"
    ):
        run(program, at=np.array([index], np.int32))


def test_one_hot() -> None:
    indices = np.array([2, 0, 7, -1], np.int32)
    found = computed(
        "one_hot",
        indices=indices,
        one_hot_vector_size=3,
        on_value=np.float32(5),
        off_value=np.float32(1),
    )
    expected = np.ones((4, 3), np.float32)
    expected[0, 2] = expected[1, 0] = 5
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        computed("one_hot", indices=indices, one_hot_vector_size=3, axis=0),
        (expected.T == 5).astype(np.int32),
    )


def test_reshape_like() -> None:
    x = floats(6, 10)
    references = (floats(2, 3, 4), floats(1, 5, 2))
    found = computed(
        "reshape_like",
        x=x,
        ref_tensors=references,
        begins=(0, 1),
        ends=(2, 0),
        end_masks=(False, True),
    )
    np.testing.assert_array_equal(found, x.reshape(2, 3, 5, 2))


def test_reverse_sequence() -> None:
    # coremltools promises an inference of this and raises instead, so its input must not be
    # constant.
    x = floats(3, 4, 2)
    program = small_program(
        lambda x: mb.reverse_sequence(
            x=x, lengths=np.array([0, 2, 4], np.int32), seq_axis=1, batch_axis=0
        ),
        {"x": ((3, 4, 2), "fp32")},
    )
    expected = x.copy()
    expected[1, :2], expected[2] = x[1, 1::-1], x[2, ::-1]
    np.testing.assert_array_equal(run_one(program, x=x), expected)


def test_sliding_windows() -> None:
    x = floats(2, 7, 3)
    found = computed("sliding_windows", x=x, axis=-2, size=3, stride=2)
    expected = np.stack([x[:, start : start + 3] for start in (0, 2, 4)], 1)
    np.testing.assert_array_equal(found, expected)


def test_cumsum_without_the_element_itself() -> None:
    # coremltools' own inference of `exclusive` passes an array for a dtype, so the input must not
    # be constant.
    x = floats(2, 4)
    inputs = {"x": ((2, 4), "fp32")}
    forward = run_one(small_program(lambda x: mb.cumsum(x=x, axis=1, exclusive=True), inputs), x=x)
    assert_close(
        forward, np.concatenate([np.zeros((2, 1), np.float32), np.cumsum(x, 1)[:, :-1]], 1), steps=9
    )
    backward = run_one(
        small_program(lambda x: mb.cumsum(x=x, axis=1, exclusive=True, reverse=True), inputs), x=x
    )
    assert_close(
        backward[:, ::-1],
        np.concatenate([np.zeros((2, 1)), np.cumsum(x[:, ::-1], 1)[:, :-1]], 1),
        steps=9,
    )


def test_concat_in_turn() -> None:
    x, y = floats(2, 3), floats(2, 3)
    program = small_program(
        lambda x, y: mb.concat(values=(x, y), axis=1, interleave=True),
        {"x": ((2, 3), "fp32"), "y": ((2, 3), "fp32")},
    )
    found = run_one(program, x=x, y=y)
    np.testing.assert_array_equal(found[:, 0::2], x)
    np.testing.assert_array_equal(found[:, 1::2], y)


@pytest.mark.parametrize("mode", ["add", "sub", "mul", "div", "max", "min", "update"])
def test_scatter_modes(mode: str) -> None:
    data, updates = floats(4, 3), np.abs(floats(3, 3)) + 1
    indices = np.array([2, 0, 2] if mode != "update" else [2, 0, 3], np.int32)
    combine: dict[str, Any] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "max": np.maximum,
        "min": np.minimum,
        "update": lambda _, update: update,
    }
    expected = data.copy()
    for row, index in enumerate(indices):
        expected[index] = combine[mode](expected[index], updates[row])
    assert_close(
        computed("scatter", data=data, indices=indices, updates=updates, axis=0, mode=mode),
        expected,
        steps=9,
    )
    found = computed("scatter_nd", data=data, indices=indices[:, None], updates=updates, mode=mode)
    assert_close(found, expected, steps=9)
    inputs = {"data": ((4, 3), "fp32"), "updates": ((3, 3), "fp32")}
    wide = np.broadcast_to(indices[:, None], (3, 3)).copy()
    program = small_program(
        lambda data, updates: mb.scatter_along_axis(
            data=data, indices=wide, updates=updates, axis=0, mode=mode
        ),
        inputs,
    )
    assert_close(run_one(program, data=data, updates=updates), expected, steps=9)


def test_scatter_nd_to_elements() -> None:
    data = floats(3, 4)
    indices = np.array([[0, 1], [2, 3]], np.int32)
    found = computed(
        "scatter_nd",
        data=data,
        indices=indices,
        updates=np.array([5, 6], np.float32),
        mode="update",
    )
    expected = data.copy()
    expected[0, 1], expected[2, 3] = 5, 6
    np.testing.assert_array_equal(found, expected)


def test_l2_pool() -> None:
    x = floats(1, 2, 6)
    found = computed("l2_pool", x=x, kernel_sizes=[2], strides=[2], pad_type="valid")
    assert_close(found, np.sqrt((x.reshape(1, 2, 3, 2) ** 2).sum(-1)), steps=9)


def test_local_response_norm() -> None:
    x = floats(1, 5, 2, 2)
    found = computed(
        "local_response_norm",
        x=x,
        size=3,
        alpha=np.float32(0.1),
        beta=np.float32(0.7),
        k=np.float32(2),
    )
    expected = functional.local_response_norm(torch.from_numpy(x), 3, 0.1, 0.7, 2.0)
    assert_close(found, expected.numpy(), steps=9)


@pytest.mark.parametrize(
    ("pad_type", "size", "stride"), [("same", 7, 2), ("same", 8, 2), ("same_lower", 8, 3)]
)
def test_same_padding(pad_type: str, size: int, stride: int) -> None:
    x, weight = floats(1, 2, size), floats(3, 2, 4)
    found = computed("conv", x=x, weight=weight, strides=[stride], pad_type=pad_type)
    total = max((-(-size // stride) - 1) * stride + 4 - size, 0)
    pads = (
        (total // 2, total - total // 2) if pad_type == "same" else (total - total // 2, total // 2)
    )
    padded = functional.pad(torch.from_numpy(x), pads)
    assert found.shape[2] == -(-size // stride)
    assert_close(
        found, functional.conv1d(padded, torch.from_numpy(weight), stride=stride).numpy(), steps=40
    )


def test_silu() -> None:
    x = floats(9)
    assert_close(computed("silu", x=x), x / (1 + np.exp(-x)), steps=9)


GRIDS = {
    "STRICT_ALIGN_CORNERS": {5: [0, 0.25, 0.5, 0.75, 1], 6: [0, 0.2, 0.4, 0.6, 0.8, 1], 1: [0]},
    "ALIGN_CORNERS": {5: [0, 0.25, 0.5, 0.75, 1], 6: [0, 0.2, 0.4, 0.6, 0.8, 1], 1: [0.5]},
    "DEFAULT": {5: [0, 0.4, 0.8, 1, 1], 6: [0, 1 / 3, 2 / 3, 1, 1, 1], 1: [0]},
    "OFFSET_CORNERS": {
        5: [0.1, 0.3, 0.5, 0.7, 0.9],
        6: [1 / 12, 3 / 12, 5 / 12, 7 / 12, 9 / 12, 11 / 12],
    },
    "UNALIGN_CORNERS": {5: [0, 0.1, 0.5, 0.9, 1], 6: [0, 0, 1 / 3, 2 / 3, 1, 1]},
}


@pytest.mark.parametrize(
    ("mode", "size"), [(mode, size) for mode, sizes in GRIDS.items() for size in sizes], ids=str
)
def test_sampling_modes(mode: str, size: int) -> None:
    """The values 0 and 1 along an axis show its grid points, as coremltools documents them."""
    x = np.array([[[0, 1]]], np.float32)
    found = computed(
        "resize_bilinear", x=x, target_size_height=1, target_size_width=size, sampling_mode=mode
    )
    np.testing.assert_allclose(found[0, 0], GRIDS[mode][size], atol=1e-6)
    newer = computed(
        "resize",
        x=x,
        shape=np.array([0, size], np.int32),
        resized_dims=np.uint32(2),
        sampling_mode=mode,
    )
    np.testing.assert_allclose(newer[0, 0], GRIDS[mode][size], atol=1e-6)


@pytest.mark.parametrize("size", [2, 5, 9])
def test_nearest_neighbors(size: int) -> None:
    x = floats(1, 2, 4, 6)
    expected = functional.interpolate(torch.from_numpy(x), (8, size), mode="nearest").numpy()
    found = computed("resize_nearest_neighbor", x=x, target_size_height=8, target_size_width=size)
    np.testing.assert_array_equal(found, expected)
    shape = np.array([8, size], np.int32)
    newer = computed(
        "resize", x=x, shape=shape, resized_dims=np.uint32(2), interpolation_mode="NEAREST_NEIGHBOR"
    )
    np.testing.assert_array_equal(newer, expected)


def test_upsampling() -> None:
    x = floats(1, 2, 4, 6)
    scales = {"scale_factor_height": np.float32(1.5), "scale_factor_width": np.float32(2)}
    for corners in (False, True):
        expected = functional.interpolate(
            torch.from_numpy(x), (6, 12), mode="bilinear", align_corners=corners
        ).numpy()
        assert_close(
            computed("upsample_bilinear", x=x, align_corners=corners, **scales), expected, steps=40
        )
    found = computed("upsample_nearest_neighbor", x=x, **scales)
    np.testing.assert_array_equal(
        found, functional.interpolate(torch.from_numpy(x), (6, 12), mode="nearest").numpy()
    )


def test_a_row_in_which_nothing_takes_part_is_nan() -> None:
    mask = np.array([[True, True], [False, False]])
    x = floats(1, 2, 4)
    program = small_program(
        lambda x: mb.scaled_dot_product_attention(query=x, key=x, value=x, attn_mask=mask),
        {"x": ((1, 2, 4), "fp32")},
    )
    found = run_one(program, x=x)
    assert np.isfinite(found[0, 0]).all()
    assert np.isnan(found[0, 1]).all()


@pytest.mark.parametrize(
    "bounds",
    [
        {"begin": [0, 1], "end": [2, 3]},
        {"begin": [1, -3], "end": [3, -1]},
        {"begin": [0, 4], "end": [3, 0], "stride": [2, -1]},
        {"begin": [2, 4], "end": [0, 0], "stride": [-1, -2], "end_mask": [True, False]},
        {"begin": [0, 3], "end": [0, 0], "begin_mask": [True, False], "end_mask": [True, True]},
        {"begin": [1, 0], "end": [0, 5], "squeeze_mask": [True, False]},
        {"begin": [-1, -2], "end": [0, 0], "squeeze_mask": [True, True]},
    ],
)
def test_slices(bounds: dict[str, list[Any]]) -> None:
    x = floats(3, 5)
    stride = bounds.get("stride", [1, 1])
    expected: Any = x
    index = []
    for axis in range(2):
        if bounds.get("squeeze_mask", [False, False])[axis]:
            index.append(bounds["begin"][axis])
            continue
        begin = None if bounds.get("begin_mask", [False, False])[axis] else bounds["begin"][axis]
        end = None if bounds.get("end_mask", [False, False])[axis] else bounds["end"][axis]
        index.append(slice(begin, end, stride[axis]))
    expected = x[tuple(index)]
    program = small_program(lambda x: mb.slice_by_index(x=x, **bounds), {"x": ((3, 5), "fp32")})
    np.testing.assert_array_equal(run_one(program, x=x), expected)


def test_topk_counts_from_older_systems() -> None:
    x = np.array([[1, 3, 3, 2]], np.float32)
    program = small_program(
        lambda x: mb.topk(x=x, k=2, axis=1), {"x": ((1, 4), "fp32")}, target=ct.target.iOS15
    )
    values, places = run(program, x=x).outputs.values()
    np.testing.assert_array_equal(values, [[3, 3]])
    np.testing.assert_array_equal(places, [[1, 2]])


def test_gathers_that_give_a_scalar() -> None:
    inputs = {"x": ((3,), "fp32"), "at": ((1,), "int32")}
    x, at = floats(3), np.array([1], np.int32)
    one = small_program(lambda x, at: mb.gather(x=x, indices=mb.squeeze(x=at), axis=0), inputs)
    assert run_one(one, x=x, at=at) == x[1]
    other = small_program(lambda x, at: mb.gather_nd(x=x, indices=at), inputs)
    assert run_one(other, x=x, at=at) == x[1]
