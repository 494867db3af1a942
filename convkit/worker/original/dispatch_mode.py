"""A torch dispatch mode as one method: it runs an operation, and sees what torch dispatches."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):
    """Calls `operation` for every operation that torch dispatches while the mode is on."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
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
