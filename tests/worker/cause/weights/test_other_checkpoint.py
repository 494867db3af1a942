"""A file without names that holds another checkpoint's weights is told from single wrong ones."""

import numpy as np
import onnx
import onnx_ir
import pytest
from faults.mutants.models import ARCHITECTURES
from faults.mutants.scoring import Subject, subject, without_names
from onnx import numpy_helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.search_results import Cause

SUBJECTS = {architecture.name: architecture for architecture in ARCHITECTURES}


def cause_with_others(given: Subject, count: int) -> Cause:
    """Return the headline for a file without names whose first `count` weights are others."""
    model = onnx.ModelProto()
    model.CopyFrom(given.model)
    without_names(model)
    random = np.random.default_rng(1)
    names = {}
    for place, tensor in enumerate(model.graph.initializer):
        names[tensor.name] = f"w{place}"
        tensor.name = f"w{place}"
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 3 and count > 0:
            own = numpy_helper.to_array(tensor)
            values = random.normal(own.mean(), own.std(), own.shape).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
            count -= 1
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(given.recordings[0], graph, given.feeds[0], given.state).causes[0]


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_another_checkpoint_is_the_headline_without_names(name: str) -> None:
    cause = cause_with_others(subject(SUBJECTS[name]), 99)
    assert cause.kind == "checkpoint"
    assert "the file was made from a different checkpoint" in cause.text
    assert not cause.after > 1e-5


@pytest.mark.thorough
def test_one_wrong_weight_is_not_another_checkpoint() -> None:
    assert cause_with_others(subject(SUBJECTS["decoder"]), 1).kind == "weight"
