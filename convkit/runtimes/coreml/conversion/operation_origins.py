"""Maps operations of a traced program to the model: operator, module and source line."""

import dataclasses
import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.original.source_lines import source_line

# torch's placeholder for nodes created by its own rewriting.
_NO_MODULE = "_empty_nn_module_stack"
# How coremltools names an operation in a message.
_NAMED = re.compile(r'(?:Layer|op|node) "(?P<name>\w+)"')
_MOST_SHOWN = 5


def origin_of(node: Any, wrapper: str, root: str | None) -> OperationOrigin:  # noqa: ANN401 - a torch.fx Node
    """Return a node's origin.

    `wrapper` is the attribute of the exported module that contains the model, omitted from the
    path; `root` is the folder of the model's own source files.
    """
    operator = (
        node.target.name()
        if hasattr(node.target, "name")
        else getattr(node.target, "__name__", str(node.target))
    )
    source = source_line(str(node.meta.get("stack_trace") or ""), root)
    return OperationOrigin(str(node.name), operator, module_of(node, wrapper), source)


def module_of(node: Any, wrapper: str) -> str:  # noqa: ANN401
    """Return the path of the module that a node was traced in; "" for the root."""
    stack = node.meta.get("nn_module_stack") or {}
    deepest = str(next(reversed(stack.values()))[0]) if stack else ""
    return "" if deepest.startswith(_NO_MODULE) else below(wrapper, deepest)


def below(wrapper: str, path: str) -> str:
    """Return a module's path without the part that belongs to the wrapper."""
    return path.removeprefix("L['self'].").removeprefix(wrapper).removeprefix(".")


def untranslated(origins: Sequence[OperationOrigin]) -> Finding:
    """Return V103 for nodes with operators that coremltools does not translate."""
    import coremltools as ct

    operators = dict.fromkeys(each.operator for each in origins)
    shown = "; ".join(str(each) for each in origins[:_MOST_SHOWN])
    more = f" and {len(origins) - _MOST_SHOWN} more" if len(origins) > _MOST_SHOWN else ""
    return _unsupported(
        origins,
        f"coremltools {ct.__version__} has no translation of {', '.join(operators)}, and torch does"
        f" not decompose it: {shown}{more}",
        Remedy(
            "Write the model without the operator, or use a release of coremltools that has it"
            " (tools.coremltools). Neither was tried."
        ),
    )


def too_high(origin: OperationOrigin) -> Finding:
    """Return V103 for a node with a tensor of more than five dimensions that no rule rewrites."""
    return _unsupported(
        [origin],
        f"Core ML has tensors of at most five dimensions, and {origin} has more",
        Remedy("Merge axes of the tensor that stay side by side, with reshape, before this line."),
    )


def complex_numbers(origin: OperationOrigin) -> Finding:
    """Return V103 for an operation on complex numbers that cannot be written on their parts."""
    return _unsupported(
        [origin],
        f"Core ML has no complex numbers, and {origin} has no counterpart on real and imaginary"
        " parts",
        Remedy(
            "Compute with real numbers: torch.view_as_real, a rotation by cos and sin in place of"
            " torch.polar, sums and products of real and imaginary parts. Not tried."
        ),
    )


def refused(origin: OperationOrigin, message: str) -> Finding:
    """Return V103 for a node whose operator coremltools does not translate with its arguments."""
    if "bfloat16" in message:
        return _unsupported(
            [origin],
            message,
            Remedy(
                "Load the model in float32: Core ML has no bfloat16.", {"model.dtype": "float32"}
            ),
        )
    return _unsupported(
        [origin],
        message,
        Remedy(
            "Write this line of the model with other operations or arguments, or use a different"
            " release of coremltools (tools.coremltools). convkit has tried neither."
        ),
    )


def _unsupported(origins: Sequence[OperationOrigin], message: str, remedy: Remedy) -> Finding:
    first = origins[0]
    return Finding(
        "V103",
        message,
        Place(node=first.name, module=first.module or None, source=first.source or None),
        {
            "operators": list(dict.fromkeys(each.operator for each in origins)),
            "nodes": [dataclasses.asdict(each) for each in origins],
            "owner": "converter",
        },
        remedy,
    )


def failed_node(error: BaseException, names: Mapping[str, Any]) -> Any | None:  # noqa: ANN401
    """Return the node, from a mapping by name, on which coremltools failed; None if unknown.

    Its message may name the node. If not, it is an argument of the translating function.
    """
    if (named := _NAMED.search(str(error))) is not None:
        # A translation of several operations names them after the node: `index_1_transpose`.
        said = named["name"]
        nodes = [each for each in names if said == each or said.startswith(f"{each}_")]
        if nodes:
            return names[max(nodes, key=len)]
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = getattr(frame.f_locals.get("node"), "name", None)
        if isinstance(name, str) and name in names:
            found = names[name]
    return found
