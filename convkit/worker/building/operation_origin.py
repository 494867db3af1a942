"""Where an operation of a traced program comes from, for runtimes that convert the torch module."""

import dataclasses

from convkit.protocol.findings.finding import Place


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
        where = f"module {self.module}" if self.module else "the root module"
        return f"{self.operator} ({where}{f', at {self.source}' if self.source else ''})"

    def place(self, case: str | None = None) -> Place:
        """Return the place of a finding."""
        return Place(
            node=self.name, module=self.module or None, source=self.source or None, case=case
        )
