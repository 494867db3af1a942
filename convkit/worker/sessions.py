"""What every runtime can do. A runtime is a module with these functions; a session holds one loaded
model.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from convkit.findings.model import Finding
from convkit.tensors import Contract
from convkit.worker.context import Context
from convkit.worker.operators import Operators
from convkit.worker.protocol import BuildRequest, Device, Fallback, OptionsT

if TYPE_CHECKING:
    import numpy as np


class ModelRefusedError(Exception):
    """The runtime cannot load the model; the message is the runtime's own."""


class RunFailedError(Exception):
    """The runtime loaded the model and failed to run it; the message is the runtime's own."""


class NotServedError(RunFailedError):
    """The built model does not take inputs of this size, and was not asked to; the message says
    what it takes.
    """


class RuntimeSession(Protocol):
    """One loaded model."""

    def contract(self) -> Contract:
        """Return names, order, dtypes and shapes as the runtime states them; it knows nothing of
        axes' ranges.
        """
        ...

    def metadata(self) -> Mapping[str, str]:
        """Return the texts that the model file carries."""
        ...

    def run(self, feeds: "Mapping[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Return every output by name, for inputs by name; raises RunFailedError."""
        ...

    @property
    def providers(self) -> tuple[str, ...]:
        """What executes the model, most wanted first."""
        ...

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the nodes that ran elsewhere than on the device asked for; known after the first
        run.
        """
        ...


@dataclasses.dataclass(frozen=True)
class OpenedModel:
    """A built model, open. `served` is the contract as the runtime states it.

    `declared` turns the contract that the model carries into what the runtime can state of it.
    """

    session: RuntimeSession
    served: Contract
    declared: Callable[[Contract], Contract] = lambda contract: contract


class GraphRuntime(Protocol[OptionsT]):
    """A runtime that is built from an ONNX graph: a module with these functions.

    `stages.graph_build` and `stages.graph_verify` do the rest.
    """

    @property
    def MODEL_FILE(self) -> str:  # noqa: N802 - a module's constant
        """The built model's file inside the built folder."""
        ...

    def build(
        self, graph: Path, request: BuildRequest[OptionsT], context: Context
    ) -> list[Finding]:
        """Write the target's files, made from a graph, into `context.output`.

        Raises ModelRefusedError, and StageSkippedError if the device is absent.
        """
        ...

    def open(self, path: Path, device: Device, options: OptionsT) -> RuntimeSession:
        """Load a built model; raises ModelRefusedError, and StageSkippedError if the device is
        absent.
        """
        ...

    def refusals(self, operators: Operators, device: Device) -> list[Finding]:
        """Return what the runtime has no kernels for, before it opens the whole model."""
        ...

    def keeps_operators(self, options: OptionsT) -> bool:
        """Say whether the built file has the operators of the graph it is built from."""
        ...

    def plain(self, options: OptionsT) -> tuple[tuple[str, OptionsT], ...]:
        """Return the options with fewer optimizations, plainest first, each with its name.

        If one of them is right where the target's own options are wrong, optimizing is the cause.
        """
        ...
