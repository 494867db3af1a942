"""Converts the results of a search to findings: cause and place, then proof and remedy."""

import dataclasses
import math

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.cause.place.whole_number_forms import LINE
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis

# From this fraction of the error, a cause is described by its effect on the outputs.
_MOST = 0.5
_REMEDIES: dict[str, str] = {
    "N403": (
        "Make the file again from the weights that the original is loaded from, or write the"
        " original's values into this weight."
    ),
    "N404": "Put each of the swapped weights back in its own place, or make the file again.",
    "N405": "Correct the node as the message says, or fix the tool that wrote it.",
    "N406": "Add the missing operation or remove the extra one, in the graph or in the tool that "
    "wrote it.",
    "N407": "Connect the node as the message says, or fix the tool that rewrote the graph.",
    "N408": "Compare the node's inputs and attributes with the original's operation at this place.",
    "N409": "Start at this place and go upstream: compare what the graph and the original compute.",
    "Q108": (
        "Quantize again from the original's floats, with ranges of inputs like those that are"
        " served, or correct the number named."
    ),
    "Q109": ("Set the target's tolerance to what these bits can hold, or quantize fewer weights."),
    "C115": "Feed the input as the message says, or remove the step from the graph.",
    "C110": (
        "Exchange these names of the graph's inputs, or export again with input names in the order"
        " of the model's arguments."
    ),
    "C208": (
        "Exchange these names of the graph's outputs, or export again with output names in the"
        " order in which the model returns them."
    ),
    "C209": "Correct the graph's last nodes, or undo the change in the caller if possible.",
}
_OTHER_OPERATIONS = "Write this part of the model with other operations; convkit has not tried any."
_ALLOW = "Allow for this error in the tolerance, or write this part of the model otherwise."
# In parts of the values' rms: what rounding in float32 leaves at one place, however many products
# it adds up. A larger error is no rounding, and nothing to allow for.
_ROUNDING = 1e-4


def findings_of(diagnosis: Diagnosis, case: str) -> list[Finding]:
    """Return the causes as findings, the one that explains most of the error first. It says if the
    search ended before everything was explained.
    """
    found = [_finding(cause, diagnosis, case) for cause in diagnosis.causes]
    if diagnosis.seconds is not None and found:
        left = f"; the search ended after {diagnosis.seconds:g} s, so there may be further causes"
        found[0] = dataclasses.replace(found[0], message=found[0].message + left)
    return found


def _finding(cause: Cause, diagnosis: Diagnosis, case: str) -> Finding:
    code = _code(cause)
    proven = cause.kind != "unproven"
    place = Place(
        tensor=cause.tensor,
        node=cause.node,
        module=cause.module or None,
        source=cause.source,
        case=case,
    )
    evidence: dict[str, Json] = {
        "kind": cause.kind,
        "proven": proven,
        "share": round(cause.share, 4),
        "before": _figure(cause.before),
        "after": _figure(cause.after),
        "error_in": "rms",
        "remaining": _figure(diagnosis.remaining),
    }
    if cause.operation is not None:
        evidence["operation"] = cause.operation
    if cause.stands_for is not None:
        evidence["stands_for"] = cause.stands_for
    if cause.error is not None:
        evidence["error_here"] = _figure(cause.error)
    if cause.corrected is not None:
        evidence["error_here_corrected"] = _figure(cause.corrected)
    if cause.values is not None:
        found, expected = cause.values
        evidence |= {"found": _figure(found), "original": _figure(expected)}
    if cause.growth:  # `chain` as numbers, for the report's plot
        evidence["growth"] = [[title, _figure(error)] for title, error in cause.growth]
    message = f"{cause.text}{_where(cause)}{_proof(cause)}"
    remedy = _of_kernels(cause) if cause.of_kernels else Remedy(_REMEDIES[code])
    if cause.of_kernels:
        evidence["owner"] = "kernel"
    if cause.instead is not None:
        evidence["instead"] = cause.instead
    return Finding(code, message, place, evidence, remedy, chain=_chain(cause))


def _of_kernels(cause: Cause) -> Remedy:
    """Return what helps against a kernel that is off: an error is allowed for if it is rounding."""
    if cause.instead is not None:
        return instead_of(cause.instead)
    rounds = cause.error is not None and cause.error <= _ROUNDING
    return Remedy(_ALLOW if rounds else _OTHER_OPERATIONS)


def instead_of(code: str) -> Remedy:
    """Return the advice to write a place with other operations that were tried on its values: other
    forms and guards against lost NaN in the runtime itself, indices by numpy.
    """
    tried = "convkit tried it on this case's values, and it gives the original's"
    if code.startswith(LINE):
        return Remedy(f"{code}. {tried}.", proven=True)
    if "index_select" not in code:
        return Remedy(f"Behind this line, write {code}. {tried}.", proven=True)
    return Remedy(
        f"Write this line by indexing: {code}. {tried} exactly; take the sizes from your own code.",
        proven=True,
    )


def _code(cause: Cause) -> str:
    if cause.boundary == "input":
        return "C115"
    if cause.boundary == "output":
        return "C209"
    match cause.kind:
        case "weight" | "checkpoint":
            return "N403"
        case "exchanged":
            return "N404"
        case "attribute" | "operator" | "constant":
            return "N405"
        case "extra" | "missing":
            return "N406"
        case "wiring" | "operands" | "order":
            return "N407"
        case "inputs":
            return "C110"
        case "outputs":
            return "C208"
        case "quantized":
            return "Q108"
        case "rounding":
            return "Q109"
        case "place":
            return "N408"
        case "unproven":
            return "N409"


def _where(cause: Cause) -> str:
    parts = [
        f"module {cause.module}" if cause.module else "",
        f"the original's {cause.operation}" if cause.operation else "",
        f"at {cause.source}" if cause.source else "",
    ]
    details = ", ".join(part for part in parts if part)
    return f" ({details})" if details else ""


def _proof(cause: Cause) -> str:
    """Describe the result of the counterfactual, relative to the outputs' RMS."""
    if cause.kind == "unproven":
        return "; the likeliest place, not proven"
    how = (
        "with the original's value here"
        if cause.kind == "place"
        else "with the original's values"
        if cause.kind in ("weight", "exchanged", "checkpoint", "quantized", "rounding")
        else "with that changed"
    )
    if cause.restored == 1 and not cause.share > _MOST:
        return f"; {how}, and the other faults corrected as well, the outputs are right"
    if cause.restored and not cause.share > _MOST:
        return (
            f"; {how} {cause.restored} values after it are the original's again, up to another"
            " fault"
        )
    one = cause.output is not None
    what = f"output {cause.output!r}" if one else "the outputs"
    off = f"{'is' if one else 'are'} off by {cause.before:.2g} of {'its' if one else 'their'} rms"
    before = "cannot be computed" if math.isinf(cause.before) else off
    return f"; {what} {before} now, and by {cause.after:.2g} {how}"


def _chain(cause: Cause) -> tuple[str, ...]:
    return tuple(
        f"{title}: off by {error:.2g} of its rms"
        if math.isfinite(error)
        else f"{title}: not comparable"
        for title, error in cause.growth
    )


def _figure(value: float) -> float | str:
    """Return a number that JSON can represent."""
    return value if math.isfinite(value) else str(value)
