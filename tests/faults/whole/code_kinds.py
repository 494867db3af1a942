"""Mistakes that people make in a model's code, each of them in several architectures.

A kind is a few statements on `h`, floats of batch x sequence x `WIDTH`. The development kinds run
in two architectures, the held-out kinds in two others: tune on the former, report the latter.
"""

import dataclasses
from typing import Any

from faults.healthy import MASK, POSITIONS, floats
from faults.whole.code import CodeFault

WIDTH = 6

VALUES = frozenset({"E208", "E305", "N510"})
SIZES = frozenset({"C106", "C113", "E302", "N510"})
RANDOM = frozenset({"N303", "E207"})
# torch.export states the sizes that such an operator needs (C113) before anything else.
OPERATOR = frozenset({"V103", "C113"})
NOTHING = frozenset[str]()


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A model around the mistake: its layers, and the statements before and after."""

    name: str
    init: str
    before: str
    after: str
    inputs: tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A mistake, the codes that name it, and what a finding must name beside `# here`."""

    name: str
    forward: str
    codes: frozenset[str]
    init: str = ""
    place: str = "here"

    def within(self, architecture: Architecture) -> CodeFault:
        """Return the fault that the mistake is in an architecture."""
        return CodeFault(
            f"{self.name} ({architecture.name})",
            f"{architecture.init}\n{self.init}".strip(),
            f"{architecture.before}\n{self.forward}\n{architecture.after}".strip(),
            self.codes,
            self.place,
            architecture.inputs,
        )


_WORDS = {"name": "ids", "dtype": "int64", "shape": POSITIONS, "sample": {"integers": [3, 40]}}

TAGGER = Architecture(
    "tagger", "", "h = self.layer(x)", "return torch.tanh(h)", (floats("x", "sequence", WIDTH),)
)
ENCODER = Architecture(
    "encoder",
    "self.words = torch.nn.Embedding(40, 6)\nself.norm = torch.nn.LayerNorm(6)",
    "h = self.norm(self.words(ids))",
    "h = h * attention_mask[..., None]\nreturn self.layer(h).relu()",
    (_WORDS, MASK),
)
SPEECH = Architecture(
    "speech",
    "self.conv = torch.nn.Conv1d(6, 6, 3, padding=1)\nself.norm = torch.nn.GroupNorm(2, 6)",
    "h = self.norm(F.gelu(self.conv(x.transpose(1, 2)))).transpose(1, 2)",
    "return F.elu(self.layer(h)) + x",
    (floats("x", "sequence", WIDTH),),
)
ATTENTION = Architecture(
    "attention",
    "self.words = torch.nn.Embedding(40, 6)\nself.query = torch.nn.Linear(6, 6)",
    "h = self.words(ids)\n"
    "bias = (1.0 - attention_mask[:, None].float()) * -1e4\n"
    "h = h + (self.query(h) @ h.transpose(1, 2) / 2.4 + bias).softmax(-1) @ h",
    "return h + F.silu(self.layer(h))",
    (_WORDS, MASK),
)

DEVELOPMENT = (
    Kind("a branch on a sum", "if h.sum() > 0:  # here\n    h = h * 1.5", VALUES),
    Kind("a maximum as a number", "h = h / h.abs().max().item()  # here", VALUES),
    Kind(
        "through numpy and back",
        "h = h + torch.as_tensor(np.tanh(h.detach().numpy()))  # here",
        VALUES,
    ),
    Kind(
        "a counter in a buffer",
        "self.calls += 1  # here\nh = h * self.calls",
        RANDOM,
        'self.register_buffer("calls", torch.zeros(()))',
    ),
    Kind("dropout by default", "h = F.dropout(h, 0.2)  # here", RANDOM),
    Kind("uniform noise", "h = h + torch.rand(h.shape)  # here", RANDOM),
    Kind("a random factor", "h = h * random.random()  # here", RANDOM),
    Kind("a batch of two", "h = h.reshape(2, h.shape[1], -1)  # here", SIZES),
    Kind("six positions", "h = h + torch.ones(1, 6, 1)  # here", SIZES),
    Kind(
        "rows one by one",
        "h = torch.stack([h[i] / (i + 1) for i in range(h.shape[0])])  # here",
        SIZES,
    ),
    Kind(
        "a recurrence by hand",
        "s = h[:, 0]\nsteps = []\nfor t in range(h.shape[1]):  # here\n"
        "    s = torch.tanh(s + h[:, t])\n    steps.append(s)\nh = torch.stack(steps, 1)",
        SIZES,
    ),
    Kind(
        "a count of list items", "h = h * (1 + (h[0, 0] > 0).tolist().count(True))  # here", VALUES
    ),
    Kind(
        "the first call's mask",
        'if not hasattr(self, "kept"):\n'
        "    self.kept = torch.ones(h.shape[1]).cumsum(0)\nh = h * self.kept[:, None]  # here",
        SIZES,
    ),
    Kind("the root of a size", "h = h / math.sqrt(h.shape[1])  # here", SIZES),
    Kind(
        "half of a size",
        "k = int(h.shape[1] * 0.5) + 1  # here\n"
        "h = h * (torch.arange(h.shape[1]) < k)[None, :, None]",
        SIZES,
    ),
    Kind("a spectrum", "h = h * torch.fft.rfft(h, dim=1).abs().mean()  # here", OPERATOR),
    Kind("the log of anything", "h = torch.log(h)  # here", frozenset({"N103"})),
    Kind("a pseudoinverse", "h = h + torch.linalg.pinv(h).transpose(1, 2)  # here", OPERATOR),
    Kind("the clock", "h = h + time.time() % 7  # here", RANDOM),
)

HELD_OUT = (
    Kind("an early clamp", "if (h.abs() > 2).any():  # here\n    h = h.clamp(-1, 1)", VALUES),
    Kind(
        "a percentile by numpy",
        "h = h / float(np.percentile(h.detach().numpy(), 90))  # here",
        VALUES,
    ),
    Kind("until the norm is small", "while h.norm() > 3:  # here\n    h = h * 0.7", VALUES),
    Kind(
        "a moving mean",
        "self.mean.mul_(0.9).add_(0.1 * h.mean((0, 1)))  # here\nh = h - self.mean",
        RANDOM,
        'self.register_buffer("mean", torch.zeros(6))',
    ),
    Kind("a bernoulli mask", "h = h * torch.bernoulli(torch.full_like(h, 0.7))  # here", RANDOM),
    Kind("numpy's noise", "h = h + float(np.random.randn())  # here", RANDOM),
    Kind("six columns", "h = h.view(-1, 6, h.shape[-1])  # here", SIZES),
    Kind(
        "a shift for two rows",
        "h = h + self.shift.expand(2, -1, -1)  # here",
        SIZES,
        "self.shift = torch.nn.Parameter(torch.randn(1, 1, 6))",
    ),
    Kind(
        "rows counted", "h = torch.stack([row * (i + 1) for i, row in enumerate(h)])  # here", SIZES
    ),
    Kind(
        "a level for each doubling",
        "for _ in range(int(math.log2(h.shape[1]))):  # here\n    h = torch.tanh(h) * 1.1",
        SIZES,
    ),
    Kind("a layer made in forward", "h = torch.nn.Linear(6, 6)(h)  # here", RANDOM),
    Kind("values sorted in a list", "h = h - sorted(h.mean((0, 1)).tolist())[0]  # here", VALUES),
    Kind(
        "an expert by value",
        "h = self.experts[int(h.mean() > 0)](h)  # here",
        VALUES,
        "self.experts = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(2)])",
    ),
    Kind(
        "the first call's bias",
        "if self.bias is None:\n    self.bias = torch.linspace(0, 1, h.shape[1])\n"
        "h = h + self.bias[None, :, None]  # here",
        SIZES,
        "self.bias = None",
    ),
    Kind(
        "a decomposition", "h = h * torch.linalg.svd(h)[1].sum(-1)[:, None, None]  # here", OPERATOR
    ),
    Kind("a root of anything", "h = torch.sqrt(h)  # here", frozenset({"N103"})),
    Kind("a shuffle", "h = h[..., torch.randperm(6)]  # here", RANDOM),
    Kind("a normal draw", "h = torch.normal(h, 0.3)  # here", RANDOM),
    Kind(
        "a mode by numpy", "h = h + int(np.argmax(h.detach().numpy().sum((0, 1))))  # here", VALUES
    ),
)

# Code that looks like one of these mistakes and is right: every target must be verified.
HARMLESS = (
    Kind("a size in a tensor", "h = h * torch.tensor(h.shape[1]).float().log()", NOTHING),
    Kind("a size that is checked", "if h.shape[-1] != 6:\n    raise ValueError(h.shape)", NOTHING),
    Kind("dropout in eval mode", "h = self.drop(h)", NOTHING, "self.drop = torch.nn.Dropout(0.5)"),
    Kind("dropout that follows the mode", "h = F.dropout(h, 0.5, training=self.training)", NOTHING),
    Kind(
        "statistics of training",
        "h = self.batch(h.transpose(1, 2)).transpose(1, 2)",
        NOTHING,
        "self.batch = torch.nn.BatchNorm1d(6)",
    ),
    Kind(
        "heads",
        "h = h.reshape(h.shape[0], -1, 2, 3).transpose(1, 2).flatten(1, 2).reshape(h.shape)",
        NOTHING,
    ),
    Kind("memory that is filled", "h = h + torch.empty(6).fill_(0.5)", NOTHING),
    Kind("the mean of the positive", "h = h - h[h > 0].mean()", NOTHING),
    Kind(
        "positions from a table",
        "h = h + self.places[: h.shape[1]]",
        NOTHING,
        'self.register_buffer("places", torch.randn(16, 6))',
    ),
    Kind("positions counted", "h = h + torch.arange(h.shape[1])[:, None] / 10", NOTHING),
    Kind("the sign without a branch", "h = torch.where(h.sum() > 0, h * 1.5, h)", NOTHING),
    Kind(
        "a loop over layers",
        "for scale in (0.5, 1.5, 2.0):\n    h = torch.tanh(h * scale)",
        NOTHING,
    ),
    Kind("a size as a divisor", "h = h.sum(1, keepdim=True) / h.shape[1] + h", NOTHING),
    Kind("in place", "h = h.clone()\nh.mul_(2).add_(1)\nh[:, 0] = 0", NOTHING),
    Kind("the largest of each", "h = h + h.topk(2, -1).values.sum(-1, keepdim=True)", NOTHING),
    Kind("a mask of the future", "h = h + torch.ones(6, 6).triu(1)[h.shape[-1] - 1]", NOTHING),
    Kind(
        "a default", "h = h if self.scale is None else h * self.scale", NOTHING, "self.scale = None"
    ),
)


def development() -> tuple[CodeFault, ...]:
    """Return the faults that convkit may be tuned on."""
    return tuple(kind.within(each) for each in (TAGGER, ENCODER) for kind in DEVELOPMENT)


def held_out() -> tuple[CodeFault, ...]:
    """Return the faults that nothing was tuned on: other kinds, in other architectures."""
    return tuple(kind.within(each) for each in (SPEECH, ATTENTION) for kind in HELD_OUT)


def harmless() -> tuple[CodeFault, ...]:
    """Return models that are right, to count false alarms."""
    return tuple(kind.within(each) for each in (SPEECH, ENCODER) for kind in HARMLESS)
