import numpy as np
import pytest
from small_graphs import CONTRACT, tensor

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Layout
from convkit.worker.reference.case_agreement import compare_cases

LAYOUT = Layout("batch", ("mask",))
FEEDS = {"mask": np.array([[1, 1, 1], [1, 1, 0]])}
BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


def compare(check, base, other, contract=CONTRACT, layout=LAYOUT):
    return compare_cases(check, contract, layout, FEEDS, {"score": base}, {"score": other})


def test_padding_compares_real_positions_only():
    other = np.full((2, 5), 99, np.float32)
    other[:, :3] = BASE
    other[1, 2] = 50  # at padding
    (metrics,) = compare("padding", BASE, other)
    assert (metrics.output, metrics.elements, metrics.max_abs) == ("score", 5, 0.0)
    other[1, 1] += 4
    (metrics,) = compare("padding", BASE, other)
    assert metrics.max_abs == 4


def test_masked_values_compare_in_one_shape():
    other = BASE + np.float32([[0, 0, 0], [0, 2, 9]])
    (metrics,) = compare("masked-values", BASE, other)
    assert metrics.max_abs == 2


def test_a_pooled_output_is_compared_whole():
    contract = Contract(CONTRACT.inputs, (tensor("score", shape=("batch", 4)),), CONTRACT.axes)
    pooled = np.ones((2, 4), np.float32)
    (metrics,) = compare("padding", pooled, pooled * 3, contract)
    assert (metrics.elements, metrics.max_abs) == (8, 2.0)


def test_batch_compares_the_row():
    (metrics,) = compare("batch", BASE, BASE[1:] + np.float32([[1, 3, 50]]))
    assert (metrics.elements, metrics.max_abs) == (2, 3.0)


def test_batch_leaves_out_what_has_no_rows():
    contract = Contract(CONTRACT.inputs, (tensor("score", shape=(2, 3)),), CONTRACT.axes)
    assert compare("batch", BASE, BASE[:1], contract) == ()


def test_determinism_compares_padding_too():
    (metrics,) = compare("determinism", BASE, BASE + np.float32([[0, 0, 0], [0, 0, 1]]))
    assert (metrics.elements, metrics.max_abs) == (6, 1.0)


@pytest.mark.parametrize("check", ["padding", "masked-values", "batch", "determinism"])
@pytest.mark.parametrize(
    ("base", "other"),
    [
        (BASE, BASE[0]),
        (BASE, BASE.astype(np.float64)),
        (BASE[:, :2], BASE[:1, :1]),
        (BASE[:, :, None], BASE[:, :, None]),
    ],
    ids=["rank", "dtype", "smaller", "not as declared"],
)
def test_what_cannot_be_compared_is_left_out(check, base, other):
    assert compare(check, base, other) == ()


def test_a_lost_output_is_left_out():
    assert compare_cases("padding", CONTRACT, LAYOUT, FEEDS, {"score": BASE}, {}) == ()
