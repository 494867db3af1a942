"""Findings from probes: inputs swapped, merged or dead."""

import dataclasses
import itertools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from convkit.host.recipe.keys.recipe import Tolerance
from convkit.host.recipe.keys.tolerances import limits_of
from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ProbeChange, ProbeMetrics
from convkit.protocol.metrics.metric_registry import absolute_limit

# Without a limit on the absolute error, outputs count as equal within this fraction of how far a
# probe moves them.
_SHARE_OF_MOVEMENT = 0.01


def probe_findings(
    probes: Sequence[ProbeMetrics], tolerance: Tolerance, order: Sequence[str], *, step: float
) -> list[Finding]:
    """Return the contract findings that follow from probes. `order` is the recipe's input order;
    `step`, how far apart the numbers of the type are in which the target computes, in parts of an
    output's size: it rounds smaller effects away. Zero for float32.

    Merged inputs explain why one of them is dead, so the dead one is not reported twice.
    """
    findings: list[Finding] = []
    explained: set[str] = set()
    for probe in probes:
        if probe.change is None or probe.change.kind == "perturbed":
            continue
        first, second = probe.change.tensors
        limit = _limit(probe, tolerance)
        # None: the built model failed on the base case, which the original accepts.
        if probe.base_error is not None and probe.base_error <= limit:
            continue
        match probe.change.kind:
            case "merged":
                if _within(probe.matches_probe, limit) and _beyond(probe, limit):
                    findings.append(_merged(first, second, probe))
                    explained |= {first, second}
            case "crossed":
                if _within(probe.matches_base, limit):
                    findings.append(_crossed(first, second, probe, order))
                    explained |= {first, second}
            case "outputs":
                if _within(probe.matches_base, limit) and _beyond(probe, limit):
                    findings.append(_exchanged_outputs(first, second, probe))
    moving = [
        probe
        for probe in probes
        if step == 0
        or (
            _beyond(probe, _limit(probe, tolerance))
            and (probe.moved_share is None or not probe.moved_share <= step)
        )
    ]
    return [*findings, *_dead_inputs(moving, explained)]


def _dead_inputs(probes: Sequence[ProbeMetrics], explained: AbstractSet[str]) -> list[Finding]:
    """Return C108 for inputs that move the original's outputs, and not the model's."""
    perturbed = [
        probe for probe in probes if probe.change is not None and probe.change.kind == "perturbed"
    ]
    # Where no input has an effect, it is the outputs that are constant.
    constant = all(probe.moved_candidate == 0.0 for probe in perturbed)
    findings = []
    for probe in perturbed:
        assert probe.change is not None
        [name] = probe.change.tensors
        moved = (probe.moved_reference or 0.0) > 0.0
        if moved and probe.moved_candidate == 0.0 and name not in explained:
            findings.append(_dead(name, probe, constant=constant))
    return findings


def with_changes(probes: Sequence[ProbeMetrics], contract: Contract) -> tuple[ProbeMetrics, ...]:
    """Return the probes of a record. Older releases recorded only their names, from which the
    change is derived.
    """
    inputs = [spec.name for spec in contract.inputs]
    outputs = [spec.name for spec in contract.outputs]
    changes = [
        *(ProbeChange("perturbed", (name,)) for name in inputs),
        *(ProbeChange("crossed", pair) for pair in itertools.permutations(inputs, 2)),
        *(ProbeChange("merged", pair) for pair in itertools.permutations(inputs, 2)),
        *(ProbeChange("outputs", pair) for pair in itertools.permutations(outputs, 2)),
    ]
    named = {change.name: change for change in changes}
    return tuple(
        dataclasses.replace(probe, change=probe.change or named.get(probe.probe))
        for probe in probes
    )


def _limit(probe: ProbeMetrics, tolerance: Tolerance) -> float:
    """Return the largest absolute difference at which two sets of outputs count as equal."""
    limit = absolute_limit(limits_of(tolerance))
    return _SHARE_OF_MOVEMENT * (probe.moved_reference or 0.0) if limit is None else limit


def _within(value: float | None, limit: float) -> bool:
    return value is not None and value <= limit


def _beyond(probe: ProbeMetrics, limit: float) -> bool:
    """Return whether the probe moves the original's outputs far enough to be conclusive."""
    return probe.moved_reference is not None and probe.moved_reference > limit


def _evidence(probe: ProbeMetrics) -> dict[str, Json]:
    return {
        "proven": True,
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
        f"{first!r} and {second!r} are swapped: as declared, {_as_declared(probe)}; with the two"
        f" swapped, outputs differ by {probe.matches_base:.3g}. Declared order:"
        f" {', '.join(order)}. The model behaves as: {', '.join(exchanged)}",
        Place(tensor=first),
        _evidence(probe),
        Remedy(f"Swap the names {first!r} and {second!r} where the model is exported."),
    )


def _exchanged_outputs(first: str, second: str, probe: ProbeMetrics) -> Finding:
    return Finding(
        "C208",
        f"outputs {first!r} and {second!r} are swapped: each differs by {probe.base_error:.3g}"
        f" from its own original, and by {probe.matches_base:.3g} from the other's",
        Place(tensor=first),
        _evidence(probe),
        Remedy(f"Swap the names {first!r} and {second!r} where the model is exported."),
    )


def _merged(first: str, second: str, probe: ProbeMetrics) -> Finding:
    return Finding(
        "C109",
        f"{first!r} and {second!r} were merged: the model uses {first!r} for {second!r} as well"
        f" (outputs differ from that by {probe.matches_probe:.3g}; {_as_declared(probe)} from the"
        " original)",
        Place(tensor=second),
        _evidence(probe),
        Remedy("Export again with a separate tensor, with different values, for each input."),
    )


def _dead(name: str, probe: ProbeMetrics, *, constant: bool) -> Finding:
    return Finding(
        "C108",
        f"{name!r} has no effect: changing it changes the original's outputs by"
        f" {probe.moved_reference:.3g}, and the converted model's not at all"
        + (": its outputs are the same for every input" if constant else ""),
        Place(tensor=name),
        {
            "moved_reference": probe.moved_reference,
            "moved_candidate": probe.moved_candidate,
            "constant_outputs": constant,
        },
        Remedy(
            f"Check how the exporter traced {name!r}: values computed from it at export time"
            " became constants."
        ),
    )
