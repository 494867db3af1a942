"""Runs the original model once through the contract before export, and reports mismatches."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from convkit.protocol.contract import Contract, DType, TensorSpec, dimension_axes, dimension_size
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import Draw, draw_inputs
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import in_order
from convkit.worker.original.contract_module import ContractModule, OutputsError
from convkit.worker.original.example_sizes import example_sizes, other_sizes
from convkit.worker.original.forward_signature import forward_parameters, unknown_input
from convkit.worker.original.input_structure import parameter_of
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.literal_sizes import literal_size
from convkit.worker.original.probing.refused_inputs import refusal_finding
from convkit.worker.original.torch_dtypes import contract_dtype, to_tensor, to_tensors

# With more outputs than this, permutations are not tried.
_MOST_PERMUTED = 5
_OTHER_DTYPES: tuple[DType, ...] = ("int64", "int32", "float32", "bool")


@dataclasses.dataclass(frozen=True)
class Examples:
    """How example inputs are sampled: the same request returns the same values, whatever the
    recipe's seed is, which draws the cases of verification only.
    """

    contract: Contract
    samples: Mapping[str, Sample]
    loaded: LoadedModel

    def draw(self, sizes: Mapping[str, int], *, turn: int = 0) -> tuple[torch.Tensor, ...]:
        """Return one tensor per input, none of them sharing memory; another `turn` returns other
        values.
        """
        # Ragged, so that every mask has zeros: otherwise, an input whose values have no effect is
        # traced incorrectly without notice.
        arrays = draw_inputs(
            self.contract,
            self.samples,
            sizes,
            turn,
            facts=self.loaded.facts,
            draw=Draw(case="export", padding="ragged"),
        )
        return tuple(to_tensors(self.contract.inputs, arrays).values())


@dataclasses.dataclass(frozen=True)
class Probe:
    """The original's outputs at the probed sizes; None, with findings, if it rejected the
    inputs.
    """

    sizes: dict[str, int]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...] | None
    findings: tuple[Finding, ...]


def probe(module: ContractModule, examples: Examples) -> Probe:
    """Run the model at the first example sizes that it accepts.

    If it rejects the inputs, returns C101 or C104 for inputs without a parameter in forward, or
    C105 for an input whose element type is the reason. Returns C201, C202 and C204 for outputs that
    it does not have, C205, C206 and C207 for outputs of a different element type or shape, and E410
    if it rejects the inputs for another reason.
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
        return Probe(
            sizes,
            inputs,
            outputs,
            tuple(_output_findings(module, examples, sizes, inputs, outputs)),
        )
    sizes = next(example_sizes(examples.contract))
    inputs = examples.draw(sizes)
    assert refusal is not None
    if unknown := _ignored_inputs(examples):
        return Probe(sizes, inputs, None, tuple(unknown))
    if finding := _dtype_finding(module, inputs, refusal):
        return Probe(sizes, inputs, None, (finding,))
    finding = refusal_finding(
        module,
        inputs,
        refusal,
        lambda contract: dataclasses.replace(examples, contract=contract).draw(sizes),
        examples.samples,
        examples.loaded.source_root,
    )
    return Probe(sizes, inputs, None, (finding,))


def _ignored_inputs(examples: Examples) -> list[Finding]:
    """Return a finding for each input that forward has no parameter for: its **kwargs accepted it,
    but the call failed.
    """
    parameters = forward_parameters(examples.loaded)
    specs = examples.contract.inputs
    declared = {parameter_of(spec, parameters) for spec in specs}
    free = [name for name in parameters if name not in declared]
    unknown = [spec for spec in specs if parameter_of(spec, parameters) not in parameters]
    return [unknown_input(spec, free, parameters, examples.contract) for spec in unknown]


def run(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Run a module without gradients on copies, so that a module that modifies its inputs changes
    nothing here.
    """
    with torch.no_grad():
        return tuple(module(*(tensor.clone() for tensor in inputs)))


def _accepts_other_values(
    module: ContractModule, inputs: Sequence[torch.Tensor], index: int
) -> bool:
    """Return whether a model runs with ones in an input, in the declared type: what it refuses are
    values then, such as a divisor of 0, which only whole numbers refuse.
    """
    changed = list(inputs)
    changed[index] = torch.ones_like(inputs[index])
    try:
        run(module, changed)
    except OutputsError:
        return True  # it ran
    except Exception:  # noqa: BLE001 - a user's module may raise anything
        return False
    return True


def _dtype_finding(
    module: ContractModule, inputs: Sequence[torch.Tensor], refusal: Exception
) -> Finding | None:
    for index, spec in enumerate(module.contract.inputs):
        if _accepts_other_values(module, inputs, index):
            continue
        for dtype in _OTHER_DTYPES:
            if dtype == spec.dtype:
                continue
            changed = list(inputs)
            changed[index] = to_tensor(np.asarray(inputs[index].float().numpy()), dtype)
            try:
                run(module, changed)
            except OutputsError:
                pass  # it ran: outputs are checked separately
            except Exception:  # noqa: BLE001, S112 - this element type does not help either
                continue
            return Finding(
                "C105",
                f"The model rejects {spec.name!r} as {spec.dtype} but accepts it as {dtype}:"
                f" {refusal}",
                Place(tensor=spec.name),
                {"declared": spec.dtype, "accepted": dtype},
                Remedy(
                    f"Set dtype: {dtype} for input {spec.name!r}.",
                    {f"inputs.{index}.dtype": dtype},
                    proven=True,
                ),
            )
    return None


def _output_findings(
    module: ContractModule,
    examples: Examples,
    sizes: dict[str, int],
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> list[Finding]:
    specs = examples.contract.outputs
    if all(_fits(spec, output, sizes) for spec, output in zip(specs, outputs, strict=True)):
        return []
    root = examples.loaded.source_root
    if (literal := literal_size(module, inputs, sizes, root)) is not None:
        return [literal]
    findings: list[Finding] = []
    order = _fitting_order(module, examples, sizes, inputs, outputs)
    elsewhere = _run_elsewhere(module, examples, sizes)
    for index, (spec, output) in enumerate(zip(specs, outputs, strict=True)):
        found_dtype = contract_dtype(output.dtype)
        if found_dtype != spec.dtype:
            text = (
                f"The model returns {spec.name!r} as {found_dtype or output.dtype}; the recipe"
                f" declares {spec.dtype}."
            )
            change = {f"outputs.{index}.dtype": found_dtype}
            remedy = (
                Remedy(f"Set dtype: {found_dtype} for output {spec.name!r}.", change, proven=True)
                if found_dtype
                else None
            )
            evidence = {"declared": spec.dtype, "found": found_dtype}
            findings.append(
                Finding("C205", text, Place(tensor=spec.name), evidence, order or remedy)
            )
        if not spec.fits(tuple(output.shape), sizes):
            finding = _shape_finding(index, spec, output, sizes, elsewhere)
            findings.append(dataclasses.replace(finding, remedy=order or finding.remedy))
    return findings


def _fits(spec: TensorSpec, output: torch.Tensor, sizes: Mapping[str, int]) -> bool:
    return contract_dtype(output.dtype) == spec.dtype and spec.fits(tuple(output.shape), sizes)


def _fitting_order(
    module: ContractModule,
    examples: Examples,
    sizes: dict[str, int],
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> Remedy | None:
    """Return the remedy if a model's unnamed outputs match the declared ones in another order; None
    otherwise.

    It changes the recipe if that order is the only one. If there are several, assigning shapes by
    position could give an output another one's name, so the remedy is only in words.
    """
    specs = examples.contract.outputs
    orders = _orders(specs, outputs, sizes)
    if not orders:
        return None
    contract = dataclasses.replace(examples.contract, outputs=orders[0])
    # Named outputs are selected by name in any order of the contract, so another order would not
    # help.
    found = run(ContractModule(examples.loaded, contract, module.omit), inputs)
    if any(
        one.shape != other.shape or one.dtype != other.dtype
        for one, other in zip(found, outputs, strict=True)
    ):
        return None
    if len(orders) > 1:
        return Remedy(
            "List the outputs in the model's order. They do not fit in the declared order, but do"
            " in several others."
        )
    names = [spec.name for spec in orders[0]]
    return Remedy(
        f"List the outputs in this order: {', '.join(names)}.",
        {"outputs": in_order(names, names)},
        proven=True,
    )


def _orders(
    specs: Sequence[TensorSpec], outputs: Sequence[torch.Tensor], sizes: Mapping[str, int]
) -> list[tuple[TensorSpec, ...]]:
    """Return the orders of the declared outputs that match better than theirs: completely, or at
    least in their shapes.
    """

    def fit(order: Sequence[TensorSpec]) -> bool:
        return all(_fits(spec, output, sizes) for spec, output in zip(order, outputs, strict=True))

    def fit_in_shape(order: Sequence[TensorSpec]) -> bool:
        return all(spec.fits(tuple(y.shape), sizes) for spec, y in zip(order, outputs, strict=True))

    if len(specs) > _MOST_PERMUTED:
        return []
    orders = list(itertools.permutations(specs))
    whole = [order for order in orders if fit(order)]
    return whole or (
        [] if fit_in_shape(specs) else [order for order in orders if fit_in_shape(order)]
    )


@dataclasses.dataclass(frozen=True)
class _OtherSizes:
    """The original's outputs at other sizes."""

    sizes: dict[str, int]
    outputs: tuple[torch.Tensor, ...]


def _run_elsewhere(
    module: ContractModule, examples: Examples, sizes: dict[str, int]
) -> _OtherSizes | None:
    other = other_sizes(examples.contract, sizes)
    if other is None:
        return None
    try:
        return _OtherSizes(other, run(module, examples.draw(other)))
    except Exception:  # noqa: BLE001 - without a second run, the shape is judged by the first alone
        return None


def _shape_finding(
    index: int,
    spec: TensorSpec,
    output: torch.Tensor,
    sizes: Mapping[str, int],
    elsewhere: _OtherSizes | None,
) -> Finding:
    shape, declared = tuple(output.shape), spec.shape_at(sizes)
    code, change = "C207", {}
    if elsewhere is not None:
        other = tuple(elsewhere.outputs[index].shape)
        if len(shape) == len(declared):
            wrong = [
                i
                for i, (found, wanted) in enumerate(zip(shape, declared, strict=True))
                if found != wanted and not isinstance(wanted, str)
            ]
            if all(isinstance(spec.shape[i], str) and shape[i] == other[i] for i in wrong):
                code = "C206"
        if (found_shape := _in_axes(spec, shape, sizes, other, elsewhere.sizes)) is not None:
            change = {f"outputs.{index}.shape": found_shape}
    text = (
        f"At {_sizes_text(sizes)}, the model returns {spec.name!r} with shape {list(shape)}; the"
        f" recipe's {list(spec.shape)} would be {list(declared)}."
    )
    evidence = {"declared": list(declared), "found": list(shape), "sizes": dict(sizes)}
    remedy = Remedy(f"Set the shape of output {spec.name!r} to the model's.", change, proven=True)
    return Finding(code, text, Place(tensor=spec.name), evidence, remedy)


def _in_axes(
    spec: TensorSpec,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    other: tuple[int, ...],
    elsewhere: Mapping[str, int],
) -> list[int | str] | None:
    """Return a shape observed at two sizes in terms of the axes, or sums of two; None if a
    dimension matches none, or several.
    """
    if len(shape) != len(other):
        return None
    found: list[int | str] = []
    for place, (one, two) in enumerate(zip(shape, other, strict=True)):
        declared = [spec.shape[place]] if len(spec.shape) == len(shape) else []
        # A data axis, which has no size, may have any.
        kept = [
            d
            for d in declared
            if not set(dimension_axes(d)) <= set(sizes)
            or (dimension_size(d, sizes), dimension_size(d, elsewhere)) == (one, two)
        ]
        sums = [f"{first} + {second}" for first, second in itertools.combinations(sizes, 2)]
        fitting = [
            text
            for text in (*sizes, *sums)
            if (dimension_size(text, sizes), dimension_size(text, elsewhere)) == (one, two)
        ]
        candidates: list[int | str] = kept or [*fitting, *([one] if one == two else [])]
        if len(candidates) != 1:
            return None
        found.append(candidates[0])
    return found


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "fixed sizes"
