"""Findings that follow from another: they have no remedy of their own, and are shown below it."""

import dataclasses

from convkit.protocol.findings.finding import Finding, Remedy

_FOLLOWS = "follows"


def following(finding: Finding, cause: str) -> Finding:
    """Return a finding as a consequence of the one with the code `cause` in the same target."""
    return dataclasses.replace(
        finding,
        remedy=Remedy(f"This follows from {cause}: correct that first.", refers=True),
        evidence={**finding.evidence, _FOLLOWS: cause},
    )


def cause_of(finding: Finding) -> str | None:
    """Return the code of what a finding follows from; None for what has a cause of its own."""
    cause = finding.evidence.get(_FOLLOWS)
    return cause if isinstance(cause, str) else None
