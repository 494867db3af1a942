"""Silero VAD at 16 kHz: the published TorchScript file, and the same network as one step with its
states as inputs and outputs.

The weights are those of the TorchScript file in the Python package silero-vad. (Its .safetensors
file has the same shapes and holds another training.) Tiny models have random weights, and the whole
is then a loop over the step.
"""

import importlib.util
from pathlib import Path

import torch
from torch.nn import functional

CHUNK = 512  # samples per call
CONTEXT = 64  # samples that a call sees again from the one before
_WINDOW, _HOP = 256, 128


def build(*, tiny: bool = False) -> torch.nn.Module:
    """Return the whole: audio [batch, chunks, 512] in, the probability of speech in each chunk out."""
    return _Looped(step(tiny=True)) if tiny else _Published()


def step(*, tiny: bool = False) -> "Step":
    """Return one call: a chunk and the states in, a probability and the new states out."""
    if tiny:
        return Step(width=8).eval()
    published = _published().state_dict()
    model = Step(width=128)
    model.load_state_dict({own: published[f"_model.{name}"] for own, name in _NAMES.items()})
    return model.eval()


def _published() -> torch.jit.ScriptModule:
    """Return the published model; the package itself is not imported."""
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("add silero-vad under tools:")
    return torch.jit.load(Path(found.origin).parent / "data" / "silero_vad.jit").eval()


# The published name of each of our parameters.
_NAMES = {
    "stft_conv.weight": "stft.forward_basis_buffer",
    **{
        f"conv{number + 1}.{kind}": f"encoder.{number}.reparam_conv.{kind}"
        for number in range(4)
        for kind in ("weight", "bias")
    },
    **{
        f"lstm_cell.{kind}_{side}": f"decoder.rnn.{kind}_{side}"
        for kind in ("weight", "bias")
        for side in ("ih", "hh")
    },
    **{f"final_conv.{kind}": f"decoder.decoder.2.{kind}" for kind in ("weight", "bias")},
}


class Step(torch.nn.Module):
    """A spectrum of a few windows, convolutions that shrink them to one, and an LSTM cell."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bins = _WINDOW // 2 + 1
        self.stft_conv = torch.nn.Conv1d(1, 2 * self.bins, _WINDOW, stride=_HOP, bias=False)
        half = width // 2
        self.conv1 = torch.nn.Conv1d(self.bins, width, 3, padding=1)
        self.conv2 = torch.nn.Conv1d(width, half, 3, stride=2, padding=1)
        self.conv3 = torch.nn.Conv1d(half, half, 3, stride=2, padding=1)
        self.conv4 = torch.nn.Conv1d(half, width, 3, padding=1)
        self.lstm_cell = torch.nn.LSTMCell(width, width)
        self.final_conv = torch.nn.Conv1d(width, 1, 1)

    def forward(
        self, audio: torch.Tensor, context: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]
    ) -> dict[str, object]:
        """Take audio [batch, 1, 512], context [batch, 64] and states [batch, width]."""
        heard = torch.cat([context, audio.squeeze(1)], dim=1)
        padded = functional.pad(heard.unsqueeze(1), (0, _WINDOW // 4), mode="reflect")
        real, imaginary = self.stft_conv(padded).split(self.bins, dim=1)
        found = torch.sqrt(real**2 + imaginary**2)
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            found = functional.relu(layer(found))
        hidden, cell = self.lstm_cell(found.squeeze(-1), state)
        speech = torch.sigmoid(self.final_conv(functional.relu(hidden).unsqueeze(-1)))
        return {
            "speech": speech.squeeze(-1),
            "context": heard[:, -CONTEXT:],
            "state": (hidden, cell),
        }


class _Published(torch.nn.Module):
    """The published TorchScript file, which keeps its states to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.vad = _published()

    def forward(self, audio: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"speech": self.vad.audio_forward(audio.flatten(1), 16000)}


class _Looped(torch.nn.Module):
    def __init__(self, vad: Step) -> None:
        super().__init__()
        self.vad = vad

    def forward(self, audio: torch.Tensor) -> dict[str, torch.Tensor]:
        batch, width = len(audio), self.vad.lstm_cell.hidden_size
        context = audio.new_zeros(batch, CONTEXT)
        state = audio.new_zeros(batch, width), audio.new_zeros(batch, width)
        speech = []
        for chunk in audio.split(1, dim=1):
            found = self.vad(chunk, context, state)
            context, state = found["context"], found["state"]
            speech.append(found["speech"])
        return {"speech": torch.cat(speech, dim=1)}
