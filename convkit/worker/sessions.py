"""What every runtime can do. A runtime is a module with these functions; a session holds one loaded
model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from convkit.codec import Json
from convkit.findings.model import Finding
from convkit.tensors import Contract
from convkit.worker.context import Context
from convkit.worker.protocol import BuildRequest, Device, Fallback

if TYPE_CHECKING:
    import numpy as np

Options = Mapping[str, Json]


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


class Runtime(Protocol):
    """A runtime's module."""

    @property
    def MODEL_FILE(self) -> str:  # noqa: N802 - a module's constant
        """The built model's file inside the built folder."""
        ...

    def build(self, request: BuildRequest, context: Context) -> list[Finding]:
        """Write the target's files into `context.output`; raises ModelRefusedError,
        StageSkippedError.
        """
        ...

    def open(self, path: Path, device: Device, options: Options) -> RuntimeSession:
        """Load a built model from its file; raises ModelRefusedError, StageSkippedError where a
        device is absent.
        """
        ...
