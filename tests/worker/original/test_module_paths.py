"""Paths of modules that are shared and taken out of lists by slices."""

import pytest
import torch

from convkit.worker.original.module_paths import settle_paths, settled_path


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).relu()


class Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = Block()
        self.rows = torch.nn.ModuleList(
            torch.nn.ModuleList([Block(), shared, Block()]) for _ in range(2)
        )
        self.last = torch.nn.Sequential(Block(), shared, Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for row in self.rows:
            for block in row[1:]:
                x = block(x)
        return self.last[1:](x)


def test_operations_have_the_paths_of_the_model() -> None:
    module = Shared()
    program = torch.export.export(module, (torch.ones(2, 4),), strict=False)

    def paths() -> list[str]:
        stacks = [node.meta.get("nn_module_stack") or {} for node in program.graph.nodes]
        return [[*stack.values()][-1][0] for stack in stacks if stack]

    assert any("slice(" in path for path in paths())
    settle_paths(program, module)
    relu = [path for path in dict.fromkeys(paths()) if not path.endswith("fc")]
    assert relu == ["rows.0.1", "rows.0.2", "rows.1.1", "rows.1.2", "last.1", "last.2"]


@pytest.mark.parametrize(
    ("path", "settled"),
    [
        ("rows.slice(-1, None, None).0.slice(None, None, -1).0.fc", "rows.1.2.fc"),
        ("rows.slice(0, 1, None).slice(0, 1, None).0.2", "rows.0.2"),
        ("last.slice(1, None, None)", "last"),
        ("rows.0.1", "rows.0.1"),
        ("rows.slice(1, None, None).7", "rows.slice(1, None, None).7"),
    ],
)
def test_slices_are_followed(path: str, settled: str) -> None:
    assert settled_path(Shared(), path) == settled
