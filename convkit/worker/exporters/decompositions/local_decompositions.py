"""Decomposes a traced program call by call.

To decompose operators, torch runs the whole program again (`ExportedProgram.run_decompositions`),
which takes longer than the first trace. But most operators stay as they are, and the others are
called alike in every layer. Here each distinct call is traced once, and the operators that it
consists of take its place.
"""

import contextlib
import copy
import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._export.utils as torch_utils
from torch._dispatch.python import enable_python_dispatcher
from torch._export.verifier import Verifier
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

Table = Mapping[Any, Callable[..., Any]]
# The release whose internals this follows, and with which its graphs were compared.
_TORCH = "2.13."
# Modules of the functions that compute sizes.
_SYMBOLIC = ("_operator", "math", "torch")
# They return what they are given, as long as nothing changes tensors in place.
_SAME = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.detach_.default)
_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


class _NotLocalError(Exception):
    """A program, or one of its calls, can only be decomposed as a whole."""


@contextlib.contextmanager
def decomposing_locally() -> Iterator[None]:
    """Let torch's ONNX exporter decompose call by call, inside the block.

    Programs that change tensors in place, branch, or call operators outside ATen are left to torch,
    and so are all programs under other releases of torch.
    """
    if not _follows_torch():
        yield
        return
    from torch.onnx._internal.exporter import _decomp, _fx_passes

    whole = _fx_passes.decompose_with_registry

    def decompose(program: torch.export.ExportedProgram, registry: Any) -> Any:  # noqa: ANN401 - torch's
        with _composites_read_once():
            translated = set(_decomp.get_onnx_implemented_overloads(registry))
            table = _decomp.create_onnx_friendly_decomposition_table(translated)
            return _locally(program, table, program.verifier) or whole(program, registry)

    _fx_passes.decompose_with_registry = decompose
    try:
        yield
    finally:
        _fx_passes.decompose_with_registry = whole


def run_decompositions(
    program: torch.export.ExportedProgram, table: Table
) -> torch.export.ExportedProgram:
    """Decompose a program as `ExportedProgram.run_decompositions` does, call by call if possible.

    Nodes keep their names, unlike those of a program that was traced again.
    """
    if not _follows_torch():
        return _as_a_whole(program, table)
    with _composites_read_once():
        found = _locally(program, table, Verifier)
        # Traced by itself, a call counts elements where the whole program multiplies sizes.
        if found is None or _counts_elements(found):
            return _as_a_whole(program, table)
        return found


def _as_a_whole(
    program: torch.export.ExportedProgram, table: Table
) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's deprecations of its own parts
        return program.run_decompositions(dict(table))


@contextlib.contextmanager
def _composites_read_once() -> Iterator[None]:
    """Inside the block, read torch's composite operators once: torch reads all of them for each of
    its thirty namespaces, several times per program.
    """
    read = torch_utils._materialize_cpp_cia_ops  # noqa: SLF001 - no public name
    torch_utils._materialize_cpp_cia_ops = functools.cache(read)  # noqa: SLF001
    try:
        yield
    finally:
        torch_utils._materialize_cpp_cia_ops = read  # noqa: SLF001


def _counts_elements(program: torch.export.ExportedProgram) -> bool:
    return any(node.target is torch.ops.aten.sym_numel.default for node in program.graph.nodes)


def _follows_torch() -> bool:
    return str(torch.__version__).startswith(_TORCH)


def _locally(
    program: torch.export.ExportedProgram, table: Table, verifier: type[Verifier]
) -> torch.export.ExportedProgram | None:
    """Return the program decomposed call by call; None if it can only be decomposed as a whole."""
    from torch.export.exported_program import (
        _override_composite_implicit_decomp,
        _special_op_to_preserve_cia,
        _split_decomp_table_to_cia_and_python_decomp,
    )

    composite, others = _split_decomp_table_to_cia_and_python_decomp(dict(table))
    kept = {each for each, how in composite.items() if how is _special_op_to_preserve_cia}
    # A composite with a kernel of its own, such as silu_backward, is not looked for among these.
    others |= {each: how for each, how in composite.items() if each not in kept}
    try:
        _check(program)
        with contextlib.ExitStack() as overridden, torch.no_grad():
            # Takes a third of a second, and many programs have nothing to decompose.
            override = functools.cache(
                lambda: overridden.enter_context(_override_composite_implicit_decomp(composite))
            )
            decomposition = _Decomposition(program, others, composite.keys(), kept, override)
            return decomposition.program(verifier)
    except Exception:  # noqa: BLE001 - what fails here may still work as a whole
        return None


def _check(program: torch.export.ExportedProgram) -> None:
    """Raise _NotLocalError unless each call's results depend on its arguments alone."""
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise _NotLocalError
    for node in program.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "call_function" or "unbacked_bindings" in node.meta:
            raise _NotLocalError
        if isinstance(node.target, OpOverload):
            if node.target.namespace != "aten" or _changes_arguments(node.target):
                raise _NotLocalError
        elif getattr(node.target, "__module__", "") not in _SYMBOLIC:
            raise _NotLocalError  # a branch, a loop


def _changes_arguments(target: OpOverload) -> bool:
    return bool(target._schema.is_mutable) and target not in _SAME  # noqa: SLF001 - no public name


class _Decomposition:
    """Copies a program's graph, with the operators that its calls consist of."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        table: Table,
        composite: Sequence[Any],
        kept: set[Any],
        override: Callable[[], object],
    ) -> None:
        self._program, self._table = program, table
        self._composite, self._kept = composite, kept
        self._override = override
        self._graph = Graph()
        # What each node of the program has become: a node, or several.
        self._became: dict[Node, Any] = {}
        # The first node that computes a size, by its formula.
        self._sizes: dict[str, Node] = {}
        self._traced: dict[object, GraphModule] = {}

    def program(self, verifier: type[Verifier]) -> torch.export.ExportedProgram:
        """Return the decomposed program; raises _NotLocalError."""
        for node in self._program.graph.nodes:
            self._became[node] = self._copied(node)
        self._graph.eliminate_dead_code(lambda node: node.op != "call_function" or _asserts(node))
        signature = copy.deepcopy(self._program.graph_signature)
        outputs = self._graph.output_node().args[0]
        assert isinstance(outputs, tuple)
        computed = {each for each in outputs if isinstance(each, Node) and each.op != "placeholder"}
        if len(computed) < len(outputs):
            raise _NotLocalError  # torch copies an input, or an output that is returned twice
        for spec, output in zip(signature.output_specs, outputs, strict=True):
            spec.arg.name = output.name
        return torch.export.ExportedProgram(
            root=GraphModule(self._program.graph_module, self._graph),
            graph=self._graph,
            graph_signature=signature,
            state_dict=self._program.state_dict,
            range_constraints=self._program.range_constraints,
            module_call_graph=self._program.module_call_graph,
            example_inputs=self._program.example_inputs,
            constants=self._program.constants,
            verifiers=[verifier],
        )

    def _copied(self, node: Node) -> Any:  # noqa: ANN401 - a node, or a nest of them
        if node.target is operator.getitem:
            several, index = self._became[node.args[0]], node.args[1]
            if not isinstance(several, Node):
                return several[index]
        if node.target in _SAME:
            return self._became[node.args[0]]
        if node.op == "call_function" and self._decomposes(node):
            return self._parts(node)
        copied = self._graph.node_copy(node, self._one)
        if node.op == "placeholder":
            copied.name = node.name  # a graph's own choice differs for `input`
        return self._remembered(copied)

    def _one(self, node: Node) -> Node:
        """Return the node that a node of the program has become."""
        one = self._became[node]
        if not isinstance(one, Node):
            raise _NotLocalError
        return one

    def _decomposes(self, node: Node) -> bool:
        target = node.target
        if not isinstance(target, OpOverload):
            return False
        if isinstance(node.meta.get("val"), _SIZES) or target in self._kept:
            return False
        known = target in self._table or target in self._composite
        return known or target._can_decompose()  # noqa: SLF001 - no public name

    def _remembered(self, node: Node) -> Node:
        if (formula := _formula(node.meta.get("val"))) is not None:
            self._sizes.setdefault(formula, node)
        return node

    def _parts(self, node: Node) -> Any:  # noqa: ANN401 - a node, or a nest of them
        """Insert the operators that a call consists of; return its results."""
        flat, form = pytree.tree_flatten((node.args, node.kwargs))
        nodes = list(dict.fromkeys(each for each in flat if isinstance(each, Node)))
        key = (node.target, str(form), tuple(_described(each, nodes) for each in flat))
        if key not in self._traced:
            self._traced[key] = self._trace(node, flat, form, nodes)
        inner: dict[Node, Node] = {}
        arguments = iter(nodes)
        for each in self._traced[key].graph.nodes:
            formula = _formula(each.meta.get("val"))
            if each.op == "placeholder":
                inner[each] = self._one(next(arguments))
            elif each.op == "output":
                return torch.fx.node.map_arg(each.args[0], inner.__getitem__)
            elif formula in self._sizes:
                inner[each] = self._sizes[formula]
            else:
                inner[each] = self._graph.node_copy(each, inner.__getitem__)
                inner[each].meta = {**node.meta, "val": each.meta.get("val")}
                self._remembered(inner[each])
        raise AssertionError("a graph without outputs")

    def _trace(
        self, node: Node, flat: list[Any], form: pytree.TreeSpec, nodes: list[Node]
    ) -> GraphModule:
        """Return a call's graph, whose inputs are `nodes`."""
        values = [each.meta["val"] for each in nodes]
        modes = (each.fake_mode for each in values if isinstance(each, FakeTensor))
        mode = next(modes, None)
        if mode is None:
            raise _NotLocalError

        def call(*given: object) -> object:
            named = dict(zip(nodes, given, strict=True))
            inputs = [named[each] if isinstance(each, Node) else each for each in flat]
            args, kwargs = pytree.tree_unflatten(inputs, form)
            return node.target(*args, **kwargs)

        self._override()
        with mode, enable_python_dispatcher():
            graph = make_fx(call, decomposition_table=dict(self._table))(*values)
        for each in graph.graph.nodes:
            if each.op not in ("placeholder", "call_function", "output"):
                raise _NotLocalError  # a constant
            if isinstance(each.target, OpOverload) and _changes_arguments(each.target):
                raise _NotLocalError
        return graph


def _asserts(node: Node) -> bool:
    return "assert" in str(node.target) or "constrain_range" in str(node.target)


def _formula(value: object) -> str | None:
    """Return the formula of a size that is known at run time only."""
    return str(value.node.expr) if isinstance(value, torch.SymInt) else None


def _described(argument: object, nodes: list[Node]) -> object:
    """Return what a trace depends on: arguments described alike are traced alike."""
    if not isinstance(argument, Node):
        return type(argument).__name__, repr(argument)
    value, place = argument.meta["val"], nodes.index(argument)
    if isinstance(value, torch.Tensor):
        sizes = (*map(str, value.shape), "by", *map(str, value.stride()))
        return place, value.dtype, value.device, value.layout, sizes, value.requires_grad
    return place, _formula(value) or repr(value)
