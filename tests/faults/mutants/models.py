"""Ten small architectures, with inputs that every part of them reacts to."""

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A module, and inputs drawn from a generator, by name in the order of `forward`."""

    name: str
    build: Callable[[], nn.Module]
    draw: Callable[[torch.Generator], Mapping[str, torch.Tensor]]
    outputs: tuple[str, ...] = ("output",)


def _heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Encoder(nn.Module):
    """A BERT: learned positions, types, masked attention, erf GELU, norms after."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(40, 16), nn.Embedding(2, 16)
        self.positions = nn.Embedding(16, 16)
        self.norm = nn.LayerNorm(16, eps=1e-12)
        self.layers = nn.ModuleList([EncoderLayer() for _ in range(2)])

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        x = self.norm(self.words(ids) + self.types(types) + self.positions(places))
        bias = (1.0 - mask[:, None, None, :].float()) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        return x


class EncoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.output = nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        query, key, value = (_heads(p(x), 2) for p in (self.query, self.key, self.value))
        weights = (query @ key.transpose(-1, -2) / 8**0.5 + bias).softmax(-1)
        attended = (weights @ value).transpose(1, 2).flatten(2)
        x = self.first(x + self.output(attended))
        return self.second(x + self.down(functional.gelu(self.up(x))))


class RootMeanSquare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Decoder(nn.Module):
    """A Llama: rotary positions, RMS norms before, SwiGLU, causal attention by torch."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.norm, self.last = RootMeanSquare(), RootMeanSquare()
        self.joined, self.output = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        self.gate, self.up = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)
        self.down, self.head = nn.Linear(24, 16, bias=False), nn.Linear(16, 40, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        query, key, value = (_heads(p, 2) for p in self.joined(self.norm(x)).chunk(3, -1))
        query, key = self.turned(query), self.turned(key)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        y = self.last(x)
        return self.head(x + self.down(functional.silu(self.gate(y)) * self.up(y)))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        rates = 1.0 / 100.0 ** (torch.arange(0, 8, 2).float() / 8)
        angles = torch.arange(x.shape[2]).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)
        half = torch.cat([-x[..., 4:], x[..., :4]], -1)
        return x * angles.cos() + half * angles.sin()


class Pyramid(nn.Module):
    """Convolutions with batch norms, both kinds of pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2)
        self.one, self.two = nn.BatchNorm2d(8), nn.BatchNorm2d(8, eps=1e-3)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.mean = nn.AvgPool2d(2, 1, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu(self.one(self.first(image))))
        x = self.mean(functional.leaky_relu(self.two(self.second(x)), 0.1))
        return self.head(x.mean((2, 3)))


class Residual(nn.Module):
    """Pre-activation blocks without norms folded away: the norm comes before its convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(2)])
        self.convs = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)])
        self.down = nn.Conv2d(8, 12, 1, stride=2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem((image - 0.45) / 0.225)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = x + conv(functional.relu(norm(x)))
        return functional.normalize(self.down(x).flatten(1), dim=1)


class Segmenter(nn.Module):
    """A U-Net: a transposed convolution, a resize, a skip by concatenation, a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 6, 2, 2)
        self.norm, self.last = nn.GroupNorm(2, 12), nn.Conv2d(12, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skip = functional.silu(self.down(image))
        x = torch.cat([skip, self.up(torch.tanh(self.deep(skip)))], 1)
        x = functional.interpolate(self.norm(x), scale_factor=2.0, mode="bilinear")
        return torch.sigmoid(self.last(x))


class Tagger(nn.Module):
    """A bidirectional LSTM over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.memory = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(self.head(self.memory(self.words(ids))[0]), -1)


class Recognizer(nn.Module):
    """A one-dimensional convolution before a GRU, features scaled by logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 8, 3, padding=1)
        self.memory = nn.GRU(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        x = torch.log(features.abs() + 1e-2)
        x = functional.elu(self.conv(x)).permute(2, 0, 1)
        return self.head(self.memory(x)[0].amax(0))


class Ranker(nn.Module):
    """Two inputs of one shape that meet in many ways, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 12), nn.Linear(8, 12)
        self.norm, self.mix = nn.LayerNorm(12), nn.Parameter(torch.randn(12, 12, 3))
        self.prelu = nn.PReLU(12)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one, two = self.prelu(self.left(left)), self.norm(self.right(right))
        gap = (one - two).abs().sqrt().clamp(0.1, 2.0)
        score = (one * two).sum(-1) / (one.norm(dim=-1) * two.norm(dim=-1) + 1e-6)
        return score + gap.mean(-1), torch.einsum("ni,nj,ijk->nk", one, gap / 1.7, self.mix)


class Patches(nn.Module):
    """A ViT: patches by convolution, a class token, positions, attention of torch's own module."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 12))
        self.places = nn.Parameter(torch.randn(1, 5, 12))
        self.query, self.key, self.value = (nn.Linear(12, 12) for _ in range(3))
        self.norm, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 20), nn.Linear(20, 12)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        y = self.norm(x)
        heads = (_heads(p(y), 3) for p in (self.query, self.key, self.value))
        x = x + functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        x = x + self.down(functional.gelu(self.up(self.norm(x)), approximate="tanh"))
        return x[:, 0]


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, hard activations."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depth = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.norm, self.project = nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 6, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.depth(functional.hardswish(self.expand(image * 2 - 1))))
        gate = functional.hardsigmoid(
            self.excite(functional.relu(self.squeeze(x.mean((2, 3), True))))
        )
        return self.project(functional.relu6(x * gate)).flatten(2).softmax(-1)


def _image(size: int = 8) -> Callable[[torch.Generator], Mapping[str, torch.Tensor]]:
    return lambda generator: {"image": torch.rand(2, 3, size, size, generator=generator)}


def _tokens(words: int) -> Callable[[torch.Generator], Mapping[str, torch.Tensor]]:
    return lambda generator: {"ids": torch.randint(0, words, (2, 7), generator=generator)}


def _text(generator: torch.Generator) -> Mapping[str, torch.Tensor]:
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 5:] = 0
    types = torch.randint(0, 2, (2, 7), generator=generator)
    return {**_tokens(40)(generator), "mask": mask, "types": types}


def _pair(generator: torch.Generator) -> Mapping[str, torch.Tensor]:
    return {name: torch.randn(5, 8, generator=generator) for name in ("left", "right")}


def _features(generator: torch.Generator) -> Mapping[str, torch.Tensor]:
    return {"features": torch.randn(2, 6, 9, generator=generator)}


ARCHITECTURES = (
    Architecture("encoder", Encoder, _text),
    Architecture("decoder", Decoder, _tokens(40)),
    Architecture("pyramid", Pyramid, _image(12)),
    Architecture("residual", Residual, _image()),
    Architecture("segmenter", Segmenter, _image()),
    Architecture("tagger", Tagger, _tokens(30)),
    Architecture("recognizer", Recognizer, _features),
    Architecture("ranker", Ranker, _pair, ("score", "mixed")),
    Architecture("patches", Patches, _image()),
    Architecture("mobile", Mobile, _image()),
)


def trained(build: Callable[[], nn.Module]) -> nn.Module:
    """Return a module whose norms have gains, shifts and statistics as if it were trained."""
    torch.manual_seed(7)
    module = build().eval().requires_grad_(requires_grad=False)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        kind = name.rpartition(".")[2]
        if kind == "running_var" or (kind == "weight" and tensor.ndim == 1):
            tensor.uniform_(0.5, 1.5)
        elif tensor.ndim == 1 and tensor.is_floating_point():
            tensor.uniform_(-0.5, 0.5)
    return module
