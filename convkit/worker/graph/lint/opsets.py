"""Opset imports, and operators that exist in them."""

import difflib
from collections import defaultdict
from pathlib import Path

import onnx

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.lint.graph_nodes import all_nodes, name_of, title

_STANDARD = ("", "ai.onnx")
# Domains that have a single version, which onnxruntime assumes if a file does not import them. Its
# own optimizer writes such files.
_ASSUMED = {"com.microsoft": 1, "com.microsoft.nchwc": 1}
# Operators that early releases of ONNX had as experiments. No opset defines them any more, but
# onnxruntime still runs them in files of an opset before 10
# (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
_EXPERIMENTS = frozenset(
    {
        *("Affine", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler"),
        *("ParametricSoftplus", "Scale", "ScaledTanh"),
    }
)
_EXPERIMENTS_END = 10
# Operators that onnxruntime has in ONNX's domain in every opset, also where ONNX has none: its
# optimizer writes the first two, and the others began as experiments. A test compares both sets
# with what onnxruntime registers.
_OF_ONNXRUNTIME = frozenset(
    {
        *("LayerNormalization", "SimplifiedLayerNormalization"),
        *("MeanVarianceNormalization", "ThresholdedRelu"),
    }
)
# How alike an operator's name and a misspelling of it are: Rleu and Relu, but not RequantShift and
# BitShift.
_ALIKE = 0.75


def check(model: onnx.ModelProto, path: Path) -> list[Finding]:
    """Return E232 if a domain is imported in two versions, or is used but not imported and no
    runtime assumes its version.
    """
    versions: dict[str, list[int]] = defaultdict(list)
    for entry in model.opset_import:
        versions["" if entry.domain in _STANDARD else entry.domain].append(entry.version)
    findings = []
    for domain, found in versions.items():
        if len(set(found)) > 1:
            findings.append(
                _imports(
                    f"{path.name} imports the operator set {domain or 'ai.onnx'!r} {len(found)}"
                    f" times, in versions {', '.join(map(str, found))}: which one its operators"
                    " follow is undefined",
                    "Keep one entry of opset_import for each domain: the version that the file was"
                    " exported with.",
                    domain,
                )
            )
        elif not found[0] > 0:
            findings.append(
                _imports(
                    f"{path.name} imports the operator set {domain or 'ai.onnx'!r} in version"
                    f" {found[0]}, which does not exist",
                    "Set the version that the file was exported with.",
                    domain,
                )
            )
    functions = {function.domain for function in model.functions}
    missing: dict[str, onnx.NodeProto] = {}
    for node in all_nodes(model.graph):
        domain = "" if node.domain in _STANDARD else node.domain
        if domain not in versions and domain not in functions and domain not in _ASSUMED:
            missing.setdefault(domain, node)
    findings += [_missing(path, domain, node) for domain, node in missing.items()]
    return findings


def import_assumed(model: onnx.ModelProto) -> None:
    """Add the imports that onnxruntime assumes, in place: other tools do not.

    A file whose operators are all of other domains gets ONNX's own, too, in the newest version that
    its IR came with: what convkit adds to a graph, such as a Cast, is of that domain.
    """
    imported = {entry.domain for entry in model.opset_import}
    used = {node.domain for node in all_nodes(model.graph)}
    if imported and not (imported | used) & set(_STANDARD):
        model.opset_import.append(onnx.helper.make_opsetid("", _opset_of(model.ir_version)))
    for domain in sorted(used & set(_ASSUMED) - imported):
        model.opset_import.append(onnx.helper.make_opsetid(domain, _ASSUMED[domain]))


def _opset_of(ir_version: int) -> int:
    """Return the newest opset that was released with a version of the IR, or before it."""
    return max(opset for _, ir, opset, *_ in onnx.helper.VERSION_TABLE if ir <= max(ir_version, 3))


def _missing(path: Path, domain: str, node: onnx.NodeProto) -> Finding:
    return Finding(
        "E232",
        f"{path.name} uses the operator set {domain or 'ai.onnx'!r} without importing it, first at"
        f" {title(node)}: no version says what its operators do",
        Place(node=name_of(node), tensor=None),
        {"domain": domain},
        Remedy("Add the domain to opset_import, in the version that the file was exported with."),
    )


def _imports(message: str, remedy: str, domain: str) -> Finding:
    return Finding(
        "E232", message, Place(source="opset_import"), {"domain": domain}, Remedy(remedy)
    )


def check_operators(model: onnx.ModelProto, path: Path) -> list[Finding]:  # noqa: ARG001
    """Return E233 for each standard operator that the imported opset does not have, and that no
    runtime runs regardless.
    """
    version = next((each.version for each in model.opset_import if each.domain in _STANDARD), None)
    if version is None or version > onnx.defs.onnx_opset_version():
        return []  # V101 reports that the opset is too new
    functions = {(function.domain, function.name) for function in model.functions}
    found: dict[str, onnx.NodeProto] = {}
    for node in all_nodes(model.graph):
        if node.op_type in _OF_ONNXRUNTIME or (
            node.op_type in _EXPERIMENTS and version < _EXPERIMENTS_END
        ):
            continue
        own = (node.domain, node.op_type) in functions
        if node.domain in _STANDARD and not own and not _has(version, node.op_type):
            found.setdefault(node.op_type, node)
    return [_unknown(node, version) for node in found.values()]


def move_extensions(model: onnx.ModelProto) -> None:
    """Move the operators that onnxruntime has in ONNX's domain, and the standard does not, to
    onnxruntime's own, in place: ONNX's checker leaves that to it.
    """
    version = next((each.version for each in model.opset_import if each.domain in _STANDARD), None)
    if version is None or version > onnx.defs.onnx_opset_version():
        return
    for node in all_nodes(model.graph):
        if (
            node.domain in _STANDARD
            and node.op_type in _OF_ONNXRUNTIME
            and not _has(version, node.op_type)
        ):
            node.domain = "com.microsoft"


def _has(version: int, operator: str) -> bool:
    """Return whether the standard has an operator in an opset."""
    return bool(onnx.defs.has(operator, version, ""))


def _unknown(node: onnx.NodeProto, version: int) -> Finding:
    since = sorted(
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == node.op_type and schema.domain == ""
    )
    names = {each.name for each in onnx.defs.get_all_schemas() if each.domain == ""}
    if since:
        why = f"ONNX has it from opset {since[0]} on"
        remedy = f"Export with opset {since[0]} or newer."
    elif near := difflib.get_close_matches(node.op_type, names, 1, _ALIKE):
        why = f"ONNX has no operator of that name; perhaps {near[0]!r} was meant"
        remedy = (
            f"If {near[0]} was meant, write that. Otherwise give the node the domain of the library"
            " that defines it, or export without it."
        )
    else:
        why = "ONNX has no operator of that name"
        remedy = "Give the node the domain of the library that defines it."
    return Finding(
        "E233",
        f"{title(node)} does not exist in opset {version}: {why}",
        Place(node=name_of(node)),
        {"operator": node.op_type, "opset": version},
        Remedy(remedy),
    )
