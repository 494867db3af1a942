"""Runs the original model once through the contract before it is exported, and says what does not fit."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from convkit.findings.model import Finding, Place, Remedy
from convkit.tensors import Contract, DType, TensorSpec
from convkit.worker.cases.samples import Draw, draw_inputs
from convkit.worker.context import StageFailedError
from convkit.worker.protocol import Sample
from convkit.worker.sources.contract_module import ContractModule, OutputsError
from convkit.worker.sources.example_sizes import example_sizes, other_sizes
from convkit.worker.sources.loaded import LoadedModel
from convkit.worker.sources.signature import forward_parameters, unknown_input
from convkit.worker.sources.torch_dtypes import contract_dtype, to_tensor

_OTHER_DTYPES: tuple[DType, ...] = ("int64", "int32", "float32", "bool")


@dataclasses.dataclass(frozen=True)
class Examples:
    """How example inputs are drawn: the same request gives the same values."""

    contract: Contract
    samples: Mapping[str, Sample]
    seed: int
    loaded: LoadedModel

    def draw(self, sizes: Mapping[str, int], *, turn: int = 0) -> tuple[torch.Tensor, ...]:
        """Return one tensor for each input, none of them sharing memory; another `turn` gives other values."""
        # Ragged, so that every mask has zeros: an input whose values do not matter is traced wrongly without notice.
        arrays = draw_inputs(
            self.contract,
            self.samples,
            sizes,
            self.seed + turn,
            facts=self.loaded.facts,
            draw=Draw(case="export", padding="ragged"),
        )
        return tuple(to_tensor(arrays[spec.name], spec.dtype) for spec in self.contract.inputs)


@dataclasses.dataclass(frozen=True)
class Probe:
    """What the original gave at the sizes it was probed at; None and findings where it refused."""

    sizes: dict[str, int]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...] | None
    findings: tuple[Finding, ...]


def probe(module: ContractModule, examples: Examples) -> Probe:
    """Run the model at the first example sizes it accepts.

    Gives C101 or C104 for inputs that forward has no parameter for where it refuses, C105 for an input whose element
    type is the reason that it refuses, C201, C202 and C204 for outputs that it does not have, C205, C206 and C207 for
    outputs of another element type or shape. Raises StageFailedError where it refuses for another reason.
    """
    refusal: Exception | None = None
    for sizes in example_sizes(examples.contract):
        inputs = examples.draw(sizes)
        try:
            outputs = run(module, inputs)
        except OutputsError as error:
            return Probe(sizes, inputs, None, error.findings)
        except StageFailedError:
            raise
        except Exception as error:  # noqa: BLE001 - any model may raise anything; it is reported below
            refusal = refusal or error
            continue
        return Probe(sizes, inputs, outputs, tuple(_output_findings(module, examples, sizes, outputs)))
    sizes = next(example_sizes(examples.contract))
    inputs = examples.draw(sizes)
    assert refusal is not None
    if unknown := _swallowed_inputs(examples):
        return Probe(sizes, inputs, None, tuple(unknown))
    if finding := _dtype_finding(module, inputs, refusal):
        return Probe(sizes, inputs, None, (finding,))
    shapes = ", ".join(f"{spec} at {list(x.shape)}" for spec, x in zip(examples.contract.inputs, inputs, strict=True))
    raise StageFailedError(
        f"inputs: the model refuses inputs of the contract ({shapes}): {type(refusal).__name__}: {refusal}"
    ) from refusal


def _swallowed_inputs(examples: Examples) -> list[Finding]:
    """Return a finding for each input that forward has no parameter for: its **kwargs swallowed it, and it refused."""
    parameters = forward_parameters(examples.loaded)
    specs = examples.contract.inputs
    declared = {spec.origin or spec.name for spec in specs}
    free = [name for name in parameters if name not in declared]
    return [unknown_input(spec, free, parameters) for spec in specs if (spec.origin or spec.name) not in parameters]


def run(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Run a module without gradients on copies, so that one that writes into its inputs changes nothing here."""
    with torch.no_grad():
        return tuple(module(*(tensor.clone() for tensor in inputs)))


def _dtype_finding(module: ContractModule, inputs: Sequence[torch.Tensor], refusal: Exception) -> Finding | None:
    for index, spec in enumerate(module.contract.inputs):
        for dtype in _OTHER_DTYPES:
            if dtype == spec.dtype:
                continue
            changed = list(inputs)
            changed[index] = to_tensor(np.asarray(inputs[index].float().numpy()), dtype)
            try:
                run(module, changed)
            except OutputsError:
                pass  # it ran: the outputs are another matter
            except Exception:  # noqa: BLE001, S112 - this element type is no cure either
                continue
            return Finding(
                "C105",
                "error",
                f"The model refuses {spec.name!r} as {spec.dtype} and takes it as {dtype}: {refusal}",
                Place(tensor=spec.name),
                {"declared": spec.dtype, "accepted": dtype},
                Remedy(f"Give the input {spec.name!r} dtype: {dtype}."),
            )
    return None


def _output_findings(
    module: ContractModule, examples: Examples, sizes: dict[str, int], outputs: Sequence[torch.Tensor]
) -> list[Finding]:
    findings: list[Finding] = []
    elsewhere: tuple[torch.Tensor, ...] | None = None
    for index, (spec, output) in enumerate(zip(examples.contract.outputs, outputs, strict=True)):
        found_dtype = contract_dtype(output.dtype)
        if found_dtype != spec.dtype:
            text = f"The model gives {spec.name!r} as {found_dtype or output.dtype}; the recipe declares {spec.dtype}."
            remedy = Remedy(f"Give the output {spec.name!r} dtype: {found_dtype}.") if found_dtype else None
            evidence = {"declared": spec.dtype, "found": found_dtype}
            findings.append(Finding("C205", "error", text, Place(tensor=spec.name), evidence, remedy))
        if tuple(output.shape) != spec.concrete_shape(sizes):
            if elsewhere is None:
                elsewhere = _run_elsewhere(module, examples, sizes)
            findings.append(_shape_finding(spec, output, sizes, elsewhere[index] if elsewhere else None))
    return findings


def _run_elsewhere(
    module: ContractModule, examples: Examples, sizes: dict[str, int]
) -> tuple[torch.Tensor, ...] | None:
    other = other_sizes(examples.contract, sizes)
    if other is None:
        return None
    try:
        return run(module, examples.draw(other))
    except Exception:  # noqa: BLE001 - without a second run the shape is judged by the first alone
        return None


def _shape_finding(
    spec: TensorSpec, output: torch.Tensor, sizes: Mapping[str, int], elsewhere: torch.Tensor | None
) -> Finding:
    shape, declared = tuple(output.shape), spec.concrete_shape(sizes)
    code = "C207"
    if elsewhere is not None and len(shape) == len(declared):
        wrong = [i for i, (found, wanted) in enumerate(zip(shape, declared, strict=True)) if found != wanted]
        if all(isinstance(spec.shape[i], str) and shape[i] == elsewhere.shape[i] for i in wrong):
            code = "C206"
    text = (
        f"At {_sizes_text(sizes)} the model gives {spec.name!r} in the shape {list(shape)}; "
        f"the recipe's {list(spec.shape)} says {list(declared)}."
    )
    evidence = {"declared": list(declared), "found": list(shape), "sizes": dict(sizes)}
    remedy = Remedy(f"Give the output {spec.name!r} the shape that the model gives.")
    return Finding(code, "error", text, Place(tensor=spec.name), evidence, remedy)


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "fixed sizes"


def influences(module: ContractModule, examples: Examples, base: Probe, index: int) -> bool:
    """Return True if giving one input other values changes any output of the original."""
    assert base.outputs is not None
    alternatives = [examples.draw(base.sizes, turn=turn)[index] for turn in (1, 2)]
    alternatives += shifted(base.inputs[index])
    for alternative in alternatives:
        changed = list(base.inputs)
        changed[index] = alternative
        if torch.equal(alternative, base.inputs[index]):
            continue
        try:
            outputs = run(module, changed)
        except Exception:  # noqa: BLE001, S112 - values the model refuses show nothing
            continue
        if outputs_differ(outputs, base.outputs):
            return True
    return False


def shifted(values: torch.Tensor) -> list[torch.Tensor]:
    """Return other values of the same shape and element type, in the range that flags and indices have."""
    if values.dtype is torch.bool:
        return [~values]
    if values.is_floating_point():
        return [values + 1, -values, torch.zeros_like(values)]
    return [(values - 1).abs(), torch.zeros_like(values), torch.ones_like(values)]


def outputs_differ(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Return True if any element differs; a NaN differs from a number and equals a NaN."""
    return any(
        a.shape != b.shape or not torch.equal(a.nan_to_num(nan=1e30), b.nan_to_num(nan=1e30))
        if a.is_floating_point()
        else not torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )


def ignored_inputs(module: ContractModule, examples: Examples, base: Probe) -> list[Finding]:
    """Return C101 or C104 for inputs that forward swallows through **kwargs without any effect."""
    parameters = forward_parameters(examples.loaded)
    declared = {spec.origin or spec.name for spec in examples.contract.inputs}
    free = [name for name in parameters if name not in declared]
    return [
        dataclasses.replace(finding, message=f"{finding.message} It is taken through **kwargs and changes nothing.")
        for index, spec in enumerate(examples.contract.inputs)
        if (spec.origin or spec.name) not in parameters and not influences(module, examples, base, index)
        for finding in [unknown_input(spec, free, parameters)]
    ]
