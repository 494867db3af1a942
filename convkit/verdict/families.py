"""Takes a quantized target's results apart by families of processors, one verdict for each."""

import dataclasses
from collections.abc import Collection, Sequence

from convkit.findings.model import Finding
from convkit.worker.protocol import PRODUCT_FAMILIES, ProductFamily, VerifyResult


def in_families(
    measured: VerifyResult, wanted: Collection[ProductFamily]
) -> tuple[VerifyResult, ...]:
    """Return a result for each family that matters, in an order that is the same on every machine;
    the result itself if all processors compute the same.

    A simulated family has the ladder only: probes and invariance do not depend on it.
    """
    if measured.family is None:
        return (measured,)
    results = {measured.family: dataclasses.replace(measured, families=())}
    for other in measured.families:
        results[other.family] = dataclasses.replace(
            measured,
            evidence="simulated",
            cases=other.cases,
            omitted=other.omitted,
            probes=(),
            invariance=(),
            simulated=(),
            evaluation=other.evaluation,
            trials=(),
            greedy=(),
            packaged=(),
            results=(),
            family=other.family,
            families=(),
        )
    return tuple(
        results[family] for family in PRODUCT_FAMILIES if family in results and family in wanted
    )


def of_family(
    findings: Sequence[Finding], family: ProductFamily | None, *, is_own: bool
) -> list[Finding]:
    """Return a verify stage's findings that concern one family's result: those that name it, and
    for the family of the machine that ran the stage (`is_own`) those that name none.
    """
    if family is None:
        return list(findings)
    unnamed = family if is_own else None
    return [finding for finding in findings if finding.evidence.get("family", unnamed) == family]
