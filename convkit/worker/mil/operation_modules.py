"""Maps operations to modules of the model while coremltools still knows them: a saved package does
not.
"""

from collections.abc import Callable, Mapping
from typing import Any

from convkit.worker.mil.program import walk

# Returns the module that a coremltools operation belongs to; empty for the root.
ModuleOf = Callable[[Any], str]


def debug_handle(operation: Any) -> int | None:  # noqa: ANN401 - coremltools' Operation
    """Return the number that its torch node has in `meta["debug_handle"]`, if any."""
    from coremltools.converters.mil.mil.scope import ScopeSource

    handles = [
        each for each in operation.scopes.get(ScopeSource.EXIR_DEBUG_HANDLE, ()) if each is not None
    ]
    return int(handles[-1]) if handles else None


def module_path(operation: Any, paths: Mapping[int, str] | None = None) -> str:  # noqa: ANN401
    """Return the path of the module that an operation belongs to; empty if unknown.

    `paths` maps debug handles to modules; a TorchScript conversion contains the path itself.
    """
    from coremltools.converters.mil.mil.scope import ScopeSource

    handle = debug_handle(operation)
    if handle is not None and paths is not None and handle in paths:
        return paths[handle]
    names = operation.scopes.get(ScopeSource.TORCHSCRIPT_MODULE_NAME, ())
    return ".".join(str(each) for each in names if each)


def modules_by_tensor(program: Any, module_of: ModuleOf) -> dict[str, str]:  # noqa: ANN401
    """Return the module path of every tensor of a coremltools Program, by the tensor's name.

    Names survive saving, so the result can be stored next to the package and passed to an
    `Evaluator`.
    """
    found: dict[str, str] = {}
    for function in program.functions.values():
        for operation in walk(function):
            path = module_of(operation)
            if path:
                found |= {var.name: path for var in operation.outputs}
    return found
