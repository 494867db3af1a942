"""`torch.cond` and `while_loop`, as ML programs' own branches and loops: coremltools 9.0 reads them
from TorchScript only.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

# Where a branch or a loop keeps its graphs while coremltools converts it: it reads metadata, but no
# arguments that are graphs.
_GRAPHS = "convkit_graphs"
_CARRIED = "convkit_carried"


def all_graphs(program: torch.export.ExportedProgram) -> list[tuple[str, GraphModule]]:
    """Return a program's graphs with their names: its own, "", and those of branches and loops."""
    found = program.graph_module.named_modules()
    return [(name, each) for name, each in found if isinstance(each, GraphModule)]


def all_nodes(program: torch.export.ExportedProgram) -> list[Node]:
    """Return the nodes of all of a program's graphs."""
    return [node for _, graph in all_graphs(program) for node in graph.graph.nodes]


def name_apart(program: torch.export.ExportedProgram) -> None:
    """Give nodes of inner graphs names that no other node has."""
    for name, graph in all_graphs(program):
        prefix = f"{name.replace('.', '_')}__"
        for node in graph.graph.nodes if name else ():
            if not node.name.startswith(prefix):
                node._rename(prefix + node.name)  # noqa: SLF001 - no public name


@contextlib.contextmanager
def readable(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Inside the block, coremltools can read a program's branches and loops."""
    hidden: list[tuple[Node, tuple[Any, ...]]] = []
    for node in all_nodes(program):
        inner = [each for each in node.args if _is_graph(each)]
        if node.op != "call_function" or not inner:
            continue
        owner = node.graph.owning_module
        hidden.append((node, node.args))
        node.meta[_GRAPHS] = [getattr(owner, str(each.target)) for each in inner]
        others = [each for each in node.args if not _is_graph(each)]
        node.meta[_CARRIED] = len(others[0]) if isinstance(others[0], Sequence) else 0
        node.args = tuple(_flat(others))
    taken = [(n, n.target) for n in all_nodes(program) if _is_graph(n)]
    for node, _ in taken:
        node.op = "placeholder"  # which coremltools passes over
    try:
        yield
    finally:
        for node, _ in taken:
            node.op = "get_attr"
        for node, args in hidden:
            node.args = args
            del node.meta[_GRAPHS], node.meta[_CARRIED]


def branch(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    """`torch.cond`."""
    from coremltools.converters.mil.mil import Builder

    condition, *operands = _given(context, node)
    if condition.rank:
        condition = Builder.squeeze(x=condition)
    one, other = (_converted(context, each, operands) for each in node.meta[_GRAPHS])
    found = Builder.cond(pred=condition, _true_fn=one, _false_fn=other, name=node.name)
    context.add(found if isinstance(found, tuple | list) else (found,), node.name)


def loop(context: Any, node: Any) -> None:  # noqa: ANN401
    """`while_loop`."""
    from coremltools.converters.mil.mil import Builder

    given = _given(context, node)
    count = node.meta[_CARRIED]
    carried, others = given[:count], given[count:]
    condition, body = (_converted(context, each, others) for each in node.meta[_GRAPHS])

    def goes_on(*values: Any) -> Any:  # noqa: ANN401
        (found,) = condition(*values)
        return Builder.squeeze(x=found) if found.rank else found

    found = Builder.while_loop(_cond=goes_on, _body=body, loop_vars=tuple(carried), name=node.name)
    context.add(found if isinstance(found, tuple | list) else (found,), node.name)


def make_savable(program: Any) -> None:  # noqa: ANN401 - a coremltools Program
    """Leave out the list of operations by torch's numbers that coremltools saves beside a program,
    if it has branches or loops: it cannot write that list then.
    """
    from coremltools.converters.mil.mil.scope import ScopeSource

    for function in program.functions.values():
        if any(operation.blocks for operation in function.operations):
            function._essential_scope_sources = [  # noqa: SLF001 - no public name
                each
                for each in function._essential_scope_sources  # noqa: SLF001
                if each != ScopeSource.EXIR_DEBUG_HANDLE
            ]


def _is_graph(given: object) -> bool:
    if not isinstance(given, Node) or given.op not in ("get_attr", "placeholder"):
        return False
    owner = given.graph.owning_module
    return isinstance(getattr(owner, str(given.target), None), GraphModule)


def _flat(given: Any) -> list[Any]:  # noqa: ANN401
    if isinstance(given, Sequence):
        return [inner for each in given for inner in _flat(each)]
    return [given]


def _given(context: Any, node: Any) -> list[Any]:  # noqa: ANN401
    """Return a node's operands as variables."""
    from coremltools.converters.mil.mil import Builder

    return [
        context[each] if isinstance(each, str) else Builder.const(val=each) for each in node.inputs
    ]


def _converted(context: Any, graph: GraphModule, others: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the function that writes a graph's operations, given the variables of a loop, and
    returns its results.
    """
    from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode
    from coremltools.converters.mil.frontend.torch.ops import convert_single_node
    from coremltools.converters.mil.mil import Builder, types

    def write(*values: Any) -> list[Any]:  # noqa: ANN401
        given = [*values, *others]
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        names = [name for name in names if name not in held]
        context.push((names, given))
        for node in graph.graph.nodes:
            if node.op == "call_function":
                convert_single_node(context, InternalTorchIRNode.from_exir_node(node))
            elif node.op == "get_attr":
                tensor = getattr(graph, str(node.target)).detach().numpy()
                context.add(Builder.const(val=tensor, name=node.name))
        results = [_result(context, each) for each in _flat(graph.graph.output_node().args[0])]
        context.pop()
        # A loop's variables keep their types, and each result is one of this block.
        kinds = [each.dtype for each in values] or [each.dtype for each in results]
        same = len(kinds) == len(results)
        return [
            Builder.identity(x=each)
            if not same or each.dtype == kind
            else Builder.cast(x=each, dtype=types.builtin_to_string(kind))
            for each, kind in zip(results, kinds if same else results, strict=True)
        ]

    held = {node.name for node in graph.graph.nodes if _is_graph(node)}
    return write


def _result(context: Any, given: Any) -> Any:  # noqa: ANN401
    from coremltools.converters.mil.mil import Builder

    return context[given.name] if isinstance(given, Node) else Builder.const(val=given)
