"""The model of most faults of the contract: start and end of an answer, from three inputs."""

from typing import Any

import onnx
import torch

from faults.exporting import exported

# What a BERT is to its contract: three inputs of one type and shape, each of which matters in its
# own way.
NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)
        self.types = torch.nn.Embedding(50, 8)
        self.start = torch.nn.Linear(8, 1)
        self.end = torch.nn.Linear(8, 1)

    def forward(self, input_ids, attention_mask, token_type_ids):
        x = self.words(input_ids) + 2 * self.types(token_type_ids)
        mask = attention_mask.unsqueeze(-1).to(x.dtype)
        mean = (x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        x = torch.tanh(x + mean)
        return {"start_logits": self.start(x).squeeze(-1), "end_logits": self.end(x).squeeze(-1)}

def build():
    return Net()
"""
AXES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "sequence": {"min": 2, "typical": 6, "max": 12},
}
NAMES = {0: "batch", 1: "sequence"}
ROWS = ["batch", "sequence"]
IDS = {"name": "input_ids", "dtype": "int64", "shape": ROWS, "sample": {"integers": [1, 50]}}
MASK = {"name": "attention_mask", "dtype": "int64", "shape": ROWS, "sample": "padding_mask"}
TYPES = {"name": "token_type_ids", "dtype": "int64", "shape": ROWS, "sample": {"integers": [0, 2]}}
START = {"name": "start_logits", "dtype": "float32", "shape": ROWS}
END = {"name": "end_logits", "dtype": "float32", "shape": ROWS}
SIGNATURE: dict[str, Any] = {"axes": AXES, "inputs": [IDS, MASK, TYPES], "outputs": [START, END]}
OUTPUTS = ("start_logits", "end_logits")
ADOPTED = "the file was exported elsewhere; a recipe cannot change its contents"


def rows(limit: int) -> torch.Tensor:
    return torch.arange(12).reshape(2, 6) % limit


def net(
    *names: str, code: str = NET, outputs: tuple[str, ...] = OUTPUTS, **options: Any
) -> onnx.ModelProto:
    """Export the model with these names for its three inputs, in forward's order."""
    inputs = dict(
        zip(
            names or ("input_ids", "attention_mask", "token_type_ids"),
            map(rows, (50, 2, 2)),
            strict=True,
        )
    )
    return exported(code, inputs, outputs, axes=NAMES, **options)
