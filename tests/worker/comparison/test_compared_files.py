"""Artifacts as folders: files beside the models, files that one side lacks, engines; and weights of
every type.
"""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import pytest
from compared_models import compared, entry, likenesses, model, set_weight, write
from hypothesis import given
from hypothesis import strategies as st

from convkit.protocol.comparison.json_values import first_difference
from convkit.protocol.comparison.plain_files import first_byte
from convkit.worker.comparison import weights as weights_module
from convkit.worker.comparison.weights import Weight, compare_weights
from convkit.worker.job_context import StageFailedError


def test_files_that_one_side_lacks(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    (first / "bindings.hpp").write_text("x")
    (second / "operators.json").write_text("{}")
    assert likenesses(compared(first, second)) == {
        "bindings.hpp": "MISSING",
        "contract.json": "BIT_IDENTICAL",
        "model.onnx": "BIT_IDENTICAL",
        "model.onnx.data": "BIT_IDENTICAL",
        "operators.json": "EXTRA",
    }
    (first / "model.onnx").unlink()
    back = likenesses(compared(first, second))
    assert (back["model.onnx"], back["model.onnx.data"]) == ("EXTRA", "BIT_IDENTICAL")


def test_json_is_told_by_its_first_key(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    (second / "contract.json").write_text(json.dumps({"axes": [{"name": "batch", "max": 5}]}))
    file = entry(compared(first, second), "contract.json")
    (found,) = file.differences
    assert file.likeness == "DIFFERENT"
    assert (found.kind, found.place, found.first, found.second) == (
        "file",
        "$.axes[0].max",
        "4",
        "5",
    )
    (second / "contract.json").write_text(
        json.dumps({"axes": [{"max": 4, "name": "batch"}]}, indent=4)
    )
    assert entry(compared(first, second), "contract.json").likeness == "CANONICAL_IDENTICAL"
    (second / "contract.json").write_text("{")
    file = entry(compared(first, second), "contract.json")
    assert file.likeness == "DIFFERENT"
    assert "first differing byte is number 1" in file.differences[0].detail


def test_an_engine_is_known_by_its_verification(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first"), write(tmp_path / "second")
    for folder, content in ((first, b"engine 1"), (second, b"engine 2")):
        (folder / "model.engine").write_bytes(content)
        (folder / "layers.json").write_text('{"Layers": ["a"]}')
    result = compared(first, second)
    file = entry(result, "model.engine")
    assert file.likeness == "DIFFERENT"
    assert file.differences[0].detail == "an engine is identified by its verification"
    assert entry(result, "layers.json").likeness == entry(result).likeness == "BIT_IDENTICAL"


def test_single_files(tmp_path: Path) -> None:
    first = write(tmp_path / "first") / "model.onnx"
    second = (
        write(tmp_path / "second", set_weight("weight", (0, 0), lambda value: value + 1))
        / "model.onnx"
    )
    assert first.read_bytes() == second.read_bytes()  # the weights lie beside them
    assert likenesses(compared(first, second)) == {"model.onnx": "DIFFERENT"}
    assert likenesses(compared(first, write(tmp_path / "same") / "model.onnx")) == {
        "model.onnx": "BIT_IDENTICAL"
    }
    with pytest.raises(StageFailedError, match="one is a file"):
        compared(first, second.parent)
    with pytest.raises(StageFailedError, match="no such file"):
        compared(first, tmp_path / "absent")


def test_weights_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    (tmp_path / "secret").write_bytes(bytes(1000))
    for name, folder in zip("ab", folders, strict=True):
        folder.mkdir()
        made = model()
        made.graph.name = name
        tensor = made.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../secret")
        (folder / "model.onnx").write_bytes(made.SerializeToString())
    file = entry(compared(*folders))
    assert file.likeness == "DIFFERENT"
    assert {found.place for found in file.differences} == {"name", ""}, "no weight is compared"
    (refused,) = [found for found in file.differences if found.place == ""]
    assert "outside the model's folder" in refused.detail


# Weights by type.


def stored(array: np.ndarray, kind: onnx_ir.DataType) -> Weight:
    tensor = onnx_ir.Tensor(array, dtype=kind)
    floating = kind.name in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
    content = np.frombuffer(tensor.tobytes(), np.uint8)
    return Weight(
        kind.name.lower(),
        tuple(array.shape),
        content,
        kind.bitwidth,
        kind.numpy() if floating else None,
    )


@pytest.mark.parametrize(
    ("kind", "dtype", "within"),
    [
        (onnx_ir.DataType.FLOAT16, np.float16, True),
        (onnx_ir.DataType.BFLOAT16, ml_dtypes.bfloat16, True),
        (onnx_ir.DataType.DOUBLE, np.float64, True),
        (
            onnx_ir.DataType.INT64,
            np.int64,
            False,
        ),  # an index one off is another index, however large it is
        (onnx_ir.DataType.INT8, np.int8, False),
        (onnx_ir.DataType.UINT4, ml_dtypes.uint4, False),
        (onnx_ir.DataType.INT4, ml_dtypes.int4, False),
    ],
)
def test_only_floats_may_be_a_little_apart(
    kind: onnx_ir.DataType, dtype: type, within: bool
) -> None:
    array = np.array([[1, 2, 3], [4, 5, 6], [7, 2, 1]]).astype(dtype)
    other = array.copy()
    other[1, 1] = dtype(4)
    assert compare_weights(stored(array, kind), stored(array.copy(), kind), 0.0) is None
    gap = compare_weights(stored(array, kind), stored(other, kind), 1 / 7 + 1e-9)
    assert gap is not None
    assert (gap.count, gap.index, gap.first, gap.second, gap.within) == (
        1,
        (1, 1),
        "5",
        "4",
        within,
    )
    assert (gap.largest, gap.magnitude) == ((1.0, 7.0) if within else (None, None))
    beyond = compare_weights(stored(array, kind), stored(other, kind), 1 / 7 - 1e-9)
    assert beyond is not None
    assert not beyond.within


def test_signed_zeros_are_within_any_epsilon() -> None:
    kind = onnx_ir.DataType.FLOAT
    gap = compare_weights(
        stored(np.zeros(3, np.float32), kind), stored(-np.zeros(3, np.float32), kind), 0.0
    )
    assert gap is not None
    assert (gap.count, gap.within) == (3, True)


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.data(),
    st.sampled_from([0.0, 1e-6, 0.5]),
    st.sampled_from([8, 16]),
)
def test_weights_in_pieces_are_judged_as_a_whole(
    values: list[float], data: st.DataObject, epsilon: float, piece: int
) -> None:
    first = np.array(values, np.float32)
    second = first.copy()
    for at in data.draw(st.lists(st.integers(0, len(values) - 1), max_size=4)):
        second[at] = data.draw(st.floats(width=32))
    kind = onnx_ir.DataType.FLOAT
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights_module, "_PIECE", piece)
        gap = compare_weights(stored(first, kind), stored(second, kind), epsilon)
        back = compare_weights(stored(second, kind), stored(first, kind), epsilon)
    differs = first.view(np.uint32) != second.view(np.uint32)
    if not differs.any():
        assert gap is None
        assert back is None
        return
    assert gap is not None
    assert back is not None
    assert (gap.count, gap.index) == (int(differs.sum()), (int(np.flatnonzero(differs)[0]),))
    with np.errstate(all="ignore"):
        error = np.abs(first[differs].astype(float) - second[differs].astype(float)).max()
    both = np.abs(
        np.concatenate([first, second])[np.isfinite(np.concatenate([first, second]))].astype(float)
    )
    assert gap.within == back.within == bool(error <= epsilon * both.max(initial=0.0))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_json_values_are_equal_or_part_somewhere(first: object, second: object) -> None:
    assert first_difference(first, first) is None
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (first_difference(first, second) is None) == same
    assert (first_difference(second, first) is None) == same


def test_json_numbers_and_truth_values_are_told_apart() -> None:
    assert first_difference([1], [True]) is not None
    assert first_difference([1], [1.0]) is not None
    assert first_difference([], [1]) is not None
    assert first_difference({"a": {"b": None}}, {"a": {}}) is not None


def test_the_first_byte_that_differs(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(bytes(3_000_000))
    second.write_bytes(bytes(2_500_000) + b"x" + bytes(499_999))
    assert first_byte(first, second) == 2_500_000
    second.write_bytes(bytes(2_500_000))
    assert first_byte(first, second) == 2_500_000
    assert first_byte(first, first) is None
