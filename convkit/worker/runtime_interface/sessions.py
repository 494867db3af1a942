"""The interface that every runtime implements. A runtime is a module with these functions; a
session wraps one loaded model.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, Device, Fallback, OptionsT
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.distinct_operators import Operators

if TYPE_CHECKING:
    import numpy as np


class ModelRefusedError(Exception):
    """The runtime cannot load the model; the message is the runtime's."""


class UnjudgedError(ModelRefusedError):
    """Nothing on this machine runs the model, which may be right; the message says why."""


class RunFailedError(Exception):
    """The runtime loaded the model but failed to run it; the message is the runtime's."""


class NotServedError(RunFailedError):
    """The built model does not accept inputs of this size, by design; the message states the sizes
    it accepts.
    """


class Runnable(Protocol):
    """What runs on inputs by name."""

    def run(self, feeds: "Mapping[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Run the model on inputs by name and return all outputs by name; raises RunFailedError."""
        ...


class RuntimeSession(Runnable, Protocol):
    """One loaded model."""

    def contract(self) -> Contract:
        """Return names, order, dtypes and shapes as the runtime reports them. Runtimes do not know
        the axes' ranges.
        """
        ...

    def metadata(self) -> Mapping[str, str]:
        """Return the metadata strings stored in the model file."""
        ...

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that execute the model, in order of preference."""
        ...

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the nodes that did not run on the requested device; known after the first run."""
        ...


@dataclasses.dataclass(frozen=True)
class OpenedModel:
    """A loaded built model. `served` is the contract as the runtime reports it.

    `declared` reduces the contract stored in the model to the parts that the runtime can report.
    """

    session: RuntimeSession
    served: Contract
    declared: Callable[[Contract], Contract] = lambda contract: contract


class GraphRuntime(Protocol[OptionsT]):
    """A runtime that builds from an ONNX graph: a module with these functions.

    `stages.graph_build` and `stages.graph_verify` implement the rest.
    """

    @property
    def MODEL_FILE(self) -> str:  # noqa: N802 - a module's constant
        """The built model's file name inside the built folder."""
        ...

    def build(
        self, graph: Path, request: BuildRequest[OptionsT], context: Context
    ) -> list[Finding]:
        """Build the target's files from a graph and write them to `context.output`.

        Raises ModelRefusedError, or StageSkippedError if the device is absent.
        """
        ...

    def open(self, path: Path, device: Device, options: OptionsT) -> RuntimeSession:
        """Load a built model. Raises ModelRefusedError, or StageSkippedError without a device."""
        ...

    def refusals(self, operators: Operators, device: Device) -> list[Finding]:
        """Return the operators without kernels in the runtime, without loading the model."""
        ...

    def keeps_operators(self, options: OptionsT) -> bool:
        """Return True if the built file retains the operators of its source graph."""
        ...

    def plain(self, options: OptionsT) -> tuple[tuple[str, OptionsT], ...]:
        """Return named variants of the options with fewer optimizations, least optimized first.

        If a variant is correct and the target's own options fail, an optimization is the cause.
        """
        ...

    def executed_graph(self, path: Path, options: OptionsT, folder: Path) -> Path | None:
        """Write the ONNX graph that the runtime executes on the CPU into a folder, and return its
        file; None if the runtime does not show it. Raises ModelRefusedError.

        Its products of 8-bit numbers are then verified for other families of processors, too.
        """
        ...
