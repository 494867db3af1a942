"""The paths of modules in a trace, as the model has them.

Where modules are shared, torch.export writes what Python evaluated: `blocks.slice(1, None, None).0`
for the first of `blocks[1:]`.
"""

import re

import torch

_SLICE = re.compile(r"slice\((\S+), (\S+), (\S+)\)")
_STACK = "nn_module_stack"


def settle_paths(program: torch.export.ExportedProgram, module: torch.nn.Module) -> None:
    """Give the operations of a module's trace the paths that its modules have, in place."""
    for graph in program.graph_module.modules():
        for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
            stack = node.meta.get(_STACK) or {}
            if any("slice(" in path for path, _ in stack.values()):
                node.meta[_STACK] = {
                    key: (settled_path(module, path), kind) for key, (path, kind) in stack.items()
                }


def settled_path(module: torch.nn.Module, path: str) -> str:
    """Return a path without slices; as it is if the module has no such parts."""
    found: list[str] = []
    at, whole = module, None
    try:
        for part in path.split("."):
            if match := _SLICE.fullmatch(part):
                whole = at if whole is None else whole
                at = at[slice(*(None if each == "None" else int(each) for each in match.groups()))]
                continue
            at = getattr(at, part)
            own = None if whole is None else _name_in(whole, at)
            found.append(part if own is None else own)
            whole = None
    except (AttributeError, TypeError, ValueError):
        return path
    return ".".join(found)


def _name_in(module: torch.nn.Module, part: torch.nn.Module) -> str | None:
    return next((name for name, each in module.named_children() if each is part), None)
