"""A torch module as a program that coremltools can convert."""

import dataclasses
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.export.exported_program import default_decompositions

from convkit.mil.modules import ModuleOf, module_path
from convkit.models.exporters.dynamic_trace import innermost, trace
from convkit.models.exporters.job import UnexportableError
from convkit.runtimes.coreml.operators import is_known
from convkit.tensors import Contract
from convkit.worker.context import StageFailedError

# What torch writes for nodes that its own rewriting made.
_NO_MODULE = "_empty_nn_module_stack"
# Each round may bring forth operators that have to be decomposed in their turn.
_MOST_ROUNDS = 4


@dataclasses.dataclass(frozen=True)
class Traced:
    """What coremltools converts. `refusal` is why torch.export could not trace the module, where it
    had to be followed on an example instead: then whatever Python decided by values, and by sizes,
    is as it was there.
    """

    program: Any
    module_of: ModuleOf
    refusal: str | None = None


def traced(
    module: torch.nn.Module, examples: Sequence[torch.Tensor], contract: Contract, wrapper: str
) -> Traced:
    """Trace a module with torch.export, or else with torch.jit.trace.

    `wrapper` is the attribute under which the model lies in the module, left out of paths. Raises
    UnexportableError for axes that the model fixes or restricts, StageFailedError for what neither
    can trace.
    """
    try:
        program = decomposed(trace(module, examples, contract))
    except UnexportableError as refused:
        # torch.export writes recurrent layers out step by step, for the example's length only;
        # torch.jit.trace keeps them whole.
        if not any(isinstance(each, torch.nn.RNNBase) for each in module.modules()):
            raise
        return _followed(module, examples, wrapper, refused)
    except StageFailedError as refused:
        return _followed(module, examples, wrapper, refused)
    _refuse_unknown(program)
    paths = number_nodes(program, wrapper)
    return Traced(program, lambda operation: module_path(operation, paths))


def _followed(
    module: torch.nn.Module,
    examples: Sequence[torch.Tensor],
    wrapper: str,
    refused: StageFailedError,
) -> Traced:
    """Trace a module with torch.jit.trace, which follows it on an example."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch warns of each value that Python decides by
            script = torch.jit.trace(module, tuple(examples), check_trace=False, strict=False)
    except Exception as error:
        raise StageFailedError(f"{refused}; nor can torch.jit.trace: {innermost(error)}") from error
    known = {name for name, _ in module.named_modules()}
    return Traced(
        script,
        lambda operation: _below(wrapper, _deepest(module_path(operation), known)),
        str(refused),
    )


def _refuse_unknown(program: torch.export.ExportedProgram) -> None:
    """Raise StageFailedError where operators are left that coremltools lacks and torch does not
    decompose.
    """
    unknown = unknown_operators(program)
    if unknown:
        names = ", ".join(str(operator) for operator in unknown)
        raise StageFailedError(
            f"coremltools has no translation of {names}, and torch does not say what it is made of."
            " Write the model without it, or try another release of coremltools under tools."
        )


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program in which operators that coremltools lacks are made of others, where torch
    says how.

    Operators that it has are kept whole (a layer norm, an attention): that gives the better
    program.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own parts
        program = program.run_decompositions({})
        for _ in range(_MOST_ROUNDS):
            table = default_decompositions()
            chosen = {
                operator: table[operator]
                for operator in unknown_operators(program)
                if operator in table
            }
            if not chosen:
                break
            program = program.run_decompositions(chosen)
    return program


def unknown_operators(program: torch.export.ExportedProgram) -> dict[object, None]:
    """Return the operators of a program that coremltools has no translation for, in order."""
    return {
        node.target: None
        for node in program.graph.nodes
        if node.op == "call_function" and not is_known(node)
    }


def number_nodes(program: torch.export.ExportedProgram, wrapper: str) -> Mapping[int, str]:
    """Give each node a number, which coremltools hands on to its operations; return the module of
    each number.

    `wrapper` is the attribute under which the model lies in the exported module, left out of the
    paths.
    """
    paths = {}
    for number, node in enumerate(program.graph.nodes):
        node.meta["debug_handle"] = number
        stack = node.meta.get("nn_module_stack") or {}
        deepest = str(next(reversed(stack.values()))[0]) if stack else ""
        paths[number] = "" if deepest.startswith(_NO_MODULE) else _below(wrapper, deepest)
    return paths


def _deepest(path: str, known: Collection[str]) -> str:
    """Return the module that a TorchScript path lies in: its last part may be a parameter, or a
    value's number.
    """
    while path and path not in known:
        path = path.rpartition(".")[0]
    return path


def _below(wrapper: str, path: str) -> str:
    return path.removeprefix("L['self'].").removeprefix(wrapper).removeprefix(".")
