import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper

from convkit.worker.graph import duplicate_weights as duplicates
from convkit.worker.graph.duplicate_weights import duplicate_weights

RANDOM = np.random.default_rng(0)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def model(**weights):
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return onnx_ir.from_proto(
        onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [y], tensors))
    )


def test_a_tied_output_layer_stored_as_a_transpose_is_found():
    table = values(300, 16)
    (finding,) = duplicate_weights(
        model(table=table, other=values(16, 16), head=np.ascontiguousarray(table.T))
    )
    assert (finding.code, finding.severity, finding.place.tensor) == ("E209", "warning", "head")
    assert finding.evidence["wasted_bytes"] == 300 * 16 * 4
    assert finding.evidence["weights_bytes"] == 2 * 300 * 16 * 4 + 16 * 16 * 4
    assert finding.evidence["equal"] == [["table", "head"]]


def test_every_copy_counts_and_the_largest_group_is_named_first():
    small, large = values(20, 20), values(40, 40)
    weights = {"a": small, "b": small, "c": large, "d": large, "e": large}
    (finding,) = duplicate_weights(model(**weights))
    assert finding.evidence["wasted_bytes"] == small.nbytes + 2 * large.nbytes
    assert finding.evidence["equal"] == [["c", "d", "e"], ["a", "b"]]


@pytest.mark.parametrize(
    "weights",
    [
        {"a": values(300, 16), "b": values(300, 16)},
        {
            "a": np.ones(3000, np.float32),
            "b": np.ones(3000, np.float32),
        },  # fresh norms: nothing was ever tied
        {
            "a": np.arange(8, dtype=np.float32),
            "b": np.arange(8, dtype=np.float32),
        },  # small, and equal by chance
        {"a": values(16, 300), "b": values(300, 16)},
        {
            "a": (tied := values(20, 20)),
            "b": tied,
            "c": values(300, 100),
        },  # a small share of the whole
        {
            "a": np.arange(2000, dtype=np.int32),
            "b": np.arange(2000, dtype=np.int32).view(np.float32),
        },
    ],
)
def test_what_is_not_stored_twice_or_costs_nothing_is_no_duplicate(weights):
    assert duplicate_weights(model(**weights)) == []


def test_a_megabyte_is_worth_a_word_whatever_its_share():
    twice = values(512, 520)
    (finding,) = duplicate_weights(model(a=twice, b=twice, c=values(3000, 4000)))
    assert finding.evidence["wasted_bytes"] == twice.nbytes


def test_only_weights_that_may_have_a_twin_are_read_whole(monkeypatch):
    table, read = values(300, 16), []
    original = duplicates._digest
    monkeypatch.setattr(duplicates, "_digest", lambda array: read.append(array) or original(array))
    others = {f"layer{index}": values(300, 16) for index in range(5)}
    assert duplicate_weights(model(**others)) == []
    assert read == []
    (finding,) = duplicate_weights(model(**others, table=table, head=table.T))
    assert finding.evidence["equal"] == [["table", "head"]]
    assert len(read) == 2
