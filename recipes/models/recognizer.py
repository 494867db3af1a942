"""A streaming speech recognizer: frames in, scores of letters out, and a state that continues."""

import itertools
from collections.abc import Mapping

import numpy as np
import torch

# A blank, a space, an apostrophe, and the letters.
SYMBOLS = "_|'abcdefghijklmnopqrstuvwxyz"


class Recognizer(torch.nn.Module):
    """Two LSTM layers over mel frames, as small recognizers that run on a phone have."""

    def __init__(self, mels: int, width: int, layers: int, letters: int) -> None:
        super().__init__()
        self.before = torch.nn.Linear(mels, width)
        self.lstm = torch.nn.LSTM(width, width, layers, batch_first=True)
        self.head = torch.nn.Linear(width, letters)

    def forward(
        self, frames: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]
    ) -> dict[str, object]:
        """Return scores [batch, frames, letters] and the state [layers, batch, width] x 2."""
        found, state = self.lstm(torch.relu(self.before(frames)), state)
        return {"scores": self.head(found), "state": state}


def build(mels: int = 80, width: int = 256, layers: int = 2, letters: int = 29) -> torch.nn.Module:
    return Recognizer(mels, width, layers, letters).eval()


def decode(outputs: Mapping[str, np.ndarray]) -> list[str]:
    """Return the text of each row: the best symbol of each frame, by CTC's rule."""
    texts = []
    for best in outputs["scores"].argmax(axis=-1):
        symbols = [SYMBOLS[symbol] for symbol, _ in itertools.groupby(best)]
        texts.append("".join(symbols).replace("_", "").replace("|", " "))
    return texts
