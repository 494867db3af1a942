"""Archives of one small model, as TorchScript and torch.export write them."""

import warnings
from pathlib import Path

import torch

SHAPES = {
    "axes": {"batch": {"min": 1, "typical": 3, "max": 8}},
    "inputs": [
        {"name": "x", "dtype": "float32", "shape": ["batch", 8]},
        {"name": "y", "dtype": "float32", "shape": ["batch", 8]},
    ],
    "outputs": [{"name": "out", "dtype": "float32", "shape": ["batch", 3]}],
}


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.relu(self.linear(x)))


class Branching(torch.nn.Module):
    """Decides by values: a trace would keep one side."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Body()
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            x = x + 1
        return self.head(self.body(x) - y)


class Named(torch.nn.Module):
    """Takes `y` by keyword, and returns outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Body()
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.head(self.body(x) - y)}


def save_script(path: Path) -> Branching:
    """Save a scripted module in training mode, and return the module."""
    torch.manual_seed(0)
    module = Branching()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # archives outlive torch.jit
        torch.jit.script(module).save(str(path))
    return module.eval()


def save_exported(path: Path) -> Named:
    """Save an exported program with an open batch, and return its module."""
    torch.manual_seed(0)
    module = Named().eval()
    batch = torch.export.Dim("batch", min=1, max=8)
    given = torch.randn(3, 8), torch.randn(3, 8)
    program = torch.export.export(
        module, given[:1], {"y": given[1]}, dynamic_shapes={"x": {0: batch}, "y": {0: batch}}
    )
    torch.export.save(program, path)
    return module
