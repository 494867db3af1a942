"""An exporter's inputs, and its error for models that cannot meet the contract."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule
    from convkit.worker.original.probing.contract_probe import Examples, Probe

Translations = Mapping[Callable[..., object], Callable[..., object]]
# The attribute of ContractModule that contains the model: the first part of every module path that
# tracers record.
WRAPPER = "model"


@dataclasses.dataclass(frozen=True)
class ExportJob:
    """One export: the model behind its contract, and inputs that it is known to accept. `scratch`
    is an empty folder. `translations` maps torch's operators to the functions that write them.
    """

    loaded: LoadedModel
    module: "ContractModule"
    examples: "Examples"
    probe: "Probe"
    opset: int
    task: str | None
    scratch: Path
    translations: Translations = dataclasses.field(default_factory=dict)

    @property
    def contract(self) -> Contract:
        """Return the declared contract."""
        return self.module.contract


class UnexportableError(StageFailedError):
    """The model cannot be exported as the contract requires; `findings` explain why."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        messages = dict.fromkeys(finding.message for finding in findings)
        super().__init__(" ".join(messages), findings)
