"""Findings from probes: inputs exchanged, merged or dead."""

from collections.abc import Sequence

from convkit.findings.model import Finding, Place, Remedy
from convkit.recipe.models import Tolerance
from convkit.worker.protocol import ProbeMetrics

# Without a limit on the absolute error, outputs count as equal within this fraction of how far a
# probe moves them.
_SHARE_OF_MOVEMENT = 0.01


def probe_findings(
    probes: Sequence[ProbeMetrics], tolerance: Tolerance, order: Sequence[str]
) -> list[Finding]:
    """Return the contract findings that follow from probes. `order` is the recipe's input order.

    Merged inputs explain why one of them is dead, so the dead one is not reported twice.
    """
    findings: list[Finding] = []
    explained: set[str] = set()
    for probe in probes:
        kind, _, names = probe.probe.partition(":")
        first, _, second = names.partition(":")
        limit = _limit(probe, tolerance)
        # None: the built model failed on the base case, which the original accepts.
        parity_fails = probe.base_error is None or not probe.base_error <= limit
        if (
            kind == "merged"
            and parity_fails
            and _within(probe.matches_probe, limit)
            and _beyond(probe, limit)
        ):
            findings.append(_merged(first, second, probe))
            explained |= {first, second}
        elif kind == "crossed" and parity_fails and _within(probe.matches_base, limit):
            findings.append(_crossed(first, second, probe, order))
            explained |= {first, second}
        elif (
            kind == "outputs"
            and parity_fails
            and _within(probe.matches_base, limit)
            and _beyond(probe, limit)
        ):
            findings.append(_exchanged_outputs(first, second, probe))
    for probe in probes:
        kind, _, name = probe.probe.partition(":")
        moved = (probe.moved_reference or 0.0) > 0.0
        if kind == "perturbed" and moved and probe.moved_candidate == 0.0 and name not in explained:
            findings.append(_dead(name, probe))
    return findings


def _limit(probe: ProbeMetrics, tolerance: Tolerance) -> float:
    """Return the largest absolute difference under which two sets of outputs count as the same."""
    for given in (tolerance.max_abs, tolerance.atol):
        if given is not None:
            return given
    return _SHARE_OF_MOVEMENT * (probe.moved_reference or 0.0)


def _within(value: float | None, limit: float) -> bool:
    return value is not None and value <= limit


def _beyond(probe: ProbeMetrics, limit: float) -> bool:
    """Return whether the probe moves the original's outputs far enough to be conclusive."""
    return probe.moved_reference is not None and probe.moved_reference > limit


def _evidence(probe: ProbeMetrics) -> dict[str, float | None]:
    return {
        "parity_as_declared": probe.base_error,
        "matches_base": probe.matches_base,
        "matches_probe": probe.matches_probe,
    }


def _as_declared(probe: ProbeMetrics) -> str:
    return (
        "the model refuses to run"
        if probe.base_error is None
        else f"they differ by {probe.base_error:.3g}"
    )


def _crossed(first: str, second: str, probe: ProbeMetrics, order: Sequence[str]) -> Finding:
    exchanged = [second if name == first else first if name == second else name for name in order]
    return Finding(
        "C110",
        f"{first!r} and {second!r} are exchanged: as declared {_as_declared(probe)}; outputs differ"
        f" by {probe.matches_base:.3g} with the two crossed; declared order: {', '.join(order)};"
        f" the model acts as: {', '.join(exchanged)}",
        Place(tensor=first),
        _evidence(probe),
        Remedy(f"Exchange the names {first!r} and {second!r} where the model is exported."),
    )


def _exchanged_outputs(first: str, second: str, probe: ProbeMetrics) -> Finding:
    return Finding(
        "C208",
        f"outputs {first!r} and {second!r} are exchanged: each differs by {probe.base_error:.3g}"
        f" from its own original and by {probe.matches_base:.3g} from the other's",
        Place(tensor=first),
        _evidence(probe),
        Remedy(f"Exchange the names {first!r} and {second!r} where the model is exported."),
    )


def _merged(first: str, second: str, probe: ProbeMetrics) -> Finding:
    return Finding(
        "C109",
        f"{first!r} and {second!r} were merged: the model takes the values of {first!r} for"
        f" {second!r} (outputs differ from that by {probe.matches_probe:.3g}; {_as_declared(probe)}"
        " from the original)",
        Place(tensor=second),
        _evidence(probe),
        Remedy("Export again with a tensor of its own, with values of its own, for each input."),
    )


def _dead(name: str, probe: ProbeMetrics) -> Finding:
    return Finding(
        "C108",
        f"{name!r} has no influence: other values move the original's outputs by"
        f" {probe.moved_reference:.3g} and the converted model's not at all",
        Place(tensor=name),
        {"moved_reference": probe.moved_reference, "moved_candidate": probe.moved_candidate},
        Remedy(
            f"Look at how the exporter traced {name!r}: values computed from it at export time"
            " became constants."
        ),
    )
