"""A small text-to-image model (random seeded weights): the whole, with its loop over noise levels,
and the parts that it is converted as.

The parts are those of every latent diffusion model: a text encoder, a U-Net that sees the latents
and the text, a scheduler's step (Euler), and a decoder from latents to pixels.
"""

import torch
from torch import nn

_LATENTS, _SCALE = 4, 0.18215


def build(*, width: int = 64, words: int = 1000) -> nn.Module:
    """Return the whole: tokens and noise in, an image out."""
    return _Whole(width, words)


def text(*, width: int = 64, words: int = 1000) -> nn.Module:
    """Return the text encoder."""
    return _Whole(width, words).text


def unet(*, width: int = 64, words: int = 1000) -> nn.Module:
    """Return the U-Net: one prediction of the noise."""
    return _Whole(width, words).unet


def scheduler() -> nn.Module:
    """Return one Euler step from a noise level to the next."""
    return _Scheduler()


def vae(*, width: int = 64, words: int = 1000) -> nn.Module:
    """Return the decoder from latents to pixels."""
    return _Whole(width, words).vae


class _Whole(nn.Module):
    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.text, self.unet = _Text(width, words), _UNet(width)
        self.scheduler, self.vae = _Scheduler(), _Decoder(width)
        self.eval()

    def forward(
        self,
        input_ids: torch.Tensor,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        sigmas: torch.Tensor,
        next_sigmas: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        context, latents = self.text(input_ids)["context"], noise
        for step in range(len(timesteps)):
            here = slice(step, step + 1)
            prediction = self.unet(latents, context, timesteps[here])["prediction"]
            moved = self.scheduler(latents, prediction, sigmas[here], next_sigmas[here])
            latents = moved["sample"]
        return self.vae(latents)


class _Text(nn.Module):
    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"context": self.layer(self.words(input_ids))}


class _UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-torch.arange(width // 2) / 3))
        self.time = nn.Linear(width, width)
        self.enter = nn.Conv2d(_LATENTS, width, 3, padding=1)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.leave = nn.Conv2d(2 * width, _LATENTS, 3, padding=1)

    def forward(
        self, latents: torch.Tensor, context: torch.Tensor, timestep: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        angles = timestep[:, None] * self.frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        high = torch.nn.functional.silu(self.enter(latents) + time[:, :, None, None])
        low = self.down(high)
        queries = low.flatten(2).transpose(1, 2)
        seen = self.attention(queries, context, context, need_weights=False)[0]
        low = low + seen.transpose(1, 2).reshape(low.shape)
        return {"prediction": self.leave(torch.cat([self.up(low), high], dim=1))}


class _Scheduler(nn.Module):
    def forward(
        self,
        latents: torch.Tensor,
        prediction: torch.Tensor,
        sigma: torch.Tensor,
        next_sigma: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        return {"sample": latents + prediction * (next_sigma - sigma)}


class _Decoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(_LATENTS, width, 3, padding=1)
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, latents: torch.Tensor) -> dict[str, torch.Tensor]:
        found = torch.nn.functional.silu(self.enter(latents / _SCALE))
        return {"image": self.leave(torch.nn.functional.silu(self.up(found)))}
