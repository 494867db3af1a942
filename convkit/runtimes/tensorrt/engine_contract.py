"""An engine's contract by name: it lists its tensors in its own order, which callers must not rely
on. Pure.
"""

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy


def arranged(declared: Contract, found: Contract) -> Contract:
    """Return an engine's tensors in the declared order; undeclared ones come last."""
    return Contract(
        _sorted(declared.inputs, found.inputs), _sorted(declared.outputs, found.outputs), ()
    )


def own_order(declared: Contract, found: Contract) -> list[Finding]:
    """Return C302, with both orders, if an engine lists its tensors in a different order than
    declared.
    """
    findings = []
    for side in ("inputs", "outputs"):
        wanted = [spec.name for spec in getattr(declared, side)]
        listed = [spec.name for spec in getattr(found, side)]
        if sorted(wanted) != sorted(listed) or wanted == listed:
            continue
        findings.append(
            Finding(
                "C302",
                f"the engine lists its {side} as {', '.join(listed)}; the contract's order is"
                f" {', '.join(wanted)}",
                Place(tensor=next(a for a, b in zip(wanted, listed, strict=True) if a != b)),
                {"declared": wanted, "engine": listed},
                Remedy(
                    "Bind by name. bindings.hpp and bindings.py beside the engine have the names."
                ),
            )
        )
    return findings


def _sorted(
    declared: tuple[TensorSpec, ...], found: tuple[TensorSpec, ...]
) -> tuple[TensorSpec, ...]:
    places = {spec.name: place for place, spec in enumerate(declared)}
    return tuple(sorted(found, key=lambda spec: places.get(spec.name, len(places))))
