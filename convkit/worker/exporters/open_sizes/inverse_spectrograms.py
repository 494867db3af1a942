"""`torch.istft` in operators that keep the number of frames open. torch's own code adds frames up
by assignments, one for each, that hold the sizes of the trace.
"""

from typing import Any

import torch
from torch.nn import functional


def istft(
    input: torch.Tensor,  # noqa: A002 - torch's
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,  # noqa: FBT001, FBT002 - torch's
    normalized: bool = False,  # noqa: FBT001, FBT002 - torch's
    onesided: bool | None = None,  # noqa: FBT001 - torch's
    length: Any = None,  # noqa: ANN401 - a number, open or not
    return_complex: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.istft` of real signals: [..., n_fft / 2 + 1, frames] to [..., time]. Frames are added
    up where they overlap, and divided by the sum of the squared windows there.
    """
    if return_complex or onesided is False:
        return torch.istft(
            input,
            n_fft,
            hop_length,
            win_length,
            window,
            center,
            normalized,
            onesided,
            length,
            return_complex,
        )
    hop = hop_length or n_fft // 4
    if window is None:
        window = torch.ones(win_length or n_fft)
    missing = n_fft - window.shape[0]
    window = functional.pad(window, (missing // 2, missing - missing // 2))
    spectra = input.transpose(-1, -2)
    frames = torch.fft.irfft(spectra, n=n_fft, norm="ortho" if normalized else "backward")
    count = spectra.shape[-2]
    signal = _overlapped(frames * window, hop)
    weight = _overlapped(window.square().expand(count, n_fft), hop)
    whole = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    if length is not None:  # what no frame reaches is silent
        beyond = torch.sym_max(end - whole, 0)
        signal, weight = (
            functional.pad(signal, (0, beyond)),
            functional.pad(weight, (0, beyond), value=1),
        )
    return signal[..., start:end] / weight[start:end]


def _overlapped(frames: torch.Tensor, hop: int) -> torch.Tensor:
    """Return frames [..., frames, size] added up, each `hop` elements behind the one before."""
    count, size = frames.shape[-2:]
    parts = -(-size // hop)
    frames = functional.pad(frames, (0, parts * hop - size))
    total: Any = 0
    for part in range(parts):
        piece = frames[..., part * hop : (part + 1) * hop].flatten(-2)
        total = total + functional.pad(piece, (part * hop, (parts - 1 - part) * hop))
    return total[..., : size + hop * (count - 1)]
