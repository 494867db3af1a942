"""Recipes with one random fault each: in the exported file, or in the code that is converted."""

import dataclasses
import functools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir

from convkit.host.home import Home
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.host.store.store import Store
from convkit.protocol.metrics.metric_registry import DEFAULTS
from convkit.worker.cases.case_files import read_cases, tensor_file
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, make_graph
from faults.mutants.changes import Mutation, NothingToMutateError
from faults.mutants.mutations import MUTATIONS
from faults.mutants.scoring import without_names
from faults.recipes import write_recipe
from faults.whole.edges import EDGES, Mutate
from faults.whole.subjects import SUBJECTS, Subject

# What recipes without a tolerance allow (`max_abs`).
TOLERANCE = float(DEFAULTS["max_abs"])
ORT: dict[str, Any] = {"runtime": "onnxruntime"}
OPENVINO: dict[str, Any] = {"runtime": "openvino"}
COREML: dict[str, Any] = {"runtime": "coreml", "precision": "float32"}


# The inputs of a case, and what the original computes for them.
Case = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
Outputs = Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], Mapping[str, np.ndarray] | None]


@dataclasses.dataclass(frozen=True)
class Export:
    """A subject's own export, and what its original computes in each case."""

    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    cases: tuple[Case, ...]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A recipe with one fault, and what was changed."""

    subject: str
    recipe: Path
    mutation: Mutation


def run(recipe: Path, home: Path) -> RunRecord:
    """Run a recipe with the tools of this environment."""
    options = RunOptions(recipe, Home(home), toolchain="host", track=False)
    return run_recipe(options).record


def healthy_recipe(subject: Subject, folder: Path, **keys: Any) -> Path:
    """Write the recipe of a subject as it is."""
    return write_recipe(folder, code=subject.source(), **subject.keys | keys)


def healthy_recipes() -> list[tuple[str, Callable[[Path], Path]]]:
    """Return every subject on all three runtimes, and by torch's exporter on onnxruntime."""
    every = {"ort": ORT, "openvino": OPENVINO, "coreml": COREML}
    ways = {
        "everywhere": {"targets": every},
        "torch": {"export": {"exporter": "torch", "opset": 18}, "targets": {"ort": ORT}},
    }
    return [
        (f"{subject.name}-{way}", functools.partial(healthy_recipe, subject, **keys))
        for way, keys in ways.items()
        for subject in SUBJECTS
    ]


def export_of(recipe: Path, home: Path) -> onnx.ModelProto:
    """Run a recipe with one target, and return the graph that it exports, without its contract."""
    record = run(recipe, home)
    store = Store(Home(home).store)
    (artifact,) = [
        each.artifact for each in record.stages if each.kind == "export" and each.artifact
    ]
    model = onnx.load(store.view(artifact) / "model.onnx")
    for proto in (model, model.graph):
        del proto.metadata_props[:]  # a stranger's file carries no contract
    return model


@functools.cache
def exported(subject: Subject, folder: Path) -> Export:
    """Export a subject as its own recipe does, with what its original computes.

    `folder` keeps the run: a second process finds its stages there.
    """
    recipe = healthy_recipe(subject, folder / subject.name)
    record = run(recipe, folder / "home")
    store = Store(Home(folder / "home").store)
    views = {s.id: store.view(s.artifact) for s in record.stages if s.artifact is not None}
    # The one graph that the only target is built from.
    (stage,) = [name for name in views if name.startswith("export")]
    model = onnx.load(views[stage] / "model.onnx")
    for proto in (model, model.graph):
        del proto.metadata_props[:]  # a stranger's file carries no contract
    cases = tuple(read_cases_of(subject, views["reference"]))
    graph = make_graph(onnx_ir.from_proto(model))
    names = [name for node in graph.nodes for name in node.output if name]
    feeds = largest_feeds(cases)
    found = graph.run(names, feeds)
    return Export(model, {n: v.shape for n, v in {**found, **feeds}.items()}, cases)


def read_cases_of(subject: Subject, reference: Path) -> Any:
    """Yield the inputs and outputs of a reference's usual cases."""
    for case in read_cases(reference).cases:
        if case.kind == "ladder":
            yield tuple(
                {
                    each["name"]: np.load(tensor_file(reference, case.name, side, each["name"]))
                    for each in tensors
                }
                for side, tensors in (("inputs", subject.inputs), ("outputs", subject.outputs))
            )


def largest_feeds(cases: Sequence[Case]) -> dict[str, np.ndarray]:
    """Return the inputs with the most elements."""
    return max((case[0] for case in cases), key=lambda given: sum(v.size for v in given.values()))


def audit_of(subject: Subject, folder: Path, file: str) -> Path:
    """Write a recipe that audits somebody's file against a subject."""
    keys = {name: value for name, value in subject.keys.items() if name != "export"}
    target = {"runtime": "given", "file": file}
    return write_recipe(folder, code=subject.source(), targets={"built": target}, **keys)


def mutant(
    seed: int,
    folder: Path,
    exports: Path,
    families: Sequence[Sequence[Mutate]] = (MUTATIONS, EDGES),
) -> Mutant | None:
    """Write the mutant of a seed, half of them with a fault of `EDGES`; None if it stays within
    the tolerance, or cannot run at all.
    """
    chance = random.Random(seed)
    while True:
        subject = chance.choice(SUBJECTS)
        original = exported(subject, exports)
        model = onnx.ModelProto()
        model.CopyFrom(original.model)
        try:
            mutation = chance.choice(chance.choice(families))(model, original.shapes, chance)
            break
        except NothingToMutateError:
            continue
    if chance.random() < 0.5:
        without_names(model)
    if not differs(
        original.cases, functools.partial(_outputs, make_graph(onnx_ir.from_proto(model)))
    ):
        return None
    target = chance.choice((ORT, OPENVINO))
    keys = {name: value for name, value in subject.keys.items() if name != "export"}
    recipe = write_recipe(
        folder / f"mutant-{seed}",
        code=subject.source(),
        graph=model,
        targets={"built": target},
        **keys,
    )
    return Mutant(subject.name, recipe, mutation)


def differs(cases: Sequence[Case], outputs: Outputs) -> bool:
    """Say whether a model runs in some case, and in some case fails or leaves the tolerance.

    `outputs` returns what the model computes for a case; None if it fails.
    """
    errors = [_error(outputs(*case), case[1]) for case in cases]
    return min(errors) < np.inf and not max(errors) <= TOLERANCE


def _outputs(
    graph: Graph, feeds: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    try:
        found = graph.run(list(expected), feeds)
    except PieceFailedError:
        return None
    alike = all(found[name].shape == values.shape for name, values in expected.items())
    return found if alike else None


def _error(found: Mapping[str, np.ndarray] | None, expected: Mapping[str, np.ndarray]) -> float:
    """Return the largest error of the outputs; infinite if they are none, and for NaN."""
    if found is None:
        return np.inf
    try:
        error = max(np.abs(found[name] - values).max() for name, values in expected.items())
    except (KeyError, ValueError):  # outputs of other names or shapes
        return np.inf
    return np.inf if np.isnan(error) else float(error)
