"""Where an operation of a traced program comes from, for runtimes that convert the torch module."""

import dataclasses

from convkit.protocol.findings.finding import Place
from convkit.protocol.module_naming import module_at


@dataclasses.dataclass(frozen=True)
class OperationOrigin:
    """A node of a traced program: its name there and torch's operator; module path and `file:line`
    are empty if torch does not know them.
    """

    name: str
    operator: str
    module: str
    source: str

    def __str__(self) -> str:
        return f"{self.operator} ({module_at(self.module, self.source)})"

    def place(self, case: str | None = None) -> Place:
        """Return the place of a finding."""
        return Place(
            node=self.name, module=self.module or None, source=self.source or None, case=case
        )
