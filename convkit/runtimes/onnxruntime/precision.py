"""The precision stage of onnxruntime targets: what `keep_float32: auto` keeps is opened, too."""

import dataclasses
import tempfile
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import CrashRequest, LowPrecision, PrecisionRequest, PrecisionResult
from convkit.protocol.module_naming import in_words, without_covered
from convkit.runtimes.onnxruntime.crash import OpeningSearch
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.building.built_files import EXPORTED_FILE
from convkit.worker.job_context import Context
from convkit.worker.stages import graph_precision

_DECIDED = "N208"
# A larger graph takes minutes to open (see `graph_build.opens_slowly`).
_MOST_LOW_NODES = 10_000


def run(
    request: PrecisionRequest[OnnxRuntimeOptions], context: Context
) -> tuple[PrecisionResult, list[Finding]]:
    """Resolve a precision as for any graph. Where `auto` meets the tolerance and onnxruntime
    crashes on the result, or refuses it, modules are kept in float32 as well with which it opens.
    """
    result, findings = graph_precision.run(request, context)
    asked, found = request.precision, result.precision
    if not isinstance(asked, LowPrecision) or not isinstance(found, LowPrecision):
        return result, findings
    is_met = any(each.code == _DECIDED for each in findings)
    is_quick = sum(row.low for row in result.modules) <= _MOST_LOW_NODES
    if asked.keep_float32 != "auto" or request.device != "cpu" or not (is_met and is_quick):
        return result, findings
    context.progress("opening it in a process of its own", done=0.9)
    if not (kept := _kept_to_open(request, found, context)):
        return result, findings
    precision = found.keeping(tuple(without_covered((*found.patterns, *kept))))
    planned = dataclasses.replace(request, precision=precision)
    again, others = graph_precision.run(planned, context)
    findings = [_with_more(each, precision, kept) for each in findings if each.code == _DECIDED]
    return dataclasses.replace(again, rounds=result.rounds), findings + others


def _kept_to_open(
    request: PrecisionRequest[OnnxRuntimeOptions], found: LowPrecision, context: Context
) -> tuple[str, ...]:
    """Return the modules to keep besides; none if the model opens, or nothing was found to help."""
    assert request.exported is not None  # the search read it
    with tempfile.TemporaryDirectory(prefix="opening-", dir=context.output.parent) as folder:
        opening = CrashRequest(request.options, found, request.exported)
        search = OpeningSearch(opening, Path(folder) / EXPORTED_FILE)
        if (code := search.opened(search.file)) == 0:
            return ()
        search.refuses = code > 0
        context.progress("looking for what onnxruntime cannot open in low precision")
        search.find()
        return search.kept if search.is_avoided else ()


def _with_more(decided: Finding, precision: LowPrecision, kept: tuple[str, ...]) -> Finding:
    """Return the search's result with the modules that were added."""
    patterns: list[Json] = list(precision.patterns)
    written: dict[str, Json] = {"default": precision.default, "keep_float32": patterns}
    if precision.saturate:
        written["saturate"] = True
    assert decided.remedy is not None  # the search has written the precision there
    return dataclasses.replace(
        decided,
        message=f"{decided.message}; {in_words(kept)} in float32 as well, because onnxruntime does"
        " not open the model without",
        evidence={**decided.evidence, "keep_float32": patterns, "to_open": list(kept)},
        remedy=dataclasses.replace(decided.remedy, change={"target.precision": written}),
    )
