"""Writes to buffers in programs of torch.export."""

import pytest
import torch

from convkit.worker.building.unread_writes import drop_unread_writes


class Counting(torch.nn.Module):
    def __init__(self, *, scales: bool) -> None:
        super().__init__()
        self.scales = scales
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("level", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if self.scales:
            self.level.mul_(2.0).add_(self.count)
        return x * self.level


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # torch's own
@pytest.mark.parametrize(("scales", "left"), [(False, set()), (True, {"count", "level"})])
def test_what_an_output_reads_in_a_later_call_is_kept(scales: bool, left: set[str]) -> None:
    program = torch.export.export(Counting(scales=scales), (torch.ones(2, 3),))
    program = program.run_decompositions({})
    drop_unread_writes(program)
    assert set(program.graph_signature.buffers_to_mutate.values()) == left
    assert len(program.graph.find_nodes(op="output")[0].args[0]) == 1 + len(left)
    added = program.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    assert bool(added) is scales


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # torch's own
def test_a_write_to_a_weight_is_dropped() -> None:
    table = torch.nn.Embedding(5, 2, max_norm=1.0).requires_grad_(False)
    program = torch.export.export(table, (torch.tensor([1, 3]),)).run_decompositions({})
    assert len(program.graph.find_nodes(op="output")[0].args[0]) == 2
    drop_unread_writes(program)
    assert len(program.graph.find_nodes(op="output")[0].args[0]) == 1
