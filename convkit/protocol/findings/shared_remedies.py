"""Remedies that several checks propose."""

from convkit.protocol.findings.finding import Remedy


def symbolic_shapes(axis: str) -> Remedy:
    """Return the remedy for an axis that an export has fixed."""
    return Remedy(
        f"Compute shapes in the model from tensor.shape, so that {axis!r} stays symbolic, and"
        " export again."
    )


def branch_in_the_graph(place: str) -> Remedy:
    """Return the remedy for a branch on sizes, at this line, of which a graph holds one side."""
    return Remedy(
        f"Write the branch at {place} with torch.cond or torch.where, or limit the axis to one side"
        " of it."
    )
