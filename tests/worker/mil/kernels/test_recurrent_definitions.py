"""Recurrent layers, against what Core ML's documentation defines, step by step."""

import numpy as np
import pytest
import torch
from mil_programs import assert_close, mb, run, small_program


def gates(parameter: torch.Tensor) -> np.ndarray:
    """Put torch's gates (input, forget, cell, output) into the program's order (input, forget,
    output, cell).
    """
    entry, forget, cell, out = parameter.detach().chunk(4)
    return torch.cat([entry, forget, out, cell]).numpy()


def lstm_weights(layer: torch.nn.LSTM, own: str = "", given: str = "") -> dict[str, np.ndarray]:
    weights = dict(layer.named_parameters())
    bias = weights["bias_ih_l0" + own] + weights["bias_hh_l0" + own]
    return {
        "weight_ih" + given: gates(weights["weight_ih_l0" + own]),
        "weight_hh" + given: gates(weights["weight_hh_l0" + own]),
        "bias" + given: gates(bias),
    }


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("every_step", [True, False])
def test_lstm(direction: str, every_step: bool) -> None:
    torch.manual_seed(0)
    both = direction == "bidirectional"
    layer = torch.nn.LSTM(3, 4, bidirectional=both)
    x, hidden, cell = torch.randn(5, 2, 3), torch.randn(1 + both, 2, 4), torch.randn(1 + both, 2, 4)
    weights = lstm_weights(layer) | (lstm_weights(layer, "_reverse", "_back") if both else {})
    turned = x.flip(0) if direction == "reverse" else x
    with torch.inference_mode():
        sequence, (last, last_cell) = layer(turned, (hidden, cell))
    sequence = sequence.flip(0) if direction == "reverse" else sequence

    def side_by_side(value: torch.Tensor) -> np.ndarray:
        return value.permute(1, 0, 2).reshape(2, -1).numpy()

    program = small_program(
        lambda x: mb.lstm(
            x=x,
            initial_h=side_by_side(hidden),
            initial_c=side_by_side(cell),
            direction=direction,
            output_sequence=every_step,
            **weights,
        ),
        {"x": ((5, 2, 3), "fp32")},
    )
    found = list(run(program, x=x.numpy()).outputs.values())
    expected = sequence.numpy() if every_step else side_by_side(last)[None]
    for value, wanted in zip(
        found, (expected, side_by_side(last), side_by_side(last_cell)), strict=True
    ):
        assert_close(value, wanted, steps=20)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_rnn(direction: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.RNN(3, 4, bias=False)
    x, hidden = torch.randn(5, 2, 3), torch.randn(1, 2, 4)
    turned = x.flip(0) if direction == "reverse" else x
    with torch.inference_mode():
        sequence, last = layer(turned, hidden)
    weights = {name[:9]: value.detach().numpy() for name, value in layer.named_parameters()}
    program = small_program(
        lambda x: mb.rnn(
            x=x, initial_h=hidden[0].numpy(), direction=direction, output_sequence=True, **weights
        ),
        {"x": ((5, 2, 3), "fp32")},
    )
    found, final = run(program, x=x.numpy()).outputs.values()
    assert_close(
        found, (sequence.flip(0) if direction == "reverse" else sequence).numpy(), steps=20
    )
    assert_close(final, last[0].numpy(), steps=20)
