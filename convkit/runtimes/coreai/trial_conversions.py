"""Conversions that are tried and executed, to find a precision or a cause: in another precision,
with intermediate values as outputs, or with given values in their place.
"""

import dataclasses
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from convkit.protocol.contract import Contract
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreai.conversion import contract_texts, entry_point, save_converted
from convkit.runtimes.coreai.file_contract import MAIN, MODEL_FILE
from convkit.runtimes.coreai.float16_program import LargeConstant, lowered
from convkit.runtimes.coreai.options import CompressionOptions, CoreAIOptions
from convkit.runtimes.coreai.session import CoreAISession
from convkit.runtimes.coreai.traced_program import computed_nodes, traced
from convkit.worker.building.program_run import ProgramRun
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.probing.prepared_model import PreparedModel
from convkit.worker.original.torch_dtypes import to_tensors
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

SpecT = TypeVar("SpecT", InputSpec, OutputSpec)

# What an exposed or replaced value is called in a trial's file.
_EXPOSED, _PUT = "exposed_{}", "put_{}"


@dataclasses.dataclass(frozen=True)
class Trials:
    """A model to convert again and again. `program` is its trace, which trials copy."""

    prepared: PreparedModel
    contract: Contract
    options: CoreAIOptions
    program: ExportedProgram

    @classmethod
    def of(cls, prepared: PreparedModel, contract: Contract, options: CoreAIOptions) -> "Trials":
        """Trace a model; raises like `traced`."""
        root = prepared.loaded.source_root
        examples = prepared.probe.inputs
        program = traced(prepared.module, examples, contract, root, options.decompose)
        return cls(prepared, contract, options, program)

    def decomposing(self, operators: Sequence[str]) -> "Trials":
        """Return trials with further operators decomposed; raises like `traced`."""
        names = tuple(dict.fromkeys((*self.options.decompose, *operators)))
        options = dataclasses.replace(self.options, decompose=names)
        return Trials.of(self.prepared, self.contract, options)

    def lowered(
        self, precision: LowPrecision | None
    ) -> tuple[ExportedProgram, tuple[LargeConstant, ...]]:
        """Return a copy of the program in a precision, and the numbers that it cannot hold."""
        program = copied(self.program)
        if precision is None:
            return program, ()
        return program, lowered(program, precision, self.prepared.loaded.source_root)

    def session(
        self,
        precision: LowPrecision | None = None,
        exposed: Sequence[str] = (),
        put: Sequence[str] = (),
        compression: CompressionOptions | None = None,
        *,
        nothing_else: bool = False,
    ) -> CoreAISession:
        """Convert and load. `exposed` nodes are outputs as well, or with `nothing_else` the only
        ones; `put` nodes are inputs instead.

        Raises StageFailedError, ModelRefusedError.
        """
        program, _ = self.lowered(precision)
        entry = entry_point(MAIN, program, self.contract)
        # What becomes unused is removed last, so that every exposed value is still there.
        for name in exposed:
            _add_output(program, name)
        for name in put:
            _replace_by_input(program, name)
        outputs = (*entry.outputs, *map(_EXPOSED.format, exposed))
        if nothing_else:
            _drop_outputs(program, len(entry.outputs))
            outputs = outputs[len(entry.outputs) :]
        program.graph.eliminate_dead_code()
        program.graph_module.recompile()
        entry = dataclasses.replace(
            entry, inputs=(*entry.inputs, *map(_PUT.format, put)), outputs=outputs
        )
        folder = tempfile.TemporaryDirectory(prefix="convkit-coreai-")
        file = Path(folder.name) / MODEL_FILE
        root = self.prepared.loaded.source_root
        save_converted([entry], file, contract_texts(self.contract), root, compression)
        return CoreAISession(file, folder)

    def originals(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every node's tensor as torch computes it, by name, and the outputs by theirs."""
        recorder = _Recorder(self.program.module(check_guards=False))
        given = [*to_tensors(self.contract.inputs, feeds).values()]
        with torch.no_grad():
            found = recorder.run(*given)
        outputs = zip((spec.name for spec in self.contract.outputs), found, strict=True)
        return {**recorder.values, **{name: each.numpy() for name, each in outputs}}


def outputs_or_none(
    session: Callable[[], CoreAISession], feeds: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return the outputs of a trial; none for one that cannot be converted, loaded or run, which
    no limit accepts.
    """
    try:
        return session().run(feeds)
    except (StageFailedError, ModelRefusedError, RunFailedError):
        return {}


def run_exposed(
    session: CoreAISession, feeds: Mapping[str, np.ndarray], put: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Run a trial; exposed values go by their nodes' names. Raises RunFailedError."""
    values = {_PUT.format(name): value for name, value in put.items()}
    prefix = _EXPOSED.format("")
    found = session.run({**feeds, **values})
    return {name.removeprefix(prefix): array for name, array in found.items()}


def tensor_nodes(program: ExportedProgram) -> list[str]:
    """Return the nodes that compute one tensor, in order."""
    return [
        node.name
        for node in computed_nodes(program)
        if isinstance(node.meta.get("val"), torch.Tensor)
    ]


def copied(program: ExportedProgram) -> ExportedProgram:
    """Return a program whose graph and weights can be replaced; nodes keep their names."""
    graph = Graph()
    nodes: dict[Node, Node] = {}
    returned = graph.graph_copy(program.graph, nodes)
    graph.output(returned)
    graph.output_node().meta = dict(program.graph.output_node().meta)
    module = GraphModule(program.graph_module, graph)
    signature = _copied_signature(program.graph_signature)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own parts
        made = program._update(module, signature)  # noqa: SLF001 - as torch's passes do
    made._state_dict = dict(program.state_dict)  # noqa: SLF001
    made._constants = dict(program.constants)  # noqa: SLF001
    return made


class _Recorder(ProgramRun):
    """Runs a program and records each tensor by its node."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, np.ndarray] = {}

    def run_node(self, n: Node) -> object:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            self.values[n.name] = result.detach().clone().numpy()
        return result


def _copied_signature(signature: ExportGraphSignature) -> ExportGraphSignature:
    def copy(spec: SpecT) -> SpecT:
        return dataclasses.replace(spec, arg=dataclasses.replace(spec.arg))

    return ExportGraphSignature(
        [copy(each) for each in signature.input_specs],
        [copy(each) for each in signature.output_specs],
    )


def _add_output(program: ExportedProgram, name: str) -> None:
    end = program.graph.output_node()
    (returned,) = end.args
    node = _node(program, name)
    # Two outputs of one value would share their name.
    with program.graph.inserting_before(end):
        own = program.graph.call_function(torch.ops.aten.clone.default, (node,))
    own.meta = dict(node.meta)
    end.args = ((*returned, own),)
    program.graph_signature.output_specs.append(
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=own.name), None)
    )


def _drop_outputs(program: ExportedProgram, count: int) -> None:
    """Remove the first outputs."""
    end = program.graph.output_node()
    (returned,) = end.args
    assert isinstance(returned, tuple | list)
    end.args = (tuple(returned[count:]),)
    del program.graph_signature.output_specs[:count]


def _replace_by_input(program: ExportedProgram, name: str) -> None:
    node = _node(program, name)
    last = [each for each in program.graph.nodes if each.op == "placeholder"][-1]
    with program.graph.inserting_after(last):
        given = program.graph.placeholder(_PUT.format(name))
    given.meta = {"val": node.meta["val"]}
    node.replace_all_uses_with(given)
    program.graph_signature.input_specs.append(
        InputSpec(InputKind.USER_INPUT, TensorArgument(name=given.name), None)
    )
    for each in program.graph_signature.output_specs:
        if each.arg.name == name:
            each.arg.name = given.name


def _node(program: ExportedProgram, name: str) -> Node:
    return next(node for node in program.graph.nodes if node.name == name)
