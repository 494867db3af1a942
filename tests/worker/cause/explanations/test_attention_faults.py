"""Mistakes that export scripts make in attention, found in the whole graph."""

import io
import warnings

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Diagnosis


class Decoder(torch.nn.Module):
    """A layer with rotary embeddings and grouped heads, and what is `wrong` with it."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong
        self.words = torch.nn.Embedding(20, 8)
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        self.value, self.out = torch.nn.Linear(8, 4), torch.nn.Linear(8, 8)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        rates = 100.0 ** (-torch.arange(0, 4, 2).float() / 4)
        angles = torch.arange(x.shape[2]).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)
        if self.wrong == "rotary":
            pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        else:
            a, b = x.chunk(2, -1)
            pairs = torch.cat([-b, a], -1)
        return x * angles.cos() + pairs * angles.sin()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        if self.wrong != "embedding":
            x = x * 4.0
        q = self.turned(self.query(x).unflatten(-1, (2, 4)).transpose(1, 2))
        k = self.turned(self.key(x).unflatten(-1, (1, 4)).transpose(1, 2))
        v = self.value(x).unflatten(-1, (1, 4)).transpose(1, 2)
        k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        scores = q @ k.transpose(-1, -2) / (4.0 if self.wrong == "scale" else 2.0)
        if self.wrong != "mask":
            hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        logits = (x + self.out(mixed)) @ self.words.weight.T
        return logits if self.wrong == "cap" else 5.0 * torch.tanh(logits / 5.0)


def diagnosed(wrong: str) -> Diagnosis:
    """Export a decoder with a mistake and search for it."""
    torch.manual_seed(0)
    right, mistaken = Decoder().eval(), Decoder(wrong).eval()
    mistaken.load_state_dict(right.state_dict())
    given = {"ids": torch.arange(12).reshape(2, 6)}
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations and what it says about tracing
        torch.onnx.export(
            mistaken,
            tuple(given.values()),
            stream,
            dynamo=False,
            input_names=["ids"],
            output_names=["logits"],
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(stream.getvalue())))
    feeds: dict[str, np.ndarray] = {name: each.numpy() for name, each in given.items()}
    state = {name: each.numpy() for name, each in right.state_dict().items()}
    return localize(record(right, given, ("logits",)), graph, feeds, state)


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        # Queries and keys are both wrong: correcting one alone makes no output right.
        ("rotary", "order", "the rotary embedding turns pairs of neighboring elements"),
        # Beside -1e9, the difference between the scores is nothing.
        ("scale", "constant", "is 4 and should be 2"),
        ("mask", "missing", "the mask does not hide the future (a causal mask)"),
        # Several nodes read what was not scaled.
        ("embedding", "missing", "lacks"),
        ("cap", "missing", "its output lacks the original's div 5, tanh, mul 5"),
    ],
)
@pytest.mark.sampled(2)
def test_a_mistake_in_attention_is_named(wrong: str, kind: str, text: str) -> None:
    diagnosis = diagnosed(wrong)
    assert diagnosis.error > 1e-2
    assert diagnosis.remaining <= 2e-5
    assert kind in [cause.kind for cause in diagnosis.causes]
    assert text in diagnosis.causes[0].text


def test_a_right_export_has_no_causes() -> None:
    assert not diagnosed("").causes
