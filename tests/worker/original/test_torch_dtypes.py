import ml_dtypes
import numpy as np
import pytest
import torch

from convkit.protocol.contract import DTYPES
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.torch_dtypes import contract_dtype, to_array, to_tensor, torch_dtype


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in DTYPES if dtype not in ("int4", "uint4", "string")]
)
def test_there_and_back(dtype):
    assert contract_dtype(torch_dtype(dtype)) == dtype


@pytest.mark.parametrize("dtype", ["int4", "uint4", "string"])
def test_torch_has_no_four_bits_and_no_texts(dtype):
    with pytest.raises(StageFailedError, match=dtype):
        torch_dtype(dtype)


def test_complex_is_not_in_the_contract():
    assert contract_dtype(torch.complex64) is None


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, -2.25], dtype=np.float32),
        np.array([1.5, -2.25], dtype=ml_dtypes.bfloat16),
        np.array([1.5, -2.25], dtype=ml_dtypes.bfloat16).view(BFLOAT16_BITS),
    ],
)
def test_bfloat16_arrays_in_any_guise(array):
    tensor = to_tensor(array, "bfloat16")
    assert tensor.dtype is torch.bfloat16
    assert to_array(tensor).tolist() == [1.5, -2.25]


def test_tensors_share_no_memory_with_their_arrays():
    array = np.arange(6).reshape(2, 3).T
    tensor = to_tensor(array, "int64")
    array[0, 0] = 99
    assert tensor.tolist() == [[0, 3], [1, 4], [2, 5]]
