"""Takes a quantized target's results apart by families of processors, one verdict for each."""

import dataclasses
from collections.abc import Collection, Sequence

from convkit.host.record.run_record import Verification
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import PRODUCT_FAMILIES, ProductFamily, VerifyResult


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


def with_unknown(verification: Verification, measured: VerifyResult) -> Verification:
    """Return a simulated family's verdict, which proves nothing if the saturation of some nodes
    cannot be computed: a success is `skipped` then.
    """
    other = {each.family: each.unknown for each in measured.families}
    unknown = other.get(verification.family or "exact", ())
    saturates = verification.family == "saturating-pairs"
    if not (saturates and unknown and verification.status == "verified"):
        return verification
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    headline = (
        f"how {unknown[0]!r}{more} saturates cannot be computed here: run this on x86 with AVX2 and"
        f" without VNNI, or write processors: exact. With exact products: {verification.headline}"
    )
    return dataclasses.replace(verification, status="skipped", headline=headline)


def of_family(
    findings: Sequence[Finding], family: ProductFamily | None, *, gets_the_rest: bool
) -> list[Finding]:
    """Return a verify stage's findings that concern one family's result: those that name it, and,
    for one of the results, those that name none.
    """
    if family is None:
        return list(findings)
    rest = family if gets_the_rest else None
    return [finding for finding in findings if finding.evidence.get("family", rest) == family]
