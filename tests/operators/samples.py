"""Torch's samples of its operators as modules: one call each, tensors as inputs, the rest fixed."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from convkit.protocol.contract import Axis, Contract, Dimension, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import contract_dtype

# What draws numbers, reads what was not written, or is a test's own helper.
_LEFT_OUT = (
    *("rand", "bernoulli", "multinomial", "normal", "dropout", "rrelu", "uniform", "exponential"),
    *("cauchy", "geometric", "empty", "jiterator", "nvprims", "sparse"),
)
# Of an operator's samples, those with different ranks and options: more say nothing new.
_SAMPLES = 4
_TYPES = (torch.float32, torch.int64, torch.bool)
_LARGEST_RANK = 5
_AXIS = "n"

Tensors = Mapping[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One call of an operator behind a contract, and inputs of one size or two with what the call
    makes of them.
    """

    operator: str
    options: str
    module: ContractModule
    runs: tuple[tuple[Tensors, Tensors], ...]


def samples(names: Callable[[str], bool]) -> Iterator[Sample]:
    """Return samples of the chosen operators: each at fixed sizes, then with the first dimension
    open where the call takes twice as many rows.
    """
    for operator in op_db:
        name = _name(operator)
        if names(name) and not any(part in name for part in _LEFT_OUT):
            yield from itertools.chain.from_iterable(map(_behind_contracts, _calls(operator)))


def _name(operator: OpInfo) -> str:
    name, variant = operator.name, operator.variant_test_name
    return f"{name}.{variant}" if variant else name


class _Call(torch.nn.Module):  # type: ignore[misc]
    """An operator with all arguments but its tensors."""

    def __init__(self, operator: OpInfo, sample: SampleInput) -> None:
        super().__init__()
        self.name = _name(operator)
        self._call = operator.op
        given = ((sample.input, *sample.args), sample.kwargs)
        self._leaves, self._form = pytree.tree_flatten(given)
        self._places = [
            place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)
        ]
        self.given = {
            f"x{number}": self._leaves[place].detach().contiguous()
            for number, place in enumerate(self._places)
        }
        self.options = str([leaf for leaf in self._leaves if not isinstance(leaf, torch.Tensor)])
        self.kind = (tuple(each.dim() for each in self.given.values()), str(self._form))

    def forward(self, **given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = list(self._leaves)
        for number, place in enumerate(self._places):
            leaves[place] = given[f"x{number}"]
        arguments, options = pytree.tree_unflatten(leaves, self._form)
        results = pytree.tree_leaves(self._call(*arguments, **options))
        return tuple(
            torch.view_as_real(each) if each.is_complex() else each
            for each in results
            if isinstance(each, torch.Tensor)
        )

    def results(self, given: Tensors) -> Tensors | None:
        """Return what the call makes of inputs; None if no graph could return it, or it refuses."""
        try:
            with torch.no_grad():
                found = self(**{name: each.clone() for name, each in given.items()})
        except (RuntimeError, ValueError, IndexError, TypeError):
            return None
        usable = found and all(each.numel() for each in found)
        return {f"y{number}": each for number, each in enumerate(found)} if usable else None


def _calls(operator: OpInfo) -> Iterator[_Call]:
    known = operator.dtypes
    dtype = next((each for each in _TYPES if each in known), None)
    if dtype is None:
        return
    torch.manual_seed(0)
    seen = set[object]()
    for sample in operator.sample_inputs("cpu", dtype):
        call = _Call(operator, sample).eval()
        if call.kind not in seen and _is_usable(call.given):
            seen.add(call.kind)
            yield call
        if len(seen) == _SAMPLES:
            return


def _is_usable(given: Tensors) -> bool:
    return bool(given) and all(
        each.numel() and 0 < each.dim() <= _LARGEST_RANK and contract_dtype(each.dtype) is not None
        for each in given.values()
    )


def _behind_contracts(call: _Call) -> Iterator[Sample]:
    results = call.results(call.given)
    if results is None:
        return
    first = (call.given, results)
    yield Sample(call.name, call.options, _behind_contract(call, [first]), (first,))
    rows = next(iter(call.given.values())).shape[0]
    if rows == 1:
        return
    twice = {
        # Smaller, so that no two elements are equal, of which either may be chosen.
        name: torch.cat([each, each * 0.75 if each.is_floating_point() else each])
        if each.shape[0] == rows
        else each
        for name, each in call.given.items()
    }
    results = call.results(twice)
    if results is not None and all(
        before.dim() == after.dim()
        and all((b - a) % rows == 0 for a, b in zip(before.shape, after.shape, strict=True))
        for before, after in zip(first[1].values(), results.values(), strict=False)
    ):
        runs = (first, (twice, results))
        yield Sample(call.name, call.options, _behind_contract(call, runs), runs)


def _behind_contract(call: _Call, runs: Sequence[tuple[Tensors, Tensors]]) -> ContractModule:
    rows = next(iter(call.given.values())).shape[0]
    axes = (Axis(_AXIS, 2, rows, 2 * rows),) if len(runs) > 1 else ()

    def specs(side: int) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(
                name,
                contract_dtype(tensor.dtype),  # type: ignore[arg-type]
                _shape([run[side][name].shape for run in runs], rows),
            )
            for name, tensor in runs[0][side].items()
        )

    return ContractModule(LoadedModel(call, "an operator's"), Contract(specs(0), specs(1), axes))


def _shape(shapes: list[torch.Size], rows: int) -> tuple[Dimension, ...]:
    """Return dimensions as arithmetic over the axis, from the sizes at so many rows and twice as
    many.
    """
    return tuple(
        low if low == high else f"{(high - low) // rows}*{_AXIS} + {2 * low - high}"
        for low, high in zip(shapes[0], shapes[-1], strict=True)
    )
