"""Makes mutants by seed and scores what the search says of them."""

import dataclasses
import functools
import io
import random
import warnings

import numpy as np
import onnx
import onnx_ir
import torch

from convkit.worker.cause.cause_search import localize, outputs_error
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, make_graph
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from faults.mutants.changes import Mutation, NothingToMutateError
from faults.mutants.models import ARCHITECTURES, Architecture, trained
from faults.mutants.mutations import MUTATIONS

# An error, in parts of an output's rms, below which a mutant is taken for equivalent.
EQUIVALENT = 2e-5
_INPUTS = 3


@dataclasses.dataclass(frozen=True)
class Subject:
    """An architecture, exported, and what it computes on some inputs."""

    architecture: Architecture
    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    state: dict[str, np.ndarray]
    recordings: tuple[Recording, ...]
    feeds: tuple[dict[str, np.ndarray], ...]


@dataclasses.dataclass(frozen=True)
class Score:
    """What the search said of one mutant. `dead`: no output depends on what was changed."""

    architecture: str
    mutation: Mutation
    diagnosis: Diagnosis | None
    equivalent: bool
    dead: bool = False

    @property
    def cause(self) -> Cause | None:
        """The headline."""
        return self.diagnosis.causes[0] if self.diagnosis and self.diagnosis.causes else None

    @property
    def placed(self) -> bool:
        """True where the headline is at the node or weight that was changed."""
        places = {self.cause.node, self.cause.tensor} if self.cause is not None else set()
        return bool(places & self.mutation.nodes)

    @property
    def named(self) -> bool:
        """True where the headline says what was changed, at the right place."""
        return self.placed and self.cause is not None and self.cause.kind in self.mutation.kinds


@functools.cache
def subject(architecture: Architecture) -> Subject:
    """Export an architecture and record it on several inputs."""
    module = trained(architecture.build)
    inputs = [architecture.draw(torch.Generator().manual_seed(seed)) for seed in range(_INPUTS)]
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations and what it says about tracing
        torch.onnx.export(
            module,
            tuple(inputs[0].values()),
            stream,
            dynamo=False,
            opset_version=17,
            input_names=list(inputs[0]),
            output_names=list(architecture.outputs),
        )
    model = onnx.load_from_string(stream.getvalue())
    feeds = tuple({name: each.numpy() for name, each in given.items()} for given in inputs)
    graph = make_graph(onnx_ir.from_proto(model))
    names = [name for node in graph.nodes for name in node.output if name]
    found = graph.run(names, feeds[0])
    shapes = {name: values.shape for name, values in {**found, **feeds[0]}.items()}
    state = {name: each.numpy() for name, each in module.state_dict().items()}
    recordings = tuple(record(module, given, architecture.outputs) for given in inputs)
    return Subject(architecture, model, shapes, state, recordings, feeds)


def score(seed: int) -> Score | None:
    """Make the mutant of a seed and score it; None where onnxruntime refuses the graph."""
    chance = random.Random(seed)
    while True:
        original = subject(chance.choice(ARCHITECTURES))
        model = onnx.ModelProto()
        model.CopyFrom(original.model)
        try:
            mutation = chance.choice(MUTATIONS)(model, original.shapes, chance)
            break
        except NothingToMutateError:
            continue
    if chance.random() < 0.5:
        without_names(model)
    graph = make_graph(onnx_ir.from_proto(model))
    name = original.architecture.name
    refused = 0
    for recording, feeds in zip(original.recordings, original.feeds, strict=True):
        try:
            graph.run(list(graph.outputs), feeds)
        except PieceFailedError:
            refused += 1
            continue
        if outputs_error(recording, graph, feeds) > EQUIVALENT:
            diagnosis = localize(recording, graph, feeds, original.state)
            return Score(name, mutation, diagnosis, equivalent=False)
    if refused:
        return None
    return Score(name, mutation, None, equivalent=True, dead=_is_dead(graph, mutation))


def without_names(model: onnx.ModelProto) -> None:
    """Remove the module paths that TorchScript leaves in nodes' names, as other exporters do."""
    for node in model.graph.node:
        if not node.name.endswith(tuple("0123456789")) or "_inserted_" not in node.name:
            node.name = ""


def _is_dead(graph: Graph, mutation: Mutation) -> bool:
    reached = graph.closure(graph.outputs, ())
    names = {name for i in reached for name in (*graph.nodes[i].output, *graph.nodes[i].input)}
    return not names & mutation.nodes


def healthy(architecture: Architecture) -> list[Diagnosis]:
    """Return what the search says of an architecture's own export, for each of its inputs."""
    given = subject(architecture)
    graph = make_graph(onnx_ir.from_proto(given.model))
    return [
        localize(recording, graph, feeds, given.state)
        for recording, feeds in zip(given.recordings, given.feeds, strict=True)
    ]
