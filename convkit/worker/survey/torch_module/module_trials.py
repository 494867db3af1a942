"""Runs a torch module at given axis sizes and records what it accepts and returns."""

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from convkit.protocol.contract import DType, TensorSpec
from convkit.protocol.messages import Sample
from convkit.protocol.numpy_dtypes import dtype_name
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.original.inner_gradients import recording
from convkit.worker.original.input_structure import Arguments
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import contract_dtype, to_array, to_tensor, torch_dtype
from convkit.worker.original.unsteady_mode import Unsteady, reads_numbers_alone
from convkit.worker.original.written_nan import WithoutWrittenNan
from convkit.worker.survey.sizes.perturbed_weights import moved
from convkit.worker.survey.sizes.size_trials import SizeTrial, Trials
from convkit.worker.survey.sizes.work_clock import WorkClock
from convkit.worker.survey.torch_module.argument_roles import Uses, argument_uses
from convkit.worker.survey.torch_module.named_outputs import NamedOutput, named_outputs

# Seconds of a run, with the drawing of its inputs, after which shapes are worked out without
# values: dozens of runs follow.
_LONG_RUN = 0.05
# Weights in bytes that are moved, and by how many units in the last place.
_MOST_MOVED, _UNITS = 1 << 30, 8
# Runs that may take long because they are the first.
_WARM_UP = 1


class ModuleTrials(Trials):
    """The original model. Its outputs are those that a recipe can name: the tensors at the top of
    what forward returns.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        seconds: float,
        progress: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(seconds, loaded.facts, clock or WorkClock(), progress)
        self._module = loaded.module
        self._nested = not loaded.of_transformers  # those of transformers' outputs are caches
        self._arguments: Arguments | None = None
        self._shapes_only: ShapesOnly | None = None
        self._long_runs = 0
        # NaN that the model writes means that there is no number, and is none in trials.
        self._writes_nan = False
        # Without sizes; empty until a run works.
        self.outputs: tuple[TensorSpec, ...] = ()

    def fill(self, inputs: Sequence[TensorSpec]) -> None:
        """From now on, call forward with the structures that inputs reach into.

        Raises StageFailedError for inputs that no structure can be made of.
        """
        self._arguments = Arguments(self._module, inputs)

    def ignore_written_nan(self) -> None:
        """From now on, put numbers in place of NaN that the model's own code writes."""
        self._writes_nan = True

    def arguments(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """Return forward's arguments of the inputs' tensors."""
        return dict(tensors) if self._arguments is None else self._arguments.of(tensors)

    @property
    def _on_values(self) -> bool:
        return self._exactly

    def _on_shapes(
        self, inputs: tuple[TensorSpec, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> SizeTrial | None:
        if self._shapes_only is None or self._exactly:
            return None
        found = self._shapes_only.run(inputs, shapes)
        return None if found is None else SizeTrial(found)

    def _drawn_and_fed(
        self,
        inputs: tuple[TensorSpec, ...],
        samples: Mapping[str, Sample],
        sizes: Mapping[str, int],
        draw: Draw,
    ) -> SizeTrial:
        started = self._clock()
        trial = super()._drawn_and_fed(inputs, samples, sizes, draw)
        is_long = self._clock() - started > _LONG_RUN  # large inputs take long to draw
        if trial.worked and is_long and self._shapes_only is None:
            self._long_runs += 1
            if self._long_runs > _WARM_UP:
                self._shapes_only = ShapesOnly(self._module, self.arguments, self._named)
        return trial

    def values(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Return the outputs' values, regardless of the time; None if the model does not run."""
        try:
            returned = self._call(feeds)
        except Exception:  # noqa: BLE001 - a model may raise anything
            return None
        return {name: to_array(each.tensor) for name, each in self._named(returned).items()}

    @property
    def moves_weights(self) -> bool:
        """True if there are weights, few enough to be copied."""
        sizes = [each.numel() * each.element_size() for each in self._module.parameters()]
        return 0 < sum(sizes) <= _MOST_MOVED

    def values_nearby(
        self, feeds: Mapping[str, np.ndarray], case: str
    ) -> dict[str, np.ndarray] | None:
        """Return the outputs' values, with weights of float32 a few units in the last place off,
        and results of operations as well if inputs cannot be.
        """
        if not self.moves_weights or isinstance(self._module, torch.jit.ScriptModule):
            return self.values(feeds)
        tensors = tensors_of(feeds)
        moves = reads_numbers_alone(self._module, tensors.values())
        weights = {
            name: torch.from_numpy(moved(name, to_array(each.detach()), case, _UNITS))
            for name, each in self._module.named_parameters()
            if each.dtype == torch.float32
        }
        try:
            with torch.no_grad(), Unsteady() if moves else contextlib.nullcontext():
                returned = torch.func.functional_call(
                    self._module, weights, (), self.arguments(tensors)
                )
        except Exception:  # noqa: BLE001 - a model may raise anything
            return None
        return {name: to_array(each.tensor) for name, each in self._named(returned).items()}

    def uses(self, feeds: Mapping[str, np.ndarray]) -> Uses:
        """Return what becomes of arguments in a call, also if that fails."""
        return argument_uses(self._module, tensors_of(feeds), self.arguments)

    def _named(self, returned: object) -> dict[str, NamedOutput]:
        return named_outputs(returned, nested=self._nested)

    def _call(self, feeds: Mapping[str, np.ndarray]) -> object:
        writes = WithoutWrittenNan() if self._writes_nan else contextlib.nullcontext()
        with torch.no_grad(), writes:
            return recording(
                self._module, lambda: self._module(**self.arguments(tensors_of(feeds)))
            )

    def _feed(self, feeds: Mapping[str, np.ndarray]) -> SizeTrial:
        started = self._clock()
        try:
            returned = self._call(feeds)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            return SizeTrial(None, f"{type(error).__name__}: {error}", self._clock() - started)
        seconds = self._clock() - started
        tensors = self._named(returned)
        if not tensors:
            return SizeTrial(
                None,
                f"forward returned a {type(returned).__name__}; it must return a tensor, a tuple of"
                " tensors, or named tensors (a dict, a named tuple, a dataclass)",
                seconds,
            )
        return self._noted(tensors, seconds)

    def _noted(self, outputs: Mapping[str, NamedOutput], seconds: float) -> SizeTrial:
        specs = []
        tensors = {name: each.tensor for name, each in outputs.items()}
        for name, value in tensors.items():
            dtype = contract_dtype(value.dtype)
            if dtype is None:
                return SizeTrial(
                    None, f"output {name!r} has the element type {value.dtype}", seconds
                )
            if value.is_floating_point() and bool(value.isnan().any()):
                return SizeTrial(None, f"output {name!r} has NaN", seconds, is_nan=True)
            specs.append(TensorSpec(name, dtype, (), outputs[name].origin))
        if self.outputs and {*self.outputs} != {*specs}:
            return SizeTrial(None, "other outputs than in the first run", seconds)
        self.outputs = self.outputs or tuple(specs)
        for name, value in tensors.items():
            self._note_magnitude(name, to_array(value))
        return SizeTrial({name: tuple(value.shape) for name, value in tensors.items()}, "", seconds)


def tensors_of(feeds: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return inputs as a module takes them."""
    return {name: _tensor(value) for name, value in feeds.items()}


class ShapesOnly:
    """A copy of a module without values, which runs in no time at any size.

    It cannot tell that a number is outside a table, and decides nothing by values.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        arguments: Callable[[Mapping[str, torch.Tensor]], dict[str, Any]],
        named: Callable[[object], dict[str, NamedOutput]],
    ) -> None:
        """`arguments` are forward's, of the inputs' tensors, `named` the outputs of what it
        returns.
        """
        self._arguments, self._named = arguments, named
        self._mode = FakeTensorMode()
        self._module: torch.nn.Module | None
        try:
            with FakeCopyMode(self._mode):
                self._module = copy.deepcopy(module)
        except Exception:  # noqa: BLE001 - some modules cannot be copied
            self._module = None

    def run(
        self, inputs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]] | None:
        """Return the outputs' shapes; None if the module must run on values to tell."""
        if self._module is None:
            return None
        try:
            with torch.no_grad(), self._mode:
                given = {
                    spec.name: torch.empty(shape, dtype=torch_dtype(spec.dtype))
                    for spec, shape in zip(inputs, shapes, strict=True)
                }
                returned = self._module(**self._arguments(given))
        except Exception:  # noqa: BLE001 - also for decisions by values; the run on values tells
            return None
        found = self._named(returned)
        return {name: tuple(each.tensor.shape) for name, each in found.items()} or None


def _tensor(values: np.ndarray) -> torch.Tensor:
    """Return values in their own type, bfloat16 too, which numpy has from ml_dtypes."""
    return to_tensor(values, cast("DType", dtype_name(values.dtype)))
