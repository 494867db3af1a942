"""Checks the number of rows that the original returns along an axis from data."""

from convkit.protocol.contract import Contract, DataAxis
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.case import Case, Feeds, sizes_text


def row_counts(axis: DataAxis, contract: Contract, outputs: Feeds, case: Case) -> Finding | None:
    """Return C207 if the outputs along a data axis differ in their number of rows, or have more
    than declared.
    """
    counts = {
        spec.name: outputs[spec.name].shape[spec.shape.index(axis.name)]
        for spec in contract.outputs
        if axis.name in spec.shape and outputs[spec.name].ndim == len(spec.shape)
    }
    if not counts:
        return None
    output, most = max(counts.items(), key=lambda each: each[1])
    where = f"of the original model on case {case.name!r} ({sizes_text(case.sizes)})"
    place = Place(tensor=output, case=case.name)
    evidence = {"counts": counts, "max": axis.max}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        return Finding(
            "C207",
            f"the outputs {where} share the axis {axis.name!r}, but {listed} along it",
            place,
            evidence,
            Remedy("Declare a separate axis for each number of rows."),
        )
    if most > axis.max:
        return Finding(
            "C207",
            f"output {output!r} {where} has {most} rows along {axis.name!r}; at most {axis.max}",
            place,
            evidence,
            Remedy(
                f"Set axes.{axis.name}.max to the most rows that the model can return.",
                {f"axes.{axis.name}.max": most},
            ),
        )
    return None
