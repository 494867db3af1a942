"""A torch module as a program that coremltools can convert."""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.exported_program import default_decompositions

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.runtimes.coreml.conversion.control_flow import all_nodes, name_apart
from convkit.runtimes.coreml.conversion.decompositions import own_decompositions, with_correction
from convkit.runtimes.coreml.conversion.high_ranks import has_high_ranks, without_high_ranks
from convkit.runtimes.coreml.conversion.missing_operators import is_known
from convkit.runtimes.coreml.conversion.operation_origins import (
    below,
    complex_numbers,
    failed_node,
    module_of,
    origin_of,
    too_high,
    untranslated,
)
from convkit.worker.building.distinct_outputs import copy_shared_outputs
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.building.unread_writes import drop_unread_writes
from convkit.worker.exporters.decompositions import decomposition_table
from convkit.worker.exporters.decompositions.complex_pairs import (
    concerns_complex,
    has_complex,
    without_complex,
)
from convkit.worker.exporters.decompositions.graph_rewriting import UnrewrittenError
from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions
from convkit.worker.exporters.decompositions.masked_packing import masked_packing
from convkit.worker.exporters.deferred_guards import drop_assertions
from convkit.worker.exporters.dynamic_trace import innermost, trace
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.exporters.open_sizes.recurrent_layers import open_steps
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.operation_modules import ModuleOf, module_path

# Recurrent layers that coremltools translates as they are.
_KEPT = ("LSTM",)
# Each round may bring forth operators that have to be decomposed in their turn.
_MOST_ROUNDS = 4

_DECIDES_BY_DATA = "E305"


class _NoCounterpartError(UnexportableError):
    """Of values that ML programs have not, however the module is traced."""


@dataclasses.dataclass(frozen=True)
class TracedProgram:
    """What coremltools converts. `refusal` is why torch.export could not trace the module, if it
    was traced on an example instead: then every branch in Python, on values and on sizes, is fixed
    to the example's. `refused` are the findings on that, if any. `origins` says where in the model
    each of torch.export's nodes lies, by its number.
    """

    program: Any
    module_of: ModuleOf
    refusal: str | None = None
    origins: Mapping[int, OperationOrigin] = dataclasses.field(default_factory=dict)
    refused: tuple[Finding, ...] = ()

    @property
    def exported(self) -> torch.export.ExportedProgram | None:
        """torch.export's program; None if torch.jit.trace traced the module."""
        return self.program if isinstance(self.program, torch.export.ExportedProgram) else None


def traced(
    module: torch.nn.Module,
    examples: Sequence[torch.Tensor],
    contract: Contract,
    wrapper: str,
    root: str | None = None,
) -> TracedProgram:
    """Trace a module with torch.export, or else with torch.jit.trace.

    `wrapper` is the module's attribute that holds the model, left out of paths; `root`
    is the folder of its own source files. Raises
    UnexportableError for axes that the model fixes or restricts, StageFailedError for what neither
    can trace.
    """
    with _as_served(module) as served, _separate_outputs(module):
        return _traced(module, served(examples), contract, wrapper, root)


@contextlib.contextmanager
def _as_served(
    module: torch.nn.Module,
) -> Iterator[Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]]:
    """Yield what turns inputs into those that a package has: numbers in place of bools, one element
    in place of a scalar. A module that is called with them meanwhile turns them back first.

    A Core ML model has no inputs of bools, and coremltools takes what it is given for what torch
    was given: `~mask` of 0 and 1 would be -1 and -2, both of them true. Nor has it scalars.
    """
    bools: set[int] = set()
    scalars: set[int] = set()

    def served(examples: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        bools.update(n for n, each in enumerate(examples) if each.dtype == torch.bool)
        scalars.update(n for n, each in enumerate(examples) if each.ndim == 0)
        numbers = (
            each.to(torch.int32) if number in bools else each
            for number, each in enumerate(examples)
        )
        return tuple(each.reshape(1) if each.ndim == 0 else each for each in numbers)

    def restored(_: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        typed = (
            each.to(torch.bool) if number in bools else each for number, each in enumerate(given)
        )
        return tuple(
            each.squeeze(0) if number in scalars and each.ndim else each
            for number, each in enumerate(typed)
        )

    hook = module.register_forward_pre_hook(restored)
    try:
        yield served
    finally:
        hook.remove()


@contextlib.contextmanager
def _separate_outputs(module: torch.nn.Module) -> Iterator[None]:
    """Let a module return copies of inputs and of tensors that it returns twice: a program's
    outputs have a name each.
    """
    hook = module.register_forward_hook(copy_shared_outputs)
    try:
        yield
    finally:
        hook.remove()


def _traced(
    module: torch.nn.Module,
    examples: Sequence[torch.Tensor],
    contract: Contract,
    wrapper: str,
    root: str | None,
) -> TracedProgram:
    try:
        with open_steps(_KEPT):
            traced = trace(module, examples, contract)
            try:
                program = decomposed(traced)
            except UnrewrittenError as error:
                explain = complex_numbers if concerns_complex(error.node) else too_high
                finding = explain(origin_of(error.node, wrapper, root))
                raise _NoCounterpartError([finding]) from error
        drop_unread_writes(program)
        _refuse_unknown(program, wrapper, root)
    except _NoCounterpartError:
        raise
    except UnexportableError as refused:
        # torch.export reads recurrent layers for the example's length only where that is open;
        # torch.jit.trace for any. It follows a decision about data on the example, and verification
        # tries the other side.
        recurrent = any(isinstance(each, torch.nn.RNNBase) for each in module.modules())
        if not recurrent and all(finding.code != _DECIDES_BY_DATA for finding in refused.findings):
            raise
        return _followed(module, examples, wrapper, refused)
    except StageFailedError as refused:
        return _followed(module, examples, wrapper, refused)
    return _exported(program, wrapper, root)


def simplified(
    source: TracedProgram, error: Exception, wrapper: str, root: str | None = None
) -> TracedProgram | None:
    """Return a traced model with the operator decomposed on which coremltools failed; None if it is
    unknown, or torch does not decompose it.

    coremltools translates many operators for some arguments only: a padding that is not circular, a
    mean over windows of a known size.
    """
    if source.exported is None:
        return None
    program = source.exported
    node = failed_node(error, {str(node.name): node for node in all_nodes(program)})
    table = {
        **default_decompositions(),
        **own_decompositions(),
        **decomposition_table.fitting(program),
    }
    if node is None or node.target not in table:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own parts
        simpler = decomposed(run_decompositions(program, {node.target: table[node.target]}))
    if unknown_operators(simpler) or any(n.target == node.target for n in all_nodes(simpler)):
        return None
    return _exported(simpler, wrapper, root)


def _exported(
    program: torch.export.ExportedProgram, wrapper: str, root: str | None
) -> TracedProgram:
    paths = number_nodes(program, wrapper)
    origins = {
        node.meta["debug_handle"]: origin_of(node, wrapper, root)
        for node in all_nodes(program)
        if node.op == "call_function"
    }
    return TracedProgram(program, lambda operation: module_path(operation, paths), origins=origins)


def _followed(
    module: torch.nn.Module,
    examples: Sequence[torch.Tensor],
    wrapper: str,
    refused: StageFailedError,
) -> TracedProgram:
    """Trace a module with torch.jit.trace, which follows it on an example."""
    try:
        with warnings.catch_warnings(), torch.no_grad(), masked_packing(module):
            warnings.simplefilter("ignore")  # torch warns of each value that Python decides by
            script = torch.jit.trace(module, tuple(examples), check_trace=False, strict=False)
    except Exception as error:
        if refused.findings:
            raise refused from error
        raise StageFailedError(f"{refused}; nor can torch.jit.trace: {innermost(error)}") from error
    known = {name for name, _ in module.named_modules()}
    return TracedProgram(
        script,
        lambda operation: below(wrapper, _deepest(module_path(operation), known)),
        str(refused),
        refused=tuple(refused.findings),
    )


def _refuse_unknown(program: torch.export.ExportedProgram, wrapper: str, root: str | None) -> None:
    """Raise UnexportableError if operators remain that coremltools lacks and torch does not
    decompose.
    """
    left: list[OperationOrigin] = [
        origin_of(node, wrapper, root)
        for node in all_nodes(program)
        if node.op == "call_function" and not is_known(node)
    ]
    if left:
        raise UnexportableError([untranslated(left)])


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program in which operators that coremltools lacks are decomposed, if torch can.

    Operators that it supports stay whole (a layer norm, an attention), which yields the better
    program.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks on its own parts
        with_correction(program)
        program = decomposition_table.decomposed(
            run_decompositions(program, {}),
            lambda node: is_known(node) and not concerns_complex(node),
        )
        program = _with_known(program)
        if has_complex(program):
            try:
                program = _with_known(without_complex(program, keeps_transforms=False))
            except UnrewrittenError:
                if unknown_operators(program):  # else it may be converted as it is
                    raise
        if has_high_ranks(program):
            program = _with_known(without_high_ranks(program, _table()))
    drop_assertions(program)  # each decomposition brings them back
    return program


def _with_known(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Decompose operators that coremltools lacks, as far as torch or this folder can."""
    for _ in range(_MOST_ROUNDS):
        table = _table()
        chosen = {
            operator: table[operator]
            for operator in unknown_operators(program)
            if operator in table
        }
        if not chosen:
            break
        program = run_decompositions(program, chosen)
    return program


def _table() -> dict[Any, Callable[..., object]]:
    return {**default_decompositions(), **own_decompositions()}


def unknown_operators(program: torch.export.ExportedProgram) -> dict[object, None]:
    """Return the operators of a program that coremltools has no translation for, in order."""
    return {
        node.target: None
        for node in all_nodes(program)
        if node.op == "call_function" and not is_known(node)
    }


def number_nodes(program: torch.export.ExportedProgram, wrapper: str) -> Mapping[int, str]:
    """Number the nodes; coremltools passes the numbers on to its operations. Return the module of
    each number.

    `wrapper` is the attribute of the exported module that contains the model, omitted from the
    paths.
    """
    paths = {}
    name_apart(program)
    for number, node in enumerate(all_nodes(program)):
        node.meta["debug_handle"] = number
        paths[number] = module_of(node, wrapper)
    return paths


def _deepest(path: str, known: Collection[str]) -> str:
    """Return the module of a TorchScript path: its last part may be a parameter, or a value's
    number.
    """
    while path and path not in known:
        path = path.rpartition(".")[0]
    return path
