"""Equal contents are found, and only those are read whole that may have an equal."""

import numpy as np
import pytest

from convkit.worker.graph.duplicate_weights import (
    Content,
    ContentIndex,
    array_content,
    sampled_places,
)

RANDOM = np.random.default_rng(0)


def content(array: np.ndarray, read: list[str] | None = None, name: str = "") -> Content:
    """Return the content of an array; note when more than its sample is read."""
    calls = 0

    def noted() -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 1 and read is not None:
            read.append(name)
        return array

    return array_content((str(array.dtype), *array.shape), noted)


def test_different_tensors_are_not_read_whole() -> None:
    index: ContentIndex[str] = ContentIndex()
    read: list[str] = []
    for name in "abcdefgh":
        assert index.add(content(RANDOM.normal(size=(30, 40)), read, name), name) == name
    assert read == []


def test_an_equal_is_found_whatever_else_there_is() -> None:
    index: ContentIndex[str] = ContentIndex()
    tensors = {name: RANDOM.normal(size=(30, 40)) for name in "abc"}
    read: list[str] = []
    for name, tensor in tensors.items():
        index.add(content(tensor, read, name), name)
    assert index.add(content(tensors["b"].copy(), read, "copy"), "copy") == "b"
    assert sorted(read) == ["b", "copy"]
    assert index.find(content(tensors["c"].copy())) == "c"
    assert index.find(content(RANDOM.normal(size=(30, 40)))) is None


def test_views_of_the_same_memory_are_equal_unread() -> None:
    def unreadable() -> np.ndarray:
        raise AssertionError("read whole")

    index: ContentIndex[str] = ContentIndex()
    matrix = RANDOM.normal(size=(30, 40))
    place = matrix.ctypes.data, matrix.strides, matrix.itemsize
    sample = matrix[sampled_places(matrix.shape)].tobytes()
    index.add(Content(matrix.shape, sample, unreadable, place), "matrix")
    view = matrix.T.T
    assert index.find(array_content(view.shape, lambda: view, stays=True)) == "matrix"
    assert index.add(array_content(view.shape, lambda: view, stays=True), "view") == "matrix"
    with pytest.raises(AssertionError, match="read whole"):  # nothing says that it stays there
        index.find(array_content(view.shape, lambda: view))


def test_the_same_address_in_another_order_is_another_tensor() -> None:
    index: ContentIndex[str] = ContentIndex()
    matrix = np.zeros((40, 40))
    matrix[1, 0] = 1.0  # outside the sample
    index.add(array_content(matrix.shape, lambda: matrix, stays=True), "matrix")
    assert index.find(array_content(matrix.shape, lambda: matrix.T, stays=True)) is None


@pytest.mark.parametrize("other", [1.0, np.nan])
def test_tensors_that_differ_outside_the_sample_are_different(other: float) -> None:
    first = np.zeros((50, 60), np.float32)
    places = set(zip(*(axis.tolist() for axis in sampled_places(first.shape)), strict=True))
    outside = next(place for place in np.ndindex(*first.shape) if place not in places)
    second = first.copy()
    second[outside] = other
    index: ContentIndex[str] = ContentIndex()
    assert index.add(content(first), "first") == "first"
    assert index.add(content(second), "second") == "second"
    assert index.find(content(first.copy())) == "first"
    assert index.find(content(second.copy())) == "second"


def test_a_transpose_is_the_content_of_its_matrix() -> None:
    matrix = RANDOM.normal(size=(7, 300)).astype(np.float32)
    index: ContentIndex[str] = ContentIndex()
    index.add(content(np.ascontiguousarray(matrix.T)), "matrix")
    assert index.find(content(matrix.T)) == "matrix"
    assert index.find(content(matrix)) is None


def test_kind_and_shape_belong_to_the_content() -> None:
    index: ContentIndex[str] = ContentIndex()
    index.add(content(np.zeros((4, 100), np.float32)), "matrix")
    for other in (np.zeros((100, 4), np.float32), np.zeros((4, 100), np.int32)):
        assert index.find(content(other)) is None


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1, 1), (3,), (64, 65, 2)])
def test_a_sample_lies_inside_any_shape(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float16)
    index: ContentIndex[str] = ContentIndex()
    index.add(content(array), "one")
    assert index.find(content(array.copy())) == "one"
