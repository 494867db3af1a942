"""The first place where a graph parts from its original is found, proven and explained."""

import math
import random
import types

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from faults.mutants.models import ARCHITECTURES
from faults.mutants.mutations import MUTATIONS
from faults.mutants.scoring import healthy, score, subject
from onnx import helper, numpy_helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.matching.value_matching import worst_output_error
from convkit.worker.cause.search_types.search_results import Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of

SUBJECTS = {architecture.name: architecture for architecture in ARCHITECTURES}


def diagnosed(name: str, model: onnx.ModelProto) -> Diagnosis:
    given = subject(SUBJECTS[name])
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(given.recordings[0], graph, given.feeds[0], given.state)


def copy_of(name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(subject(SUBJECTS[name]).model)
    return model


def node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(each for each in model.graph.node if each.name == name)


def test_a_small_error_is_found_where_it_begins() -> None:
    model = copy_of("encoder")
    norm = node(model, "/layers.1/first/LayerNormalization")
    next(a for a in norm.attribute if a.name == "epsilon").f = 1e-3
    diagnosis = diagnosed("encoder", model)
    cause = diagnosis.causes[0]
    assert (cause.kind, cause.node) == ("attribute", norm.name)
    assert "epsilon is 0.001 and should be 1e-05" in cause.text
    assert cause.module == "layers.1.first"
    assert cause.source is not None
    assert cause.source.startswith("models.py:")
    assert diagnosis.error > 1e-5
    assert diagnosis.remaining < 5e-6
    # The error is followed from there to the output.
    assert cause.growth[0][0].startswith("layers.1.first")


@pytest.mark.thorough
def test_a_missing_bias_is_named_by_the_original_s_weight() -> None:
    model = copy_of("encoder")
    add = node(model, "/layers.0/down/Add")
    kept = next(name for name in add.input if "MatMul" in name)
    del add.input[:]
    add.input.append(kept)
    add.op_type = "Identity"
    cause = diagnosed("encoder", model).causes[0]
    assert cause.kind == "missing"
    assert "layers.0.down.bias" in cause.text


@pytest.mark.thorough
def test_a_graph_that_cannot_run_is_placed() -> None:
    model = copy_of("encoder")
    product = node(model, "/layers.0/MatMul")
    product.input[1] = product.input[0]
    diagnosis = diagnosed("encoder", model)
    assert diagnosis.error == float("inf")
    assert diagnosis.causes[0].node == product.name
    assert diagnosis.remaining < 5e-6


@pytest.mark.thorough
def test_a_fault_and_a_weight_are_ranked_by_their_shares() -> None:
    model = copy_of("encoder")
    node(model, "/layers.0/Softmax").attribute[0].i = 2
    tensor = next(each for each in model.graph.initializer if each.name == "layers.1.down.bias")
    values = numpy_helper.to_array(tensor) * np.float32(1.01)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    diagnosis = diagnosed("encoder", model)
    assert {cause.kind for cause in diagnosis.causes} == {"attribute", "weight"}
    shares = [cause.share for cause in diagnosis.causes]
    assert shares == sorted(shares, reverse=True)


def test_a_step_at_an_output_is_told_as_such() -> None:
    model = copy_of("pyramid")
    last = next(each for each in model.graph.node if "output" in each.output)
    last.output[0] = "scores"
    model.graph.node.append(helper.make_node("Softmax", ["scores"], ["output"], axis=-1, name="s"))
    diagnosis = diagnosed("pyramid", model)
    (finding,) = findings_of(diagnosis, "case")
    assert finding.code == "C209"
    assert finding.is_error
    assert "Softmax s should not be there" in finding.message


@pytest.mark.thorough
def test_what_nothing_explains_has_its_place_and_a_proof() -> None:
    model = copy_of("encoder")
    up = node(model, "/layers.0/up/Add")
    up.op_type = "Sum"  # with noise from a table that no weight of the original resembles
    noise = np.random.default_rng(0).standard_normal((2, 7, 32)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(noise, "noise"))
    up.input.append("noise")
    diagnosis = diagnosed("encoder", model)
    cause = diagnosis.causes[0]
    assert (cause.kind, cause.node) == ("place", up.name)
    assert cause.after < 5e-6 < cause.before
    (finding, *_) = findings_of(diagnosis, "case")
    assert (finding.code, finding.is_error) == ("N408", True)


def test_exchanged_inputs_of_a_graph_are_named() -> None:
    model = copy_of("ranker")
    other = {"left": "right", "right": "left"}
    for each in model.graph.node:
        for place, name in enumerate(each.input):
            each.input[place] = other.get(name, name)
    (finding,) = findings_of(diagnosed("ranker", model), "case")
    assert finding.code == "C110"


def test_exchanged_outputs_of_a_graph_are_named() -> None:
    class Pair(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, torch.tanh(x)

    from convkit.worker.cause.recording.torch_recording import record

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[3,4] x) => (float[3,4] a, float[3,4] b)'
        "{ a = Tanh(x) two = Constant<value_float=2.0>() b = Mul(x, two) }"
    )
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    diagnosis = localize(record(Pair(), {"x": x}, ("a", "b")), graph, {"x": x.numpy()}, {})
    (finding,) = findings_of(diagnosis, "case")
    assert finding.code == "C208"


@pytest.mark.parametrize("name", ["encoder", "segmenter", "tagger"])
def test_healthy_exports_have_no_cause(name: str) -> None:
    assert {diagnosis.causes for diagnosis in healthy(SUBJECTS[name])} == {()}


@pytest.mark.slow
@pytest.mark.thorough
def test_most_mutants_are_placed_and_named() -> None:
    # A sample; `python -m faults.mutants` scores as many as asked for.
    scores = [each for seed in range(20_000, 20_011) if (each := score(seed)) is not None]
    judged = [each for each in scores if not each.equivalent]
    assert len(judged) >= 7
    assert all(each.cause is not None for each in judged)
    assert sum(each.named for each in judged) >= 0.8 * len(judged)


def test_the_generator_is_seeded_and_has_many_kinds() -> None:
    assert len(MUTATIONS) >= 20
    assert len(ARCHITECTURES) >= 10
    given = subject(SUBJECTS["residual"])
    made = []
    for _ in range(2):
        model = copy_of("residual")
        mutation = MUTATIONS[0](model, given.shapes, random.Random(5))
        made.append((model.SerializeToString(), mutation))
    assert made[0] == made[1]


def test_an_original_without_a_row_proves_no_cause() -> None:
    empty = np.empty((0, 4), np.float32)
    recording = types.SimpleNamespace(outputs=["boxes"], output=lambda _: empty)
    assert worst_output_error(recording, {"boxes": empty}) == math.inf
