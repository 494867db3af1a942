"""torch.export with every axis of the contract symbolic, as input for torch's ONNX exporter and
Core ML's converter.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.axis_sizes import smallest_sizes
from convkit.worker.exporters.data_guards import data_guard
from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions
from convkit.worker.exporters.decompositions.masked_packing import masked_packing, stops_at_packing
from convkit.worker.exporters.decompositions.training import gradients
from convkit.worker.exporters.deferred_guards import without_guards
from convkit.worker.exporters.export_job import WRAPPER, UnexportableError
from convkit.worker.exporters.open_sizes.declared_axes import dynamic_shapes, shared_axes
from convkit.worker.exporters.open_sizes.plain_numbers import open_numbers, rounding_sizes
from convkit.worker.exporters.open_sizes.recurrent_layers import is_open
from convkit.worker.exporters.open_sizes.size_arithmetic import plain_arithmetic
from convkit.worker.exporters.open_sizes.traceable_functions import OpenSizes
from convkit.worker.exporters.specializations import SizeLines, size_lines
from convkit.worker.exporters.traceable_layers import (
    traceable_experts,
    with_caught_errors,
    without_causal_detection,
)
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.inner_gradients import computes_gradients, with_plain_gradients
from convkit.worker.original.module_paths import settle_paths
from convkit.worker.original.recorded_lines import every_line
from convkit.worker.original.settled_branches import SETTLED, TakenSides, settled_sides

_SPECIALISED = re.compile(
    r"You marked (?P<axis>\w+) as dynamic but your code specialized it to be a constant"
    r" \((?P<size>\d+)\)"
)
_RANGE = re.compile(
    r"Not all values of (?P<axis>\w+) = .*? satisfy the generated guard (?P<guard>.*?)\.?$",
    re.MULTILINE,
)
# What Python's and numpy's functions raise for open sizes.
_OF_NUMBERS = (TypeError, AttributeError, ValueError)
# Further lines that a message lists.
_MOST_LINES = 3
_SUGGESTION = re.compile(r"Suggested fixes:\n(?P<fixes>(?:  .+\n?)+)")

# A Python loop over numbers or over a tensor's rows, or a comprehension.
_LENGTH = re.compile(r"\blen\(([\w.]+)\)")
_LOOP = re.compile(r"\bfor\b.+\bin\b")


def trace(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    contract: Contract,
    root: str | None = None,
) -> torch.export.ExportedProgram:
    """Trace a module that accepts the contract's inputs. `root` is the folder of its source files.

    Raises UnexportableError with C106 for an axis that the model fixes, with C113 for one that it
    restricts, and with E305 for a decision about data; StageFailedError if torch.export cannot
    trace it.
    """
    try:
        with every_line(root):
            program = _exported(module, inputs, contract)
            if _records_gradients(program):
                return _below_gradients(module, inputs, contract, root) or program
            return program
    except Exception as error:
        if below := _below_gradients(module, inputs, contract, root):
            return below
        # TorchScript's exporter knows packed batches of recurrent layers, and no others.
        if stops_at_packing(error) and not recurrent_modules(module):
            with contextlib.suppress(Exception), every_line(root), masked_packing(module):
                return _exported(module, inputs, contract)
        unrolled = unrolled_modules(module, is_open)
        findings = _constraint_findings(str(error), contract, unrolled)
        about_sizes = findings or isinstance(_root(error), _OF_NUMBERS)
        if about_sizes and (program := _opened(module, inputs, contract, root, findings)):
            return program
        if findings:
            findings = _with_lines(findings, module, inputs, contract, root)
            raise UnexportableError(findings) from error
        if (guard := data_guard(error, root)) is not None:
            smallest = _at(smallest_sizes(contract), inputs, contract)
            if sides := settled_sides(module, (tuple(inputs), tuple(smallest)), root):
                with contextlib.suppress(Exception), every_line(root), TakenSides(root, sides):
                    program = _exported(module, inputs, contract)
                    SETTLED[module] = sides
                    return program
            raise UnexportableError([guard]) from error
        raise StageFailedError(
            f"export: torch.export cannot trace the model: {innermost(error)}"
        ) from error


def _opened(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    contract: Contract,
    root: str | None,
    findings: Sequence[Finding],
) -> torch.export.ExportedProgram | None:
    """Trace again with what keeps sizes open that torch.export fixes or restricts: conditions that
    hold at every declared size, and the numbers that Python makes of sizes. Return None if neither
    helps.
    """
    matches = functools.partial(_matches, module, inputs, contract)
    deferred = functools.partial(_exported, module, contract=contract, deferred=True)
    with every_line(root):
        if findings and all(finding.code == "C113" for finding in findings):
            program = without_guards(lambda: deferred(inputs=inputs), contract, matches)
            if program is not None:
                return program
        with open_numbers(module, root):
            for given in _attempts(module, inputs, contract, findings):
                with contextlib.suppress(Exception):
                    return _exported(module, given, contract)
                opened = functools.partial(deferred, inputs=given)
                if program := without_guards(opened, contract, matches):
                    return program
    return None


def _attempts(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    contract: Contract,
    findings: Sequence[Finding],
) -> Iterator[Sequence[torch.Tensor]]:
    """Yield the inputs of each further trace. If sizes are fixed, the module is called at larger
    sizes in between: what it keeps of its last call, such as positions or anchors, is then of
    another size than that of the trace, or large enough.
    """
    yield inputs
    for beyond in (1, 0) if findings else ():
        sizes = {axis.name: axis.max + beyond for axis in contract.axes}
        try:
            with torch.no_grad():
                module(*_at(sizes, inputs, contract))
        except Exception:  # noqa: BLE001, S112 - the model is the user's code
            continue
        yield inputs
        return


def _exported(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    contract: Contract,
    *,
    deferred: bool = False,
    below_gradients: bool = False,
) -> torch.export.ExportedProgram:
    """Export; `deferred`: conditions on sizes become assertions; `below_gradients`: what computes
    gradients in `forward` is recorded as the operations that compute them.
    """
    more = {"prefer_deferred_runtime_asserts_over_guards": True} if deferred else {}
    export = _export_below if below_gradients else torch.export.export
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        traceable_experts(module),
        without_causal_detection(),
        with_caught_errors(),
        rounding_sizes(),
        OpenSizes(),
        shared_axes(module, contract),
    ):
        warnings.simplefilter("ignore")  # torch's own deprecations
        program = export(
            module, tuple(inputs), dynamic_shapes=dynamic_shapes(contract), strict=False, **more
        )
    settle_paths(program, module)
    return plain_arithmetic(program)


def _records_gradients(program: torch.export.ExportedProgram) -> bool:
    """Say whether a program turns the recording of gradients on or off, as one would that has the
    calls of autograd in place of what they compute.
    """
    return any("set_grad_enabled" in str(node.target) for node in program.graph.nodes)


def _below_gradients(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor], contract: Contract, root: str | None
) -> torch.export.ExportedProgram | None:
    """Trace a module that computes gradients as the operations that compute them; return None if it
    computes none, or cannot be traced so.
    """
    if computes_gradients(module, inputs):
        with contextlib.suppress(Exception), every_line(root):
            return _exported(module, inputs, contract, below_gradients=True)
    return None


def _export_below(*args: Any, **more: Any) -> torch.export.ExportedProgram:  # noqa: ANN401 - torch's
    """Export as torch.export does, but record what autograd calls, not what is called above it:
    torch.export lets nobody choose.
    """
    from torch.export._trace import _export
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # The gradients of fused attention have no other form; those of its products and softmax do.
    with sdpa_kernel(SDPBackend.MATH), with_plain_gradients():
        program: torch.export.ExportedProgram = _export(*args, **more, pre_dispatch=False)
    norms = gradients.of_statistics(program)
    return run_decompositions(program, norms) if norms else program


def _matches(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    contract: Contract,
    program: torch.export.ExportedProgram,
    sizes: Mapping[str, int],
) -> bool:
    """Say whether a program computes what its module does at some sizes, on inputs cut or repeated
    to fit.
    """
    given = _at(sizes, inputs, contract)
    try:
        with torch.no_grad():
            expected = module(*(each.clone() for each in given))
            found = _runnable(program)(*(each.clone() for each in given))
    except Exception:  # noqa: BLE001 - either may raise anything
        return False
    return all(
        one.shape == other.shape
        and torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        for one, other in zip(_listed(expected), _listed(found), strict=True)
    )


def _runnable(program: torch.export.ExportedProgram) -> torch.nn.Module:
    """Return a program as a module that does not check sizes; older releases of torch never do."""
    if "check_guards" in inspect.signature(program.module).parameters:
        return program.module(check_guards=False)
    return program.module()


def _listed(outputs: torch.Tensor | Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return (outputs,) if isinstance(outputs, torch.Tensor) else outputs


def _at(
    sizes: Mapping[str, int], inputs: Sequence[torch.Tensor], contract: Contract
) -> list[torch.Tensor]:
    return [
        _resized(tensor, spec.concrete_shape(sizes))
        for tensor, spec in zip(inputs, contract.inputs, strict=True)
    ]


def _resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    for axis, size in enumerate(shape):
        tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor


def _with_lines(
    findings: Sequence[Finding],
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    contract: Contract,
    root: str | None,
) -> list[Finding]:
    """Trace again, which fails again, and add the lines of the model's code that fix or restrict
    sizes.
    """
    with size_lines(root) as lines, contextlib.suppress(Exception):
        _exported(module, inputs, contract)
    return [_with_line(finding, lines) for finding in findings]


def _with_line(finding: Finding, lines: SizeLines) -> Finding:
    size = finding.evidence.get("fixed")
    if finding.code == "C113" and lines.guards:
        (source, text), *others = lines.guards.items()
        where = "".join(f", or at {other}" for other, _ in others[:_MOST_LINES])
    elif isinstance(size, int) and size in lines.fixed and not finding.evidence.get("recurrent"):
        (source, text), where = lines.fixed[size], ""
    else:
        return finding
    return dataclasses.replace(
        finding,
        message=f"{finding.message[:-1]}, at {source}: {text}{where}",
        place=dataclasses.replace(finding.place, source=source),
        evidence={**finding.evidence, "line": text},
        remedy=_unrolled(finding) if _LOOP.search(text) else _by_length(finding, text),
    )


def _by_length(finding: Finding, text: str) -> Remedy | None:
    """Return what to do about `len(x)`, which Python makes a plain number."""
    match = _LENGTH.search(text)
    if finding.code != "C106" or match is None:
        return finding.remedy
    return Remedy(f"Write {match[1]}.shape[0] in place of len({match[1]}), which fixes the size.")


def _unrolled(finding: Finding) -> Remedy | None:
    """Return what to do about a Python loop over an axis."""
    if finding.code != "C106":
        return finding.remedy
    axis = finding.evidence["axis"]
    return Remedy(
        f"Every exporter unrolls this Python loop over {axis!r}. Write it with operations on whole"
        f" tensors, such as torch.cumsum; or declare {axis!r} with one size and call the model in a"
        " loop (steps)."
    )


def recurrent_modules(module: torch.nn.Module) -> dict[str, str]:
    """Return the recurrent layers of a model: class by path."""
    return {name: type(each).__name__ for name, each in _recurrent(module)}


def unrolled_modules(
    module: torch.nn.Module, is_kept: Callable[[torch.nn.RNNBase], bool]
) -> dict[str, str]:
    """Return the recurrent layers that torch.export unrolls: those that are not kept."""
    return {name: type(each).__name__ for name, each in _recurrent(module) if not is_kept(each)}


def _recurrent(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.RNNBase]]:
    for name, each in module.named_modules():
        if isinstance(each, torch.nn.RNNBase):
            yield name.removeprefix(f"{WRAPPER}."), each


def _constraint_findings(
    message: str, contract: Contract, recurrent: Mapping[str, str]
) -> list[Finding]:
    known = {axis.name for axis in contract.axes}
    if not message.startswith("Constraints violated"):
        return []
    findings = [
        _fixed_axis(match["axis"], int(match["size"]), recurrent)
        for match in _SPECIALISED.finditer(message)
        if match["axis"] in known
    ]
    fixes = _SUGGESTION.search(message)
    named = {
        match["axis"]: match["guard"]
        for match in _RANGE.finditer(message)
        if match["axis"] in known
    }
    if findings and not named:
        return findings
    wanted = "; ".join(line.strip() for line in fixes["fixes"].splitlines()) if fixes else ""
    first = next(iter(named), None) or next(
        (axis for axis in sorted(known) if re.search(rf"\b{axis}\b", wanted)), None
    )
    text = (
        "The model does not support all sizes that the recipe declares for"
        f" {', '.join(named) or 'its axes'}"
    )
    evidence = {"suggested": wanted, "guards": list(named.values())}
    remedy = Remedy(
        f"Limit the axes to what the model supports: {wanted}."
        if wanted
        else "Compute with sizes as whole numbers (// and *), or limit the axes.",
        _change(wanted, known),
    )
    why = wanted or "; ".join(f"they must meet {guard}" for guard in named.values())
    return [*findings, Finding("C113", f"{text}: {why}.", Place(tensor=first), evidence, remedy)]


def _change(fixes: str, known: set[str]) -> dict[str, object]:
    """Turn torch's `sequence = Dim('sequence', max=16)` into a change of the recipe.

    Multiples of an axis (`_sequence = Dim('_sequence', max=12); sequence = 5*_sequence`) are no
    range.
    """
    changes = re.finditer(r"(\w+) = Dim\('\w+'(?:, min=(\d+))?(?:, max=(\d+))?\)", fixes)
    return {
        f"axes.{axis}.{bound}": int(value)
        for axis, low, high in (match.groups() for match in changes)
        for bound, value in (("min", low), ("max", high))
        if value is not None and axis in known
    }


def _fixed_axis(axis: str, size: int, recurrent: Mapping[str, str]) -> Finding:
    """Return C106. A recurrent layer is enough to fix an axis; the model's code may be fine."""
    if recurrent:
        name, kind = next(iter(recurrent.items()))
        return Finding(
            "C106",
            f"torch.export fixes axis {axis!r} at {size}, the example's size: it unrolls nn.{kind}"
            f"{f' {name!r}' if name else ''} step by step.",
            Place(tensor=axis, module=name or None),
            {"axis": axis, "fixed": size, "recurrent": dict(recurrent)},
            Remedy(
                "TorchScript keeps such layers: export with exporter: torchscript if the rest of"
                f" the model allows it, or declare {axis!r} with one size."
            ),
        )
    return Finding(
        "C106",
        f"The model's own code fixes axis {axis!r} at {size}, the example's size.",
        Place(tensor=axis),
        {"axis": axis, "fixed": size},
        Remedy(
            "Compute shapes in the model from tensor.shape[i], without int() or literal sizes, so"
            f" that {axis!r} can vary."
        ),
    )


def innermost(error: BaseException, lines: int = 12) -> str:
    """Return the first lines of the error at the root of a chain, without torch's advice for its
    own developers.
    """
    first = _root(error)
    text = [
        line
        for line in str(first).splitlines()
        if line.strip() and "TORCH" not in line and "docs.google" not in line
    ]
    return f"{type(first).__name__}: " + "\n".join(text[:lines])


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
