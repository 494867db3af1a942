"""Follows the operations of one call of the original, and where in its code each one is."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from convkit.worker.original.dispatch_mode import FunctionMode, OperationMode
from convkit.worker.original.source_lines import calling_positions, innermost_line

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule


class PlacedOperations(OperationMode):
    """A dispatch mode that knows the line and the module of the operation that runs.

    `root` is the folder of the model's own source files.
    """

    def __init__(self, module: "ContractModule", root: str | None) -> None:
        super().__init__()
        self._root = root
        self._paths = {id(each): path for path, each in module.model.named_modules()}

    def place(self) -> tuple[str | None, str]:
        """Return the innermost line of the model's own code, and the path of the module that is
        running. Call it from `operation`.
        """
        caller = sys._getframe(2)  # noqa: SLF001
        module = None
        frame: FrameType | None = caller
        while frame is not None and module is None:
            module = self._paths.get(id(frame.f_locals.get("self")))
            frame = frame.f_back
        return innermost_line(calling_positions(caller), self._root), module or ""


def written_tensors(
    function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operation writes to."""
    for at, argument in enumerate(function._schema.arguments):  # noqa: SLF001 - no other way
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[at] if at < len(args) else kwargs.get(argument.name)
        if isinstance(value, torch.Tensor):
            yield value


def operator_name(function: object) -> str:
    """Return the name of what torch dispatches, without overload: `fft_rfft`."""
    return str(function).removeprefix("aten.").partition(".")[0]


def leaves_memory(operator: str) -> bool:
    """Return True for operators whose result is uninitialized memory."""
    return operator.startswith(("empty", "new_empty"))


def place_of_operator(
    module: "ContractModule", inputs: Sequence[torch.Tensor], operator: str, root: str | None
) -> tuple[str | None, str] | None:
    """Return the line and the module of the first call of an aten operator (`fft_rfft`, without
    overload), or None if a run on copies of the inputs does not show it.
    """
    functions, operations = _Calls(operator, module, root), _Operations(operator, module, root)
    with torch.no_grad(), contextlib.suppress(Exception), functions, operations:
        module(*(tensor.clone() for tensor in inputs))
    return operations.found or functions.found


class _Operations(PlacedOperations):
    """Finds an operator where torch dispatches it."""

    def __init__(self, operator: str, module: "ContractModule", root: str | None) -> None:
        super().__init__(module, root)
        self._operator = operator
        self.found: tuple[str | None, str] | None = None

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        if self.found is None and str(function).split(".")[1:2] == [self._operator]:
            self.found = self.place()
        return function(*args, **kwargs)


class _Calls(FunctionMode):
    """Finds an operator where Python calls it: torch dispatches some only in parts."""

    def __init__(self, operator: str, module: "ContractModule", root: str | None) -> None:
        super().__init__()
        self._operator = operator
        self._places = PlacedOperations(module, root)
        self.found: tuple[str | None, str] | None = None

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        if self.found is None and getattr(func, "__name__", "") == self._operator:
            self.found = self._places.place()
        return func(*args, **(kwargs or {}))
