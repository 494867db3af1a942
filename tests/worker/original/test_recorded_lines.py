"""A traced operation's line is the one that computes it, in whichever function."""

import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters.dynamic_trace import trace
from convkit.worker.original.source_lines import source_line

NET = """
import torch

def helper(x):
    y = torch.exp(x)
    return y

class Net(torch.nn.Module):
    def forward(self, x):
        return self.method(x) + 1

    def method(self, x):
        return helper(torch.sin(x))
"""


def test_helpers_and_methods_have_lines_of_their_own(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(NET)
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(NET, str(file), "exec"), names)
    spec = TensorSpec("x", "float32", ("batch", 4))
    contract = Contract((spec,), (spec,), (Axis("batch", 1, 2, 4),))
    program = trace(names["Net"](), [torch.zeros(2, 4)], contract, str(tmp_path))
    lines = {
        node.target.__name__.partition(".")[0]: source_line(node.meta["stack_trace"], str(tmp_path))
        for node in program.graph.nodes
        if node.op == "call_function" and "stack_trace" in node.meta
    }
    assert lines == {"sin": "net.py:13", "exp": "net.py:5", "add": "net.py:10"}
