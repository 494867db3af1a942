"""Explains a low-precision target that misses its limits although nothing overflows: which values'
rounding makes the difference.
"""

import math
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import RoundingRequest, RoundingResult, low_type_of
from convkit.protocol.metrics.number_text import distinct_texts
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.cases.compared_cases import JudgedCase, single_case
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.graph.typed_graph import UntypedValueError
from convkit.worker.job_context import Context
from convkit.worker.precision.diagnosis.low_precision_remedies import PrecisionRemedies, in_module
from convkit.worker.precision.diagnosis.rounding_reasons import reason
from convkit.worker.precision.diagnosis.rounding_shares import (
    RoundingCause,
    copies_of,
    readers,
    rounding_cause,
)
from convkit.worker.precision.search_judgment import compared, overshoot_in
from convkit.worker.precision.simulation.float32_graph import load_float32
from convkit.worker.precision.simulation.switched_rounding import SwitchedValues
from convkit.worker.precision.tensor_statistics import open_session


def run(request: RoundingRequest, context: Context) -> tuple[RoundingResult, list[Finding]]:
    """Find the values whose rounding costs most in a case (N214), if a few stand out."""
    path = find_model(Path(request.exported), EXPORTED_FILE)
    precision = request.precision
    try:
        model, _ = load_float32(path, precision.default)
    except UntypedValueError:
        return RoundingResult(None), []
    case = single_case(
        Path(request.reference), request.contract, request.case, low_type_of(precision)
    )
    context.progress(f"switching {precision.default}'s rounding value by value: {request.case}")
    with SwitchedValues(model, precision) as switched:

        def share(low: Collection[str]) -> float:
            return overshoot_in(case, compared(case, switched.run(case.feeds, low)), request.limits)

        exact = share(())
        cause = rounding_cause(model, switched.modules, share) if exact <= 1 else None
        modules = list(dict.fromkeys(m for each in switched.modules.values() for m in sorted(each)))
    result = RoundingResult(exact if math.isfinite(exact) else None)
    if cause is None:
        return result, []
    remedies = PrecisionRemedies(precision, modules)
    finding = _finding(request, model, case, cause, remedies)
    return result, [finding]


def _finding(
    request: RoundingRequest,
    model: ir.Model,
    case: JudgedCase,
    cause: RoundingCause,
    remedies: PrecisionRemedies,
) -> Finding:
    dtype = request.precision.default
    makers = {value.name: node for node in model.graph for value in node.outputs}
    paths = dict(nodes_with_modules(model))
    first = cause.values[0]
    node = makers.get(first)
    module = paths.get(node, "") if node is not None else ""
    named = [f"{first!r} ({node.op_type} {in_module(module)})" if node is not None else repr(first)]
    named += [repr(value) for value in cause.values[1:]]
    named = [
        f"{name} and {count} counterpart{'s' if count > 1 else ''} in other layers"
        if count
        else name
        for name, count in zip(named, cause.counterparts, strict=True)
    ]
    these = "these values" if len(named) > 1 or any(cause.counterparts) else "this value"
    before, after = distinct_texts(cause.before, cause.after)
    message = (
        f"rounding {_listed(named)} to {dtype} causes most of the error in case {request.case!r}:"
        f" it is {before} times the limit, and {after} times with {these} in float32"
    )
    if why := _reason(model, case, first, request):
        message += f"; {why}"
    return Finding(
        "N214",
        message,
        Place(
            first,
            (node.name or None) if node is not None else None,
            module or None,
            (node.metadata_props.get(SOURCE_KEY) or None) if node is not None else None,
            request.case,
        ),
        {
            "kind": "low precision",
            "proven": True,
            "values": list(cause.values),
            "before": cause.before,
            "after": cause.after,
            "error_in": "limit",
            "with_modules_in_float32": cause.after_kept,
        },
        remedies.keep(cause.kept) if cause.after_kept <= 1 else None,
    )


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    comma = "," if any(" and " in name for name in names) else ""
    return f"{', '.join(names[:-1])}{comma} and {names[-1]}"


def _reason(model: ir.Model, case: JudgedCase, value: str, request: RoundingRequest) -> str:
    names = copies_of(model, value)
    read_by = readers(model, names)
    wanted = [*names, *(made.name or "" for node in read_by for made in node.outputs)]
    values = _values(model, wanted, case.feeds)
    is_output = any(output.name in names for output in model.graph.outputs)
    return reason(names, read_by, values, request.precision.default, is_output=is_output)


def _values(
    model: ir.Model, names: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return values of a float32 graph; constants and inputs as they are."""
    constants = {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if name in names and value.const_value is not None
    }
    known = {**{name: feeds[name] for name in names if name in feeds}, **constants}
    shown = model.clone()
    made = {value.name or "": value for node in shown.graph for value in node.outputs}
    wanted = [name for name in dict.fromkeys(names) if name in made]
    if not wanted:
        return known
    shown.graph.outputs.clear()
    shown.graph.outputs.extend(made[name] for name in wanted)
    with tempfile.TemporaryDirectory(prefix="convkit-values-") as folder:
        path = Path(folder) / "values.onnx"
        save_model(shown, path)
        session = open_session(path, None, None)
        return known | dict(zip(wanted, run_outputs(session, wanted, feeds), strict=True))
