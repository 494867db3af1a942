"""torch's two kinds of modes, with what all of ours need: an operation is one method, and control
flow that is data (`torch.cond`) runs as it is written.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class UncompiledMode:
    """A mode under which nothing is compiled: torch.cond, while_loop, scan, map and flex_attention
    compile what they are given, and torch's compiler refuses foreign modes. Compiled once under
    one, such code would fail without it as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self._compiler: list[contextlib.ExitStack] = []

    def __enter__(self) -> Self:
        self._compiler.append(contextlib.ExitStack())
        self._compiler[-1].enter_context(uncompiled())
        return super().__enter__()  # type: ignore[misc]  # torch's mode

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)  # type: ignore[misc]  # torch's mode
        self._compiler.pop().close()


class FunctionMode(UncompiledMode, TorchFunctionMode):
    """A mode that sees torch's functions as Python calls them."""


class OperationMode(UncompiledMode, TorchDispatchMode):
    """Calls `operation` for every operation that torch dispatches while the mode is on, also for
    those inside of torch.cond and loops.
    """

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if isinstance(func, HigherOrderOperator):
            return self._control_flow(func, args, kwargs or {})
        return self.operation(func, args, kwargs or {})

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch would import its compiler, which takes a second, to keep it out of the method above.
        return False

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """Run one operation and return its result."""
        return function(*args, **kwargs)

    def _control_flow(
        self, function: HigherOrderOperator, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        """Run an operator that calls functions, such as the two sides of torch.cond, with this mode
        on in each.
        """
        args = tuple(args)
        if function is torch.ops.higher_order.cond and isinstance(args[0], torch.Tensor):
            with self:  # a decision about a value, like that of Python's `if`
                args = (bool(args[0]), *args[1:])
        return function(*tree_map(self._inside, args), **tree_map(self._inside, dict(kwargs)))

    def _inside(self, argument: object) -> object:
        if not callable(argument) or isinstance(argument, torch.Tensor):
            return argument

        def called(*args: object, **kwargs: object) -> object:
            with self:
                return argument(*args, **kwargs)

        return called


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Inside the block, what is compiled runs as it is written."""
    if "torch._dynamo" in sys.modules:  # it takes a second to import, so only what has it asks it
        with torch.compiler.set_stance("force_eager"):
            yield
        return
    compiler, torch.compile = torch.compile, _as_written
    try:
        yield
    finally:
        torch.compile = compiler


def _as_written(function: Callable[..., Any] | None = None, **options: object) -> Any:  # noqa: ANN401 - as torch.compile
    del options
    return function if function is not None else lambda decorated: decorated
