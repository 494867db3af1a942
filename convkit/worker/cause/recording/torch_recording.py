"""Records one call of the original: operations, values, modules and source lines."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from convkit.worker.cause.recording.operation_replay import replay_of
from convkit.worker.cause.recording.recorded_call import Operation, Recording, Value
from convkit.worker.original.dispatch_mode import FunctionMode, OperationMode
from convkit.worker.original.source_lines import calling_positions, innermost_line
from convkit.worker.original.torch_dtypes import to_array

# torch's recurrent layers; those over more steps than these are recorded as one operation each.
_RECURRENT, _STEPS = ("gru", "lstm", "rnn_tanh", "rnn_relu"), 32


def record(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: tuple[str, ...],
    *,
    wrapper: str = "",
    root: str | None = None,
) -> Recording:
    """Call a module once with tensors in order and record the result of each aten operation.

    The module returns a tensor or a tuple of them, in the order of `outputs`. `wrapper` is the
    attribute that contains the model ("" for none), which module paths and weights' names omit.
    Raises the module's exceptions.
    """
    recorder = _Recorder(module, inputs, wrapper, root)
    # Fused attention hides its intermediate results; decomposed, it agrees to the last bits.
    with (
        torch.no_grad(),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        recorder.modules(),
        recorder,
        _WholeLayers(recorder),
    ):
        found = module(*inputs.values())
    tensors = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
    named = {name: recorder.value(t) for name, t in zip(outputs, tensors, strict=True)}
    return recorder.recording(named)


def state_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return a module's weights and buffers by path, in the order of modules: a norm's weights
    follow those of the layer before it.
    """
    return {
        f"{path}.{name}" if path else name: to_array(tensor)
        for path, part in module.named_modules(remove_duplicate=False)
        for tensors in (part.named_parameters, part.named_buffers)
        for name, tensor in tensors(recurse=False)
    }


class _WholeLayers(FunctionMode):
    """Records a recurrent layer over many steps as one operation.

    torch decomposes it into a dozen operations a step, whose recording takes dozens of times as
    long as the layer, and to which nothing corresponds in a graph that has the layer as one node.
    """

    def __init__(self, recorder: "_Recorder") -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        name = getattr(func, "__name__", "")
        if name in _RECURRENT and max(args[0].shape[:-1]) > _STEPS:
            return self._recorder.layer(name, func, args, kwargs or {})
        return func(*args, **kwargs or {})


class _Recorder(OperationMode):
    def __init__(
        self,
        module: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        wrapper: str,
        root: str | None,
    ) -> None:
        super().__init__()
        self._root = root
        self._names = {id(each): _without(name, wrapper) for name, each in module.named_modules()}
        self._path: list[str] = []
        self._operations: list[Operation] = []
        self._values: list[Value] = []
        self._known: dict[tuple[int, int], int] = {}
        self._latest: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []  # keeps every id its own
        self._written: dict[int, int] = {}  # the operation that last wrote to a storage
        named: dict[int, str] = {}
        for tensors in (
            module.named_parameters(remove_duplicate=False),
            module.named_buffers(remove_duplicate=False),
        ):
            for name, tensor in tensors:
                named.setdefault(id(tensor), _without(name, wrapper))
        self._weights = named
        for name, tensor in inputs.items():
            self._add(tensor, producer=None, name=name, kind="input")

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Follow which module is running."""
        hooks = torch.nn.modules.module
        handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: torch.nn.Module, arguments: object) -> None:  # noqa: ARG002
        self._path.append(self._names.get(id(module), self._path[-1] if self._path else ""))

    def _leave(self, module: torch.nn.Module, arguments: object, result: object) -> None:  # noqa: ARG002
        if self._path:
            self._path.pop()

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        inputs = tuple(
            self.value(each)
            for each in tree_leaves((args, kwargs))
            if isinstance(each, torch.Tensor)
        )
        replay = replay_of(function, args, kwargs, self.value, self._values)
        found = function(*args, **kwargs)
        index = len(self._operations)
        results = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
        if function._schema.is_mutable:  # noqa: SLF001 - torch has no public way
            for each in tree_leaves((args, kwargs)):
                if isinstance(each, torch.Tensor):
                    self._written[_storage(each)] = index
        operation = Operation(
            index=index,
            name=str(function).removeprefix("aten."),
            module=self._path[-1] if self._path else "",
            source=self._source(),
            inputs=inputs,
            outputs=tuple(self._add(each, producer=index) for each in results),
            scalars=_scalars(function, args, kwargs),
            replay=replay,
        )
        self._operations.append(operation)
        return found

    def layer(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Any,  # noqa: ANN401
    ) -> object:
        """Run a layer of many operations as one, which is recorded."""
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        inputs = tuple(self.value(each) for each in given)
        self.__exit__(None, None, None)
        try:
            found = function(*args, **kwargs)
        finally:
            self.__enter__()
        index = len(self._operations)
        results = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
        module, source = self._path[-1] if self._path else "", self._source()
        outputs = tuple(self._add(each, producer=index) for each in results)
        self._operations.append(Operation(index, name, module, source, inputs, outputs, ()))
        return found

    def value(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's present value, which is noted if it is new."""
        known = self._known.get((id(tensor), _version(tensor)))
        if known is not None:
            return known
        weight = self._weights.get(id(tensor))
        if weight is not None:
            return self._add(tensor, producer=None, name=weight, kind="weight")
        writer = self._written.get(_storage(tensor))
        if writer is None and id(tensor) in self._latest:
            # Nothing has written to it. A view gets its base's version only after it is created,
            # and a weight has already been written to by its initialization.
            return self._latest[id(tensor)]
        if writer is None:  # made before the recording began
            return self._add(tensor, producer=None, kind="constant")
        return self._rewritten(tensor, writer)

    def _rewritten(self, tensor: torch.Tensor, writer: int) -> int:
        """Record a tensor that was written to through another view of the same memory."""
        before = self._latest.get(id(tensor))
        written = self._operations[writer].outputs
        index = len(self._operations)
        operation = dataclasses.replace(
            self._operations[writer],
            index=index,
            inputs=(*written, *(() if before is None else (before,))),
            outputs=(),
        )
        self._operations.append(operation)
        value = self._add(tensor, producer=index)
        self._operations[index] = dataclasses.replace(operation, outputs=(value,))
        return value

    def _add(
        self, tensor: torch.Tensor, *, producer: int | None, name: str = "", kind: str = ""
    ) -> int:
        key = id(tensor), _version(tensor)
        if producer is not None and key in self._known and kind == "":
            old = self._values[self._known[key]]
            if old.producer is None:  # an operation that returns its input
                return old.index
        index = len(self._values)
        self._alive.append(tensor)
        self._known[key] = index
        self._latest[id(tensor)] = index
        self._values.append(Value(index, to_array(tensor), producer, name, kind))
        return index

    def _source(self) -> str | None:
        caller = sys._getframe(2)  # noqa: SLF001
        return innermost_line(calling_positions(caller), self._root)

    def recording(self, outputs: dict[str, int]) -> Recording:
        """Return the recording."""
        return Recording(tuple(self._operations), tuple(self._values), outputs)


def _scalars(function: Any, args: Any, kwargs: Any) -> tuple[tuple[str, object], ...]:  # noqa: ANN401
    """Return the arguments that are not tensors, by the names of the operator's schema."""
    found = []
    for place, argument in enumerate(function._schema.arguments):  # noqa: SLF001
        value = (
            args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        )
        if isinstance(value, bool | int | float | str) or (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(each, bool | int | float) for each in value)
        ):
            found.append((argument.name, tuple(value) if isinstance(value, list) else value))
    return tuple(found)


def _without(name: str, wrapper: str) -> str:
    if not wrapper:
        return name
    return "" if name == wrapper else name.removeprefix(f"{wrapper}.")


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _version(tensor: torch.Tensor) -> int:
    return int(tensor._version)  # noqa: SLF001
