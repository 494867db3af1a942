"""A torch module as a program that coremltools can convert."""

import warnings
from collections.abc import Mapping

import torch
from torch.export.exported_program import default_decompositions

from convkit.worker.coreml.operators import is_known

# Each round may bring forth operators that have to be decomposed in their turn.
_MOST_ROUNDS = 4


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program in which operators that coremltools lacks are made of others, where torch says how.

    Operators that it has are kept whole (a layer norm, an attention): that gives the better program.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own parts
        program = program.run_decompositions({})
        for _ in range(_MOST_ROUNDS):
            table = default_decompositions()
            chosen = {operator: table[operator] for operator in unknown_operators(program) if operator in table}
            if not chosen:
                break
            program = program.run_decompositions(chosen)
    return program


def unknown_operators(program: torch.export.ExportedProgram) -> dict[object, None]:
    """Return the operators of a program that coremltools has no translation for, in order."""
    return {node.target: None for node in program.graph.nodes if node.op == "call_function" and not is_known(node)}


def number_nodes(program: torch.export.ExportedProgram, wrapper: str) -> Mapping[int, str]:
    """Give each node a number, which coremltools hands on to its operations; return the module of each number.

    `wrapper` is the attribute under which the model lies in the exported module, left out of the paths.
    """
    paths = {}
    for number, node in enumerate(program.graph.nodes):
        node.meta["debug_handle"] = number
        stack = node.meta.get("nn_module_stack") or {}
        deepest = next(reversed(stack.values()))[0] if stack else ""
        paths[number] = _below(wrapper, str(deepest))
    return paths


def _below(wrapper: str, path: str) -> str:
    return path.removeprefix("L['self'].").removeprefix(wrapper).removeprefix(".")
