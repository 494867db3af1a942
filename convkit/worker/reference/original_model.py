"""The original model as the reference runs it, unmodified: in torch, or an ONNX file with
onnxruntime.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from convkit.protocol.contract import Contract, DType, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Source
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.decision_sizes import Decisions, Sizes
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.graph.class_labels import class_names
from convkit.worker.graph.evaluated_graph import EvaluatedGraph, evaluated
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.generation_facts import Generation, generation_of, tokenizer_files
from convkit.worker.process.denormal_mode import flushed_denormals, keep_denormals
from convkit.worker.runtime_interface.refusal_causes import explained
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

if TYPE_CHECKING:
    import torch

    from convkit.worker.original.probing.denormal_place import DenormalPlace
    from convkit.worker.original.probing.model_conditions import ModelConditions
    from convkit.worker.original.probing.nan_origin import NanOrigin

# The types to try for an input if the model rejects its declared type.
_OTHER_DTYPES: dict[DType, tuple[DType, ...]] = {
    "int32": ("int64", "float32"),
    "int64": ("int32", "float32", "bool"),
    "bool": ("int64", "float32"),
    "float16": ("float32", "float64"),
    "float32": ("float16", "float64", "int64"),
    "float64": ("float32",),
}


class OriginalModel(Protocol):
    """The original model, with the contract's names."""

    @property
    def facts(self) -> ModelFacts:
        """Facts about the model's inputs."""
        ...

    @property
    def tokenizer(self) -> Callable[[], Any] | None:
        """The model's own tokenizer."""
        ...

    @property
    def generation(self) -> Generation:
        """How the model generates text."""
        ...

    @property
    def tokenizer_files(self) -> tuple[Path, ...]:
        """The files of the model's own tokenizer."""
        ...

    def run(self, feeds: Feeds) -> Feeds:
        """Return the model's declared outputs; raises RunFailedError with the model's exception."""
        ...

    def decisions(self, draw: Callable[[Sizes], Feeds], sizes: Sizes) -> Decisions:
        """Return what the model compares its inputs' sizes and values with, from `sizes` on."""
        ...


def open_original(source: Source, contract: Contract, *, optimized: bool = False) -> OriginalModel:
    """Load the original, `optimized` as people run it; raises StageFailedError."""
    if source.kind == "onnx":
        return OnnxOriginal(source, contract, optimized=optimized)
    return TorchOriginal(source, contract)


class TorchOriginal:
    """A torch module on the CPU, in the element type it was loaded in."""

    def __init__(self, source: Source, contract: Contract) -> None:
        from convkit.worker.original.contract_module import ContractModule
        from convkit.worker.original.loading import load_model
        from convkit.worker.original.probing.held_state import State

        loaded = load_model(source)
        self.facts = loaded.facts
        self.tokenizer = loaded.tokenizer
        self.generation = generation_of(loaded)
        self.tokenizer_files = tokenizer_files(loaded)
        self.processor = loaded.processor
        self._contract = contract
        self.source_root = loaded.source_root
        self._training = loaded.training
        self._module = ContractModule(loaded, contract, source.omit)
        self._as_loaded = State(self._module.model)

    @property
    def module(self) -> "torch.nn.Module":
        """The model itself."""
        return self._module.model

    @property
    def size_bytes(self) -> int:
        """The size of the parameters and buffers; those that share storage count once."""
        tensors = [*self._module.parameters(), *self._module.buffers()]
        storages = [tensor.untyped_storage() for tensor in tensors]
        return sum({each.data_ptr(): int(each.nbytes()) for each in storages}.values())

    def run(self, feeds: Feeds) -> Feeds:
        """Run the module on copies of the inputs; raises RunFailedError."""
        keep_denormals()
        return self._run(feeds, {})

    def run_without_denormals(self, feeds: Feeds) -> Feeds:
        """Run the module with denormal numbers flushed to zero; raises RunFailedError."""
        from convkit.worker.process.one_thread import one_thread

        with one_thread(), flushed_denormals():
            return self._run(feeds, {})

    def denormal_place(self, feeds: Feeds) -> "DenormalPlace | None":
        """Return where results change if denormal numbers are flushed to zero; None if that cannot
        be told.
        """
        from convkit.worker.original.probing.denormal_dependence import denormal_place

        try:
            return denormal_place(self._module, self._tensors(feeds), self.source_root)
        except Exception:  # noqa: BLE001 - the model is the user's code: it can raise anything
            return None

    def decisions(self, draw: Callable[[Sizes], Feeds], sizes: Sizes) -> Decisions:
        """Run the model on inputs at some sizes; see `models.sources.decisions`."""
        from convkit.worker.original.probing.torch_comparisons import find_decisions

        def tensors(wanted: Sizes) -> tuple["torch.Tensor", ...]:
            return self._tensors(draw(wanted))

        found, _ = find_decisions(self._module, tensors, self._contract, sizes, self.source_root)
        return found

    def other_sides(
        self, inputs: Callable[[], Iterable[Feeds]]
    ) -> tuple[dict[str, int], list[str]]:
        """Return the lines that read values of the inputs, each with the place in `inputs` of the
        first for which the line matters: a branch takes another side than for the very first, or a
        trace of that computes something else. Then those that matter for none of them, and for
        other values would.
        """
        from convkit.worker.original.probing.kept_state import left_as_it_is
        from convkit.worker.original.probing.value_branches import flipping_inputs
        from convkit.worker.original.probing.values_read import (
            lines_read,
            parting_inputs,
            untried_lines,
        )

        root, module = self.source_root, self._module

        def drawn() -> tuple[Sequence["torch.Tensor"], Iterator[Sequence["torch.Tensor"]]]:
            tensors = (self._tensors(feeds) for feeds in inputs())
            return next(tensors), tensors

        untried: list[str] = []
        with left_as_it_is(module):
            first, others = drawn()
            flips = flipping_inputs(module, first, others, root)
            if lines_read(module, first, root).keys() - flips:
                flips = {**parting_inputs(module, *drawn(), root), **flips}
                untried = untried_lines(module, first, flips, root)
        return {line: place + 1 for line, place in flips.items()}, untried

    def conditions(self) -> AbstractContextManager["ModelConditions"]:
        """Return the comparisons inside the model, which is as before once the block ends."""
        from convkit.worker.original.probing.model_conditions import model_conditions

        return model_conditions(self._module, self._contract, self.source_root)

    def unsteady(self, earlier: Feeds, feeds: Feeds) -> Finding | None:
        """Return N303 if the model's outputs depend on earlier calls, on the clock or on Python's
        random numbers.
        """
        from convkit.worker.original.probing.clock_and_chance import read_finding
        from convkit.worker.original.probing.kept_state import state_finding

        before, inputs = self._tensors(earlier), self._tensors(feeds)
        return state_finding(
            self._module, self._as_loaded, before, inputs, self.source_root
        ) or read_finding(self._module, inputs, self.source_root)

    def written_inputs(self, calls: Iterable[Feeds]) -> list[Finding]:
        """Return N514 for each input that the model changes in one of some calls."""
        from convkit.worker.original.probing.written_inputs import written_findings

        return written_findings(self._module, map(self._tensors, calls), self.source_root)

    def first_change(self, feeds: Feeds) -> Finding | None:
        """Return N303 for the first operation that differs between two runs; None if none does."""
        from convkit.worker.original.probing.nondeterminism import unsteady_finding

        return unsteady_finding(self._module, self._tensors(feeds), self.source_root)

    def training_mode(self, draw: Callable[[], Feeds]) -> Finding | None:
        """Return E306 if parts that came in training mode compute otherwise in it; None if they
        refuse the inputs.
        """
        from convkit.worker.original.loading.training_mode import training_finding

        feeds = draw() if self._training else {}
        try:
            return training_finding(self.module, self._training, lambda: self.run(feeds))
        except RunFailedError:
            return None

    def nan_origin(self, feeds: Feeds) -> "NanOrigin | None":
        """Return where NaN begins on these inputs, which the model accepts."""
        from convkit.worker.original.probing.nan_origin import nan_origin

        return nan_origin(self._module, self._tensors(feeds), self.source_root)

    def literal_size(self, feeds: Feeds, sizes: Sizes) -> Finding | None:
        """Return C106 for a number in the model's code that stands for an axis's size."""
        from convkit.worker.original.probing.literal_sizes import literal_size

        return literal_size(self._module, self._tensors(feeds), sizes, self.source_root)

    def _tensors(self, feeds: Feeds) -> tuple["torch.Tensor", ...]:
        from convkit.worker.original.torch_dtypes import to_tensors

        return tuple(to_tensors(self._contract.inputs, feeds).values())

    def accepted_dtype(self, feeds: Feeds) -> tuple[TensorSpec, DType] | None:
        """Return an input and the element type with which the model accepts these inputs, if a
        single such change helps.
        """
        for spec in self._contract.inputs:
            for dtype in _OTHER_DTYPES.get(spec.dtype, ()):
                try:
                    self._run(feeds, {spec.name: dtype})
                except (RunFailedError, StageFailedError):
                    continue
                return spec, dtype
        return None

    def _run(self, feeds: Feeds, dtypes: Mapping[str, DType]) -> Feeds:
        import torch

        from convkit.worker.original.torch_dtypes import torch_dtype

        tensors = list(self._tensors(feeds))
        for place, spec in enumerate(self._contract.inputs):
            if spec.name in dtypes:
                tensors[place] = tensors[place].to(torch_dtype(dtypes[spec.name]))
        try:
            with torch.no_grad():
                outputs = self._module(*tensors)
        except (MemoryError, StageFailedError):
            raise
        except Exception as error:
            # The model is the user's code: it can raise anything.
            raise RunFailedError(f"{type(error).__name__}: {error}") from error
        names = [spec.name for spec in self._contract.outputs]
        return {name: _to_numpy(tensor) for name, tensor in zip(names, outputs, strict=True)}


class OnnxOriginal:
    """A third-party ONNX file, run by onnxruntime on the CPU; by onnx's own evaluator if that
    refuses the file, so that the refusal is a target's.

    Without optimizations, unless `optimized`: they must not decide what is right, but a benchmark
    compares with the file as people run it.
    """

    tokenizer = None
    generation = Generation()
    tokenizer_files: tuple[Path, ...] = ()

    def __init__(self, source: Source, contract: Contract, *, optimized: bool = False) -> None:
        from convkit.worker.graph.graph_session import GraphSession, open_graph
        from convkit.worker.graph.rewriting.fixed_random_numbers import given_file

        assert source.path is not None
        self._contract, self._path = contract, Path(source.path)
        self._is_fixed = source.random is not None
        try:
            with given_file(source) as path:
                self._session: GraphSession | EvaluatedGraph
                try:
                    self._session = open_graph(path, optimized=optimized)
                except ModelRefusedError as error:
                    if optimized or explained(error) is not None:
                        raise
                    self._session = evaluated(path, error)
        except ModelRefusedError as error:
            cause = explained(error)
            raise StageFailedError(
                f"model.onnx: {error}" if cause is None else cause.message,
                [] if cause is None else [cause],
            ) from error

    @functools.cached_property
    def facts(self) -> ModelFacts:
        """The number of weights; what inputs are legal, a file does not say."""
        import onnx

        graph = onnx.load(self._path, load_external_data=False).graph
        return ModelFacts(weights=sum(math.prod(each.dims) for each in graph.initializer))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the file's metadata; empty if it has none."""
        import onnx

        model = onnx.load(self._path, load_external_data=False)
        return class_names({each.key: each.value for each in model.metadata_props})

    def decisions(self, draw: Callable[[Sizes], Feeds], sizes: Sizes) -> Decisions:  # noqa: ARG002 - a graph has no Python
        """Return nothing: the nodes of a graph are read, not run (`models.graph.decisions`)."""
        return Decisions()

    def first_change(self, feeds: Feeds) -> Finding | None:  # noqa: ARG002 - the graph tells
        """Return N303 for the first node that draws random numbers; None if none does."""
        import onnx

        from convkit.worker.graph.rewriting.fixed_random_numbers import random_finding, random_nodes

        if self._is_fixed:
            return None
        drawing = random_nodes(onnx.load(self._path, load_external_data=False))
        return random_finding(drawing) if drawing else None

    def run(self, feeds: Feeds) -> Feeds:
        """Run the file; raises RunFailedError with onnxruntime's message."""
        return self._run(self._session.run, feeds)

    def run_without_denormals(self, feeds: Feeds) -> Feeds:
        """Run the file with denormal numbers flushed to zero; raises RunFailedError."""
        from convkit.worker.cause.graphs.runnable_graph import PieceFailedError, read_graph

        wanted = [spec.origin or spec.name for spec in self._contract.outputs]
        try:
            graph = read_graph(self._path)  # computes in this thread only
            with flushed_denormals():
                return self._run(lambda given: graph.run(wanted, given), feeds)
        except PieceFailedError as error:
            raise RunFailedError(str(error)) from error

    def denormal_place(self, feeds: Feeds) -> "DenormalPlace | None":
        """Return where results change if denormal numbers are flushed to zero; None if that cannot
        be told.
        """
        from convkit.worker.reference.denormal_nodes import denormal_node

        given = {
            spec.origin or spec.name: np.asarray(feeds[spec.name], order="C")
            for spec in self._contract.inputs
        }
        return denormal_node(self._path, given)

    def _run(self, run: Callable[[Feeds], Feeds], feeds: Feeds) -> Feeds:
        outputs = run(
            {
                # Not `ascontiguousarray`, which makes a vector of a scalar.
                spec.origin or spec.name: np.asarray(feeds[spec.name], order="C")
                for spec in self._contract.inputs
            }
        )
        names = {spec.name: spec.origin or spec.name for spec in self._contract.outputs}
        if missing := [given for given in names.values() if given not in outputs]:
            raise RunFailedError(
                f"the file has no output {missing[0]!r}; it has {', '.join(outputs)}"
            )
        return {name: outputs[given] for name, given in names.items()}


def _to_numpy(tensor: "torch.Tensor") -> np.ndarray:
    """Return a tensor's values in its own element type; bfloat16 as bits, for numpy."""
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(BFLOAT16_BITS))
    try:
        return np.asarray(tensor.numpy())
    except TypeError as error:
        raise RunFailedError(f"an output is {tensor.dtype}, which numpy has no type for") from error
