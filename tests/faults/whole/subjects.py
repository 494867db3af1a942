"""Architectures that no rule of convkit was written on: modules of torch and tiny transformers.

Each is a recipe without a model: the source of `model.py`, the axes, the inputs and the outputs.
"""

import dataclasses
from typing import Any

from faults.healthy import MASK, POSITIONS, floats

BATCH = {"batch": {"min": 1, "typical": 2, "max": 3}}
TEXT = BATCH | {"sequence": {"min": 2, "typical": 6, "max": 9}}
# Statistics, gains and shifts as if a model were trained: at 0 and 1 half of all faults are hidden.
TRAINED = """
def trained(module):
    module = module.eval()
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if not tensor.is_floating_point():
                continue
            kind = name.rpartition(".")[2]
            if kind == "running_var" or (kind == "weight" and tensor.ndim == 1):
                tensor.uniform_(0.5, 1.5)
            elif tensor.ndim == 1 and kind in ("bias", "running_mean"):
                tensor.uniform_(-0.5, 0.5)
            elif tensor.ndim > 1:
                tensor.mul_(tensor[0].numel() ** -0.5 / tensor.std().clamp(min=1e-3))
    return module
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A model and its signature. `code` defines `make()`, which returns the module."""

    name: str
    code: str
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    axes: dict[str, Any]
    exporter: str = "torchscript"

    @property
    def keys(self) -> dict[str, Any]:
        """The recipe's keys."""
        return {
            "axes": self.axes,
            "inputs": [*self.inputs],
            "outputs": [*self.outputs],
            "export": {"exporter": self.exporter, "opset": 18},
        }

    def source(self, fault: str = "") -> str:
        """Return the text of a `model.py`; `fault` are statements that change `model`."""
        body = "".join(f"    {line}\n" for line in fault.splitlines())
        build = f"\ndef build():\n    model = trained(make())\n{body}    return model\n"
        return f"{self.code}\n{TRAINED}{build}"


def token_ids(words: int, **keys: Any) -> dict[str, Any]:
    """Return an input of ids of a vocabulary of that many words."""
    sample = {"integers": [3, words]}
    return {"name": "input_ids", "dtype": "int64", "shape": POSITIONS, "sample": sample} | keys


def _transformer(name: str, kind: str, config: str, call: str = "") -> str:
    imports = f"from transformers import {kind}Config, {call or kind + 'Model'}\n"
    return f"{imports}\ndef make():\n    return {call or kind + 'Model'}({kind}Config({config}))\n"


def module_source(init: str, forward: str, arguments: str = "x") -> str:
    """Return the code of a module: statements of its constructor and of its forward."""
    lines = [
        "from torch import nn",
        "from torch.nn import functional as F",
        "",
        "class Net(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line}" for line in init.strip().splitlines()),
        "",
        f"    def forward(self, {arguments}):",
        *(f"        {line}" for line in forward.strip().splitlines()),
        "",
        "def make():",
        "    return Net()",
    ]
    return "\n".join(lines)


_LAYERS = "num_hidden_layers=2, num_attention_heads=2, hidden_size=16, intermediate_size=24"
_HIDDEN = (floats("last_hidden_state", "sequence", 16),)
_PIXELS = (floats("pixel_values", 3, 32, 32),)
_X = (floats("x", "sequence", 6),)

SUBJECTS = (
    Subject(
        "convnext",
        _transformer(
            "convnext",
            "ConvNext",
            "num_channels=3, hidden_sizes=[8, 12], depths=[1, 1], num_stages=2, image_size=32,"
            " layer_scale_init_value=0.5",
        ),
        _PIXELS,
        (floats("last_hidden_state", 12, 4, 4), floats("pooler_output", 12)),
        BATCH,
    ),
    Subject(
        "deberta",
        _transformer(
            "deberta",
            "Deberta",
            f"vocab_size=60, {_LAYERS}, max_position_embeddings=20, relative_attention=True,"
            " max_relative_positions=12, pos_att_type=['p2c', 'c2p'], type_vocab_size=0",
        ),
        (token_ids(60), MASK),
        _HIDDEN,
        TEXT,
    ),
    Subject(
        "gpt-neo",
        _transformer(
            "gpt_neo",
            "GPTNeo",
            "vocab_size=60, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=24,"
            " max_position_embeddings=20, attention_types=[[['global', 'local'], 1]],"
            " window_size=4, use_cache=False, attn_implementation='eager'",
        ),
        (token_ids(60), MASK),
        _HIDDEN,
        TEXT,
    ),
    Subject(
        "mobilevit",
        _transformer(
            "mobilevit",
            "MobileViT",
            "image_size=64, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 12, 12, 12, 16,"
            " 24], num_attention_heads=2, mlp_ratio=2.0, patch_size=2",
        ),
        (floats("pixel_values", 3, 64, 64),),
        (floats("last_hidden_state", 24, 2, 2),),
        BATCH,
    ),
    Subject(
        "segformer",
        _transformer(
            "segformer",
            "Segformer",
            "num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 12],"
            " patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2]",
        ),
        _PIXELS,
        (floats("last_hidden_state", 12, 4, 4),),
        BATCH,
    ),
    Subject(
        "wav2vec2",
        _transformer(
            "wav2vec2",
            "Wav2Vec2",
            f"{_LAYERS}, vocab_size=20, conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 5),"
            " num_feat_extract_layers=2, num_conv_pos_embeddings=4,"
            " num_conv_pos_embedding_groups=2, feat_extract_norm='layer', mask_time_prob=0.0",
        ),
        (floats("input_values", 400),),
        (floats("last_hidden_state", 19, 16),),
        BATCH,
    ),
    Subject(
        "t5",
        _transformer(
            "t5",
            "T5",
            "vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,"
            " feed_forward_proj='gated-gelu'",
            "T5EncoderModel",
        ),
        (token_ids(60), MASK),
        _HIDDEN,
        TEXT,
    ),
    Subject(
        "gru-tagger",
        module_source(
            """
self.words = nn.Embedding(30, 10)
self.rnn = nn.GRU(10, 7, num_layers=2, batch_first=True, bidirectional=True)
self.drop = nn.Dropout(0.2)
self.tags = nn.Linear(14, 6)
""",
            """
x = self.rnn(self.words(input_ids))[0]
return F.log_softmax(self.tags(self.drop(x)), -1)
""",
            "input_ids",
        ),
        (token_ids(30),),
        (floats("scores", "sequence", 6),),
        TEXT,
    ),
    Subject(
        "lstm-regressor",
        module_source(
            """
self.norm = nn.LayerNorm(6)
self.rnn = nn.LSTM(6, 9, batch_first=True)
self.head = nn.Sequential(nn.Linear(9, 12), nn.SiLU(), nn.Linear(12, 2))
""",
            """
x = self.rnn(self.norm(x))[0]
return self.head(x.mean(1)), F.softplus(self.head(x[:, -1])) + 0.01
""",
        ),
        _X,
        (floats("mean", 2), floats("scale", 2)),
        TEXT,
    ),
    Subject(
        "u-net",
        module_source(
            """
def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))
self.one, self.two, self.three = block(3, 6), block(6, 8), block(14, 6)
self.last = nn.Conv2d(6, 2, 1)
""",
            """
skip = self.one(x)
deep = self.two(F.max_pool2d(skip, 2))
up = F.interpolate(deep, scale_factor=2, mode="bilinear", align_corners=True)
return torch.sigmoid(self.last(self.three(torch.cat([up, skip], 1))))
""",
        ),
        (floats("x", 3, 16, 16),),
        (floats("masks", 2, 16, 16),),
        BATCH,
    ),
    Subject(
        "norm-mlp",
        module_source(
            """
self.body = nn.Sequential(
    nn.Linear(10, 16), nn.BatchNorm1d(16), nn.GELU(approximate="tanh"),
    nn.Linear(16, 16), nn.BatchNorm1d(16, eps=1e-3), nn.Hardswish(),
)
self.value, self.choice = nn.Linear(16, 1), nn.Linear(16, 4)
""",
            """
x = self.body((features - 0.5) / 0.29)
return self.value(x).squeeze(-1), self.choice(x).softmax(-1)
""",
            "features",
        ),
        (floats("features", 10, uniform=[0, 1]),),
        (floats("value"), floats("choice", 4)),
        BATCH,
    ),
    Subject(
        "grouped-decoder",
        module_source(
            """
self.words = nn.Embedding(40, 16)
self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
self.out, self.norm = nn.Linear(16, 16, bias=False), nn.RMSNorm(16, eps=1e-5)
self.gate, self.up, self.down = nn.Linear(16, 20), nn.Linear(16, 20), nn.Linear(20, 16)
self.head = nn.Linear(16, 40, bias=False)
""",
            """
def turned(x):
    rates = 50.0 ** (-torch.arange(0, 4, 2).float() / 4)
    angles = (torch.arange(x.shape[2]).float()[:, None] * rates).repeat_interleave(2, -1)
    pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * angles.cos() + pairs * angles.sin()
x = self.words(input_ids)
y = self.norm(x)
q = turned(self.q(y).unflatten(-1, (4, 4)).transpose(1, 2))
k = turned(self.k(y).unflatten(-1, (2, 4)).transpose(1, 2)).repeat_interleave(2, 1)
v = self.v(y).unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(2, 1)
hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
scores = (q @ k.transpose(-1, -2) / 2.0).masked_fill(hidden, -1e9)
x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
y = self.norm(x)
return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))
""",
            "input_ids",
        ),
        (token_ids(40),),
        (floats("logits", "sequence", 40),),
        TEXT,
        "torch",
    ),
    Subject(
        "two-towers",
        module_source(
            """
self.query, self.item = nn.Linear(8, 12), nn.Linear(8, 12)
self.mix = nn.Parameter(torch.randn(12, 12, 5))
self.norm = nn.LayerNorm(12, eps=1e-6)
""",
            """
a, b = F.elu(self.query(query)), self.norm(torch.tanh(self.item(item)))
score = F.cosine_similarity(a, b, dim=-1)
return score, torch.einsum("ni,nj,ijk->nk", a, b, self.mix)
""",
            "query, item",
        ),
        (floats("query", 8), floats("item", 8)),
        (floats("score"), floats("mixed", 5)),
        BATCH,
    ),
    Subject(
        "speech-net",
        module_source(
            """
self.conv = nn.ModuleList([
    nn.Conv1d(6, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=2, dilation=2)
])
self.norm = nn.GroupNorm(2, 8)
self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
self.head = nn.Linear(8, 4)
""",
            """
x = torch.log1p(x.abs()).transpose(1, 2)
for conv in self.conv:
    x = F.mish(conv(x))
x = self.norm(x).transpose(1, 2)
x = x + self.attend(x, x, x, need_weights=False)[0]
return self.head(x).log_softmax(-1)
""",
        ),
        _X,
        (floats("scores", "sequence", 4),),
        TEXT,
        "torch",
    ),
    Subject(
        "pooled-encoder",
        module_source(
            """
self.words, self.places = nn.Embedding(50, 12), nn.Embedding(16, 12)
self.layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, norm_first=True)
self.head = nn.Linear(12, 7)
""",
            """
places = torch.arange(input_ids.shape[1])[None]
keep = attention_mask.unsqueeze(-1).float()
x = self.words(input_ids) + self.places(places)
bias = (1.0 - attention_mask[:, None, None, :].float()) * -1e4
y = self.layer.norm1(x)
bias = bias.expand(-1, 3, y.shape[1], -1).flatten(0, 1)
x = x + self.layer.self_attn(y, y, y, attn_mask=bias, need_weights=False)[0]
x = x + self.layer.linear2(F.gelu(self.layer.linear1(self.layer.norm2(x))))
pooled = (x * keep).sum(1) / keep.sum(1).clamp(min=1e-9)
return F.normalize(self.head(pooled), dim=-1)
""",
            "input_ids, attention_mask",
        ),
        (token_ids(50), MASK),
        (floats("embedding", 7),),
        TEXT,
        "torch",
    ),
)
