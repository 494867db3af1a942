"""A torch module as torch.export's program, with the operators that coreai-torch converts."""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.runtimes.coreai.recurrent_loops import recurrent_loops
from convkit.worker.building.distinct_outputs import copy_shared_outputs
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.exporters.decompositions import decomposition_table
from convkit.worker.exporters.decompositions.complex_pairs import concerns_complex, without_complex
from convkit.worker.exporters.decompositions.graph_rewriting import UnrewrittenError
from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions
from convkit.worker.exporters.deferred_guards import drop_assertions
from convkit.worker.exporters.dynamic_trace import trace
from convkit.worker.exporters.export_job import WRAPPER, UnexportableError
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.source_lines import source_line

Module = Any  # a module with a contract: the model's own, or one with states

# torch's placeholder for nodes created by its own rewriting.
_NO_MODULE = "_empty_nn_module_stack"
_MOST_ROUNDS = 4
_ARITHMETIC = frozenset({"add", "sub", "mul", "div"})
_MOST_SHOWN = 5


def origin_of(node: Node, root: str | None) -> OperationOrigin:
    """Return a node's origin; `root` is the folder of the model's own source files."""
    source = source_line(str(node.meta.get("stack_trace") or ""), root)
    return OperationOrigin(node.name, operator_name(node), module_of(node), source)


def operator_name(node: Node) -> str:
    """Return torch's name of a node's operator, without namespace and overload: `softmax`."""
    target = node.target
    packet = getattr(target, "overloadpacket", None)
    return str(getattr(packet or target, "__name__", target))


def module_of(node: Node) -> str:
    """Return the path of the module that a node was traced in; "" for the root."""
    stack = node.meta.get("nn_module_stack") or {}
    deepest = str(next(reversed(stack.values()))[0]) if stack else ""
    if deepest.startswith(_NO_MODULE):
        return ""
    return deepest.removeprefix("L['self'].").removeprefix(WRAPPER).removeprefix(".")


def computed_nodes(program: ExportedProgram) -> Iterator[Node]:
    """Yield the nodes that call operators, in order."""
    return (node for node in program.graph.nodes if node.op == "call_function")


def traced(
    module: Module,
    examples: Sequence[torch.Tensor],
    contract: Contract,
    root: str | None = None,
    decompose: Sequence[str] = (),
) -> ExportedProgram:
    """Trace a module; operators named in `decompose` become what torch defines them by.

    Raises UnexportableError for what torch cannot trace with the contract's axes (see `trace`), and
    with V103 for operators that neither coreai-torch nor torch knows how to write with others.
    """
    program = _traced(_with_distinct_outputs(module), examples, contract, root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own parts
        program = _decomposed(program, frozenset(decompose))
    drop_assertions(program)
    _whole_numbers_as_floats(program)
    _exact_numbers(program)
    unknown = [origin_of(node, root) for node in computed_nodes(program) if not is_known(node)]
    if unknown:
        raise UnexportableError([_unknown_operators(unknown)])
    return program


def _traced(
    module: Module, examples: Sequence[torch.Tensor], contract: Contract, root: str | None
) -> ExportedProgram:
    """Trace a module, with its recurrent layers as loops if they fix an axis otherwise."""
    try:
        return trace(module, examples, contract, root)
    except UnexportableError as error:
        if not any(each.evidence.get("recurrent") for each in error.findings):
            raise
        with recurrent_loops(module), contextlib.suppress(UnexportableError, StageFailedError):
            return trace(module, examples, contract, root)
        raise


def _whole_numbers_as_floats(program: ExportedProgram) -> None:
    """Convert whole numbers before arithmetic with fractions, as torch does: coreai-torch 0.4.3
    gives both float16's precision (-9.2103 times 3 was -27.625).
    """
    for node in list(computed_nodes(program)):
        made = node.meta.get("val")
        if operator_name(node) not in _ARITHMETIC or not isinstance(made, torch.Tensor):
            continue
        if not made.is_floating_point():
            continue
        for given in node.all_input_nodes:
            value = given.meta.get("val")
            if not isinstance(value, torch.Tensor) or value.is_floating_point():
                continue
            with program.graph.inserting_before(node):
                cast = program.graph.call_function(
                    torch.ops.aten._to_copy.default,  # noqa: SLF001 - the operator's name
                    (given,),
                    {"dtype": made.dtype},
                )
            cast.meta = {**node.meta, "val": value.to(made.dtype)}
            node.replace_input_with(given, cast)
    program.graph_module.recompile()


def _exact_numbers(program: ExportedProgram) -> None:
    """Write single numbers as filled tensors: coreai-torch 0.4.3 gives `scalar_tensor` float16's
    precision (pi / 2 was 1.5703125).
    """
    for node in computed_nodes(program):
        made = node.meta.get("val")
        if node.target is not torch.ops.aten.scalar_tensor.default or isinstance(
            node.args[0], Node
        ):
            continue
        if isinstance(made, torch.Tensor) and made.is_floating_point():
            node.target = torch.ops.aten.full.default
            node.args, node.kwargs = ([], node.args[0]), {"dtype": made.dtype}
    program.graph_module.recompile()


def _with_distinct_outputs(module: Module) -> Module:
    """Let a module return copies of inputs and of tensors that it returns twice: each output of a
    function has a name of its own.
    """
    if not getattr(module, "returns_distinct_outputs", False):
        module.register_forward_hook(copy_shared_outputs)
        module.returns_distinct_outputs = True
    return module


def _decomposed(program: ExportedProgram, chosen: frozenset[str]) -> ExportedProgram:
    from coreai_torch import get_decomp_table

    program = run_decompositions(program, {})
    program = decomposition_table.decomposed(program, is_known)
    wanted = {
        node.target: table[node.target]
        for table in (_every_decomposition(),)
        for node in computed_nodes(program)
        if operator_name(node) in chosen and node.target in table
    }
    # torch's own may be an operator that no converter knows.
    wanted |= decomposition_table.fitting(program, lambda node: operator_name(node) not in chosen)
    program = run_decompositions(program, {**get_decomp_table(), **wanted})
    for _ in range(_MOST_ROUNDS):
        table = _every_decomposition()
        unknown = {node.target for node in computed_nodes(program) if not is_known(node)}
        of_tensors = {each: how for each in unknown if (how := _with_tensor(each)) is not None}
        simpler = {each: table[each] for each in unknown if each in table} | of_tensors
        if not simpler:
            break
        program = run_decompositions(program, simpler)
    if any(concerns_complex(node) for node in computed_nodes(program)):
        try:
            program = run_decompositions(
                without_complex(program, keeps_transforms=False), get_decomp_table()
            )
        except UnrewrittenError:
            return program  # refused as it is, then
    return program


def _every_decomposition() -> Mapping[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table as everything

    # torch has no definition of these by ATen's other operators.
    own = {
        torch.ops.aten.isnan.default: _isnan,
        torch.ops.aten.var.correction: _var,
        torch.ops.aten.argmin.default: _argmin,
        torch.ops.aten.sort.default: _sort,
        torch.ops.aten.sort.stable: _stable_sort,
    }
    return {**everything, **torch.export.default_decompositions(), **own}


def _with_tensor(target: Any) -> Callable[..., Any] | None:  # noqa: ANN401 - an operator
    """Return an operator of a tensor and a number as that of two tensors, if only that is known;
    torch's own definitions of such are not of ATen's operators.
    """
    packet = getattr(target, "overloadpacket", None)
    if packet is None or getattr(target, "_overloadname", "") != "Scalar":
        return None
    if "Tensor" not in packet.overloads():
        return None
    operator = packet.Tensor
    if not _converts(operator):
        return None
    return lambda values, number: operator(values, torch.full((), number, dtype=values.dtype))


def _isnan(values: torch.Tensor) -> torch.Tensor:
    return torch.ne(values, values)


def _var(
    values: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> torch.Tensor:
    dims = list(dim) if dim else list(range(values.dim()))
    apart = values - torch.mean(values, dims, keepdim=True)
    count = math.prod(values.shape[each] for each in dims)
    free = count - (1 if correction is None else correction)
    factor = math.nan if isinstance(count, int) and free <= 0 else count / free
    return torch.mean(apart * apart, dims, keepdim=keepdim) * factor


def _argmin(values: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:  # noqa: FBT001, FBT002 - as ATen declares it
    signed = values if values.is_floating_point() else values.to(torch.int64)
    return torch.argmax(-signed, dim, keepdim)


def _sort(values: torch.Tensor, dim: int = -1, descending: bool = False) -> object:  # noqa: FBT001, FBT002 - as ATen declares it
    """All of the largest elements: Core AI sorts for those of a number that is known."""
    size = values.shape[dim] if values.dim() else 1
    if not isinstance(size, int):
        return NotImplemented
    return torch.topk(values, size, dim, largest=descending)


def _stable_sort(
    values: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> object:
    del stable  # equal elements may be in another order, which the verification sees
    return _sort(values, dim, descending)


def has_definition(node: Node) -> bool:
    """Say whether an operator can be written with simpler ones: as torch defines it, or convkit."""
    return node.target in {**_every_decomposition(), **decomposition_table.decompositions()}


def is_decomposable(name: str) -> bool:
    """Say whether torch defines an operator, by its name without overload, by others."""
    packets = (getattr(each, "overloadpacket", None) for each in _every_decomposition())
    return any(each is not None and each.__name__ == name for each in packets)


def is_known(node: Node) -> bool:
    """Say whether coreai-torch converts a node's operator."""
    return _converts(node.target) or _is_dropped(node)


def _converts(target: object) -> bool:
    from coreai_torch._aten_to_core import _aten_to_core_resolver

    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - torch's own type
        return True  # arithmetic on sizes, branches
    namespace, _, name = str(target).partition(".")
    if namespace == "aten":
        return name in _aten_to_core_resolver
    return namespace != "prims"


def _is_dropped(node: Node) -> bool:
    return "assert" in operator_name(node) or "sym_constrain" in operator_name(node)


def _unknown_operators(origins: Sequence[OperationOrigin]) -> Finding:
    import coreai_torch

    operators = list(dict.fromkeys(each.operator for each in origins))
    shown = "; ".join(str(each) for each in origins[:_MOST_SHOWN])
    more = f" and {len(origins) - _MOST_SHOWN} more" if len(origins) > _MOST_SHOWN else ""
    return Finding(
        "V103",
        f"coreai-torch {coreai_torch.__version__} does not convert {', '.join(operators)}, and"
        f" torch does not decompose it: {shown}{more}",
        origins[0].place(),
        {"operators": list(operators), "nodes": [dataclasses.asdict(each) for each in origins]},
        Remedy(
            "Write the model without the operator, or use a release of coreai-torch that converts"
            " it (tools.coreai-torch)."
        ),
    )
