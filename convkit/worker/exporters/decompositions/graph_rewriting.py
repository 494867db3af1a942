"""A program's graph, copied with other values in place of some tensors, such as pairs of real ones
for complex ones.

Each operation on such values is traced by itself, and the operations found take its place.
"""

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensor
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from convkit.worker.exporters.decompositions.local_decompositions import run_decompositions

# Each round may bring forth operators that have to be decomposed in their turn.
_MOST_ROUNDS = 4


class UnrewrittenError(Exception):
    """An operation on such values that has no counterpart, as `node`."""

    def __init__(self, node: Node) -> None:
        super().__init__(f"{node.target} is not rewritten")
        self.node = node


def decomposed_where(
    program: torch.export.ExportedProgram,
    is_chosen: Callable[[Node], bool],
    table: Mapping[Any, Callable[..., object]],
) -> torch.export.ExportedProgram:
    """Return a program with chosen operators decomposed, as far as a table knows them."""
    for _ in range(_MOST_ROUNDS):
        chosen = {
            node.target: table[node.target]
            for node in program.graph.nodes
            if node.target in table and is_chosen(node)
        }
        if not chosen:
            break
        program = run_decompositions(program, chosen)
    return program


class GraphRewriting:
    """Copies a program's graph. A subclass says which operations are rewritten, and how."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        self._graph = Graph()
        self._state = dict(program.state_dict)
        self._constants = dict(program.constants)
        # What each node of the program has become: a node, or what stands for one.
        self.became: dict[Node, Any] = {}
        self.added: list[InputSpec] = []
        values = (node.meta.get("val") for node in program.graph.nodes)
        self._mode = next(each.fake_mode for each in values if isinstance(each, FakeTensor))

    def is_strange(self, node: Node) -> bool:
        """Say whether another value stands for a node's."""
        raise NotImplementedError

    def is_rewritten(self, node: Node) -> bool:
        """Say whether an operation takes or gives such values."""
        raise NotImplementedError

    def held(self, node: Node) -> Any:  # noqa: ANN401
        """Return what stands for a weight, a buffer or a constant."""
        raise NotImplementedError

    def rewritten(self, node: Node) -> Any:  # noqa: ANN401
        """Insert what an operation becomes; raises UnrewrittenError."""
        raise NotImplementedError

    def program(self) -> torch.export.ExportedProgram:
        program = self._program
        for node in program.graph.nodes:
            self.became[node] = self._copied(node)
        signature = copy.deepcopy(program.graph_signature)
        outputs = self._graph.output_node().args[0]
        assert isinstance(outputs, tuple)
        for spec, output in zip(signature.output_specs, outputs, strict=True):
            spec.arg.name = output.name
        signature.input_specs[:0] = self.added
        self._graph.eliminate_dead_code()
        return torch.export.ExportedProgram(
            root=GraphModule(program.graph_module, self._graph),
            graph=self._graph,
            graph_signature=signature,
            state_dict=self._state,
            range_constraints=program.range_constraints,
            module_call_graph=program.module_call_graph,
            example_inputs=program.example_inputs,
            constants=self._constants,
            verifiers=program.verifiers,
        )

    def _copied(self, node: Node) -> Any:  # noqa: ANN401 - a node, what stands for one, or a nest of them
        if node.op == "placeholder" and self.is_strange(node):
            return self.held(node)
        if node.op == "call_function" and self.is_rewritten(node):
            return self.rewritten(node)
        if node.target is operator.getitem:
            of, place = node.args
            if isinstance(several := self.became[of], list | tuple):  # its operation is rewritten
                return several[place]
        for each in node.all_input_nodes if node.op == "output" else ():
            if self.is_strange(each):
                raise UnrewrittenError(each)
        copied = self._graph.node_copy(node, self.became.__getitem__)
        if node.op == "placeholder":
            copied.name = node.name  # a graph's own choice differs for `input`
        return copied

    def replaced(self, node: Node, change: Callable[[torch.Tensor], torch.Tensor]) -> Node:
        """Change the tensor that a weight, a buffer or a constant holds; return its new node."""
        signature = self._program.graph_signature
        lifted = (
            signature.inputs_to_parameters
            | signature.inputs_to_buffers
            | signature.inputs_to_lifted_tensor_constants
        )
        name = lifted.get(node.name)
        if name is None:
            raise UnrewrittenError(node)
        for held in (self._state, self._constants):
            if name in held:
                changed = change(held[name])
                fake = self._mode.from_tensor(changed, static_shapes=True)
                is_parameter = isinstance(held[name], torch.nn.Parameter)
                held[name] = torch.nn.Parameter(changed) if is_parameter else changed
        copied = self._graph.node_copy(node, self.became.__getitem__)
        copied.name, copied.meta = node.name, {**node.meta, "val": fake}
        return copied

    def constant(self, name: str, values: np.ndarray) -> Node:
        """Add a constant in float32 to the program."""
        tensor = torch.from_numpy(values.astype(np.float32))
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            node = self._graph.placeholder(f"c_{name}")
        node.meta = {"val": self._mode.from_tensor(tensor, static_shapes=True)}
        self._constants[name] = tensor
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name)
        self.added.insert(0, spec)
        return node

    def inlined(self, node: Node, rule: Callable[..., Any]) -> Any:  # noqa: ANN401
        """Insert what a rule makes of an operation's arguments, as they have become."""
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), _Held)
        args, kwargs = pytree.tree_map(
            lambda each: self.became[each.node] if isinstance(each, _Held) else each, (args, kwargs)
        )
        return self.inlined_call(node, rule, args, kwargs)

    def inlined_call(
        self, node: Node, rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401
        flat, form = pytree.tree_flatten((tuple(args), dict(kwargs)))
        nodes = list(dict.fromkeys(each for each in flat if isinstance(each, Node)))
        forms: list[pytree.TreeSpec] = []

        def call(*given: object) -> list[Any]:
            named = dict(zip(nodes, given, strict=True))
            inputs = [named[each] if isinstance(each, Node) else each for each in flat]
            args, kwargs = pytree.tree_unflatten(inputs, form)
            results, found = pytree.tree_flatten(rule(*args, **kwargs))
            forms.append(found)
            return results

        with self._mode:
            traced = make_fx(call, tracing_mode="symbolic")(*(each.meta["val"] for each in nodes))
        inner: dict[Node, Node] = {}
        given = iter(nodes)
        for each in traced.graph.nodes:
            if each.op == "placeholder":
                inner[each] = next(given)
            elif each.op == "output":
                results = torch.fx.node.map_arg(each.args[0], inner.__getitem__)
                return pytree.tree_unflatten(list(results), forms[-1])
            elif each.op != "call_function":
                raise UnrewrittenError(node)  # a constant
            else:
                inner[each] = self._graph.node_copy(each, inner.__getitem__)
                inner[each].meta = {**node.meta, "val": each.meta.get("val")}
        raise AssertionError("a graph without outputs")


@dataclasses.dataclass(frozen=True)
class _Held:
    """A node among arguments, which torch would map again."""

    node: Node
