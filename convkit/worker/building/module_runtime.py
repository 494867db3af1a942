"""The interface of runtimes that convert the torch module itself, in place of an exported graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, Device, OptionsT
from convkit.worker.runtime_interface.sessions import RuntimeSession

if TYPE_CHECKING:
    from convkit.worker.original.probing.prepared_model import PreparedModel


class ModuleRuntime(Protocol[OptionsT]):
    """A runtime that converts the torch module itself: a module with these functions.

    `stages.module_build` and `stages.module_verify` implement the rest.
    """

    @property
    def MODEL_FILE(self) -> str:  # noqa: N802 - a module's constant
        """The built model's file or folder name inside the built folder."""
        ...

    def convert(
        self, prepared: "PreparedModel", request: BuildRequest[OptionsT], file: Path
    ) -> list[Finding]:
        """Convert a model that accepted its contract's examples and write it, with the contract in
        it or beside it. Raises StageFailedError for a model that the runtime does not convert.

        `exporters.dynamic_trace.trace` turns the model into torch.export's program.
        """
        ...

    def open(self, path: Path, device: Device, options: OptionsT) -> RuntimeSession:
        """Load a built model; raises ModelRefusedError, and UnjudgedError for a model that cannot
        run on this machine.
        """
        ...

    def declared(self, contract: Contract) -> Contract:
        """Return a contract as built models can declare it: with the element types that the
        runtime has.
        """
        ...
