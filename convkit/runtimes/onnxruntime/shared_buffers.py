"""Verifies a model as an app calls it that passes one buffer as a fed input and as the output that
feeds it (IO binding): nothing is copied between calls, and the output overwrites the input.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import (
    BuildRequest,
    Device,
    Fallback,
    Feed,
    Steps,
    VerifyRequest,
    VerifyResult,
)
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.graph.graph_session import as_array
from convkit.worker.graph.session_values import array_of, ort_value
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.distinct_operators import Operators
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError
from convkit.worker.stages.graph_verify import verify_graph

# Two runs of one graph on one machine differ by no more than this, relative to the largest value.
_REPEATED = 1e-6


def verify_shared(
    request: VerifyRequest[OnnxRuntimeOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify the built graph with shared buffers, in every case and loop.

    E323 names the pairs whose sharing changes the results.
    """
    assert request.steps is not None
    pairs = shared_pairs(request.contract, request.steps)
    result, findings = verify_graph(request, SharingRuntime(pairs), context)
    context.progress("comparing shared buffers with separate ones")
    return result, [*findings, *overwritten(request, pairs)]


def shared_pairs(contract: Contract, steps: Steps) -> tuple[Feed, ...]:
    """Return the feeds whose output fits the input's buffer at all sizes."""
    inputs, outputs = (
        {spec.name: (spec.dtype, spec.shape) for spec in specs}
        for specs in (contract.inputs, contract.outputs)
    )
    return tuple(feed for feed in steps.feeds if inputs[feed.input] == outputs[feed.output])


def overwritten(request: VerifyRequest[OnnxRuntimeOptions], pairs: Sequence[Feed]) -> list[Finding]:
    """Return E323 for each pair that changes an output by sharing a buffer, compared with the same
    graph on separate buffers.
    """
    root = Path(request.reference)
    cases = [case.name for case in read_cases(root).cases if case.kind == "ladder"]
    name = next((case for case in cases if case == "typical"), cases[0])
    feeds = read_tensors(root, name, "inputs", request.contract.inputs)
    path = Path(request.built) / session.MODEL_FILE
    try:
        opened = session.open(path, "cpu", request.options)
        known = {argument.name for argument in opened.raw.get_inputs()}
        given = {each: values for each, values in feeds.items() if each in known}
        separate = opened.run(given)
        found = []
        for pair in pairs:
            changes = _changes(separate, SharingSession(opened, [pair]).run(given))
            if changes:
                found.append(_finding(pair, changes, name))
    except (ModelRefusedError, RunFailedError):
        return []  # the verification itself says so
    return found


def _changes(separate: Feeds, shared: Feeds) -> dict[str, float]:
    """Return the largest change of each output that sharing changes."""
    changes = {}
    for name, wanted in separate.items():
        if wanted.dtype.kind not in "fiub" or not wanted.size:
            continue
        one, other = wanted.astype(np.float64), shared[name].astype(np.float64)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        error = float(np.max(np.where(same, 0.0, np.abs(one - other))))
        finite = np.abs(one[np.isfinite(one)])
        if not error <= _REPEATED * float(finite.max(initial=0.0)):
            changes[name] = error
    return changes


def _finding(pair: Feed, changes: Mapping[str, float], case: str) -> Finding:
    listed = ", ".join(f"{name!r} by {error:.2g}" for name, error in changes.items())
    return Finding(
        "E323",
        f"one buffer for {pair.input!r} and {pair.output!r} changes {listed} in case {case},"
        f" compared with separate buffers: the graph reads {pair.input!r} after it has written"
        f" {pair.output!r}",
        Place(case=case, tensor=pair.input),
        {"input": pair.input, "output": pair.output, "changes": dict(changes)},
        Remedy(
            f"Pass {pair.input!r} and {pair.output!r} in separate buffers, or let the model compute"
            f" from the updated {pair.output!r} only."
        ),
    )


class SharingRuntime:
    """onnxruntime, with sessions that share the buffers of these pairs."""

    MODEL_FILE = session.MODEL_FILE

    def __init__(self, pairs: Sequence[Feed]) -> None:
        self._pairs = pairs

    def build(
        self, graph: Path, request: BuildRequest[OnnxRuntimeOptions], context: Context
    ) -> list[Finding]:
        """Build as onnxruntime's targets are built."""
        return session.build(graph, request, context)

    def open(self, path: Path, device: Device, options: OnnxRuntimeOptions) -> "SharingSession":
        """Load a built model; raises ModelRefusedError."""
        return SharingSession(session.open(path, device, options), self._pairs)

    def refusals(self, operators: Operators, device: Device) -> list[Finding]:
        """Return the operators that the installed release has no kernels for."""
        return session.refusals(operators, device)

    def keeps_operators(self, options: OnnxRuntimeOptions) -> bool:
        """Return True if the built file retains the operators of its source graph."""
        return session.keeps_operators(options)

    def plain(self, options: OnnxRuntimeOptions) -> tuple[tuple[str, OnnxRuntimeOptions], ...]:
        """Return the options at each lower optimization level."""
        return session.plain(options)

    def executed_graph(self, path: Path, options: OnnxRuntimeOptions, folder: Path) -> Path:
        """Write the graph that onnxruntime executes."""
        return session.executed_graph(path, options, folder)


class SharingSession:
    """A loaded model whose fed inputs and the outputs that feed them are one buffer each."""

    def __init__(self, opened: session.OnnxRuntimeSession, pairs: Sequence[Feed]) -> None:
        self._opened = opened
        self._pairs = pairs
        self._outputs = [argument.name for argument in opened.raw.get_outputs()]
        self.providers = opened.providers

    def contract(self) -> Contract:
        """Return the contract as reported by the session."""
        return self._opened.contract()

    def metadata(self) -> Mapping[str, str]:
        """Return the model's metadata."""
        return self._opened.metadata()

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return no nodes: the CPU is what was requested."""
        return self._opened.fallbacks()

    def run(self, feeds: Mapping[str, np.ndarray]) -> Feeds:
        """Return every output by name; the caller's arrays stay as they are. Raises
        RunFailedError.
        """
        quiet = onnxruntime.RunOptions()
        quiet.log_severity_level = 4
        binding = self._opened.raw.io_binding()
        try:
            held = self._bind(binding, feeds)
            self._opened.raw.run_with_iobinding(binding, quiet)
            values = [array_of(value) for value in binding.get_outputs()]
        except MemoryError:
            raise
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise RunFailedError(str(error)) from error
        del held  # the buffers outlive the run
        return {name: as_array(value) for name, value in zip(self._outputs, values, strict=True)}

    def _bind(
        self, binding: "onnxruntime.IOBinding", feeds: Mapping[str, np.ndarray]
    ) -> list[object]:
        """Bind every tensor; return what must live as long as the run."""
        shared = {pair.input: pair.output for pair in self._pairs if pair.input in feeds}
        held: list[object] = []
        outputs = {}
        for name, values in feeds.items():
            if values.dtype.kind in "UO":
                binding.bind_cpu_input(name, values.astype(object))
                continue
            array = np.array(values, order="C") if name in shared else np.asarray(values, order="C")
            value = ort_value(name, array)
            held += [array, value]
            binding.bind_ortvalue_input(name, value)
            if name in shared and array.size:
                outputs[shared[name]] = value
        for name in self._outputs:
            if name in outputs:
                binding.bind_ortvalue_output(name, outputs[name])
            else:
                binding.bind_output(name)
        return held
