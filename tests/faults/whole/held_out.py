"""Architectures of their own, to score faults of converted models on: tune nothing on them."""

from faults.healthy_recipes import floats
from faults.whole.subjects import BATCH, TEXT, Subject, module_source, token_ids

_IMAGE = (floats("x", 3, 16, 16),)
_STEPS = (floats("x", "sequence", 6),)

HELD_OUT = (
    Subject(
        "deconvolutions",
        module_source(
            """
self.down = nn.Conv2d(3, 8, 4, stride=2, padding=1)
self.norm = nn.GroupNorm(4, 8, eps=1e-4)
self.up = nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1)
self.last = nn.ConvTranspose2d(6, 3, 3, padding=1, groups=3)
""",
            """
y = F.silu(self.norm(self.down(x)))
return torch.tanh(self.last(F.relu(self.up(y))))
""",
        ),
        _IMAGE,
        (floats("image", 3, 16, 16),),
        BATCH,
    ),
    Subject(
        "lstm-tagger",
        module_source(
            """
self.words = nn.Embedding(40, 8)
self.rnn = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
self.head = nn.Linear(12, 5)
""",
            "return self.head(torch.tanh(self.rnn(self.words(input_ids))[0]))",
            "input_ids",
        ),
        (token_ids(40),),
        (floats("scores", "sequence", 5),),
        TEXT,
    ),
    Subject(
        "experts",
        module_source(
            """
self.gate, self.norm = nn.Linear(6, 3), nn.LayerNorm(6, eps=1e-4)
self.one, self.two = nn.Parameter(torch.randn(3, 6, 12)), nn.Parameter(torch.randn(3, 12, 6))
""",
            """
y = self.norm(x)
each = F.gelu(torch.einsum("bsi,eij->bsej", y, self.one))
mixed = torch.einsum("bsej,ejo->bseo", each, self.two)
return x + (mixed * self.gate(y).softmax(-1).unsqueeze(-1)).sum(2)
""",
        ),
        _STEPS,
        (floats("y", "sequence", 6),),
        TEXT,
    ),
    Subject(
        "detector",
        module_source(
            """
self.body, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8, eps=1e-3)
self.scores, self.boxes = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 4, 1)
""",
            """
y = F.hardswish(self.norm(self.body(x)))
scores, boxes = self.scores(y).sigmoid().flatten(2), self.boxes(y).exp().flatten(2)
best, places = scores.max(1).values.topk(5)
return best, boxes.gather(2, places[:, None].expand(-1, 4, -1)).transpose(1, 2)
""",
        ),
        _IMAGE,
        (floats("scores", 5), floats("boxes", 5, 4)),
        BATCH,
    ),
    Subject(
        "sampler",
        module_source(
            """
self.move, self.body = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(3, 6, 3, padding=1)
self.head = nn.Linear(6, 4)
""",
            """
lines = torch.linspace(-1.0, 1.0, 16)
grid = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), -1)[None]
grid = grid + 0.1 * torch.tanh(self.move(x)).permute(0, 2, 3, 1)
y = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
return self.head(F.leaky_relu(self.body(y), 0.1).mean((2, 3)))
""",
        ),
        _IMAGE,
        (floats("scores", 4),),
        BATCH,
    ),
    Subject(
        "spectrogram",
        module_source(
            """
self.bank = nn.Conv1d(1, 12, 16, stride=8, bias=False)
self.conv, self.head = nn.Conv1d(6, 8, 3, padding=1), nn.Linear(8, 3)
""",
            """
real, imaginary = self.bank(F.pad(wave.unsqueeze(1), (8, 8), mode="reflect")).chunk(2, 1)
y = torch.log(real.square() + imaginary.square() + 1e-3)
y = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-2)
return self.head(F.elu(self.conv(y)).amax(-1)).softmax(-1)
""",
            "wave",
        ),
        (floats("wave", 64),),
        (floats("scores", 3),),
        BATCH,
    ),
    Subject(
        "state-space",
        module_source(
            """
self.entry, self.gate = nn.Linear(6, 8), nn.Linear(6, 8)
self.conv, self.rates = nn.Conv1d(8, 8, 3, groups=8), nn.Parameter(torch.rand(8))
self.out = nn.Linear(8, 6)
""",
            """
y = self.entry(x).transpose(1, 2)
y = F.silu(self.conv(F.pad(y, (2, 0)))).transpose(1, 2)
decay = torch.cumsum(-F.softplus(self.rates) * torch.ones_like(y), 1)
y = torch.exp(decay) * torch.cumsum(y * torch.exp(-decay), 1)
return x + self.out(y * torch.sigmoid(self.gate(x)))
""",
        ),
        _STEPS,
        (floats("y", "sequence", 6),),
        TEXT,
    ),
    Subject(
        "cached-decoder",
        module_source(
            """
self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
self.out, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
""",
            """
angles = torch.tensor([3.0, 0.3])
def turned(x):
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)
y = self.norm(x)
heads = lambda part: part.unflatten(-1, (2, 4)).transpose(1, 2)
keys = torch.cat([past_keys, turned(heads(self.k(y)))], 2)
values = torch.cat([past_values, heads(self.v(y))], 2)
weights = (turned(heads(self.q(y))) @ keys.transpose(-1, -2) / 2.0).softmax(-1)
return x + self.out((weights @ values).transpose(1, 2).flatten(2)), keys, values
""",
            "x, past_keys, past_values",
        ),
        (floats("x", 1, 8), floats("past_keys", 2, 4, 4), floats("past_values", 2, 4, 4)),
        (floats("y", 1, 8), floats("keys", 2, 5, 4), floats("values", 2, 5, 4)),
        BATCH,
    ),
    Subject(
        "squeezed-net",
        module_source(
            """
self.one, self.two = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1)
self.less, self.more = nn.Linear(8, 4), nn.Linear(4, 8)
self.norm, self.head = nn.InstanceNorm2d(8, affine=True), nn.Linear(8 * 16, 5)
""",
            """
y = F.relu6(self.norm(self.one(x)))
share = torch.sigmoid(self.more(F.relu(self.less(y.mean((2, 3))))))
y = y + self.two(y) * share[:, :, None, None]
return F.log_softmax(self.head(F.avg_pool2d(y, 3, 2, 1).flatten(1)), -1)
""",
        ),
        _IMAGE,
        (floats("scores", 5),),
        BATCH,
    ),
    Subject(
        "highway",
        module_source(
            """
self.words = nn.Embedding(30, 8)
self.wide, self.gate = nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 8)
self.attend, self.head = nn.Linear(8, 1), nn.Linear(8, 3)
""",
            """
x = self.words(input_ids)
y = torch.tanh(self.wide(x.transpose(1, 2)).transpose(1, 2))
gate = torch.sigmoid(self.gate(x))
y = gate * y + (1.0 - gate) * x
pooled = (self.attend(y).softmax(1) * y).sum(1)
return self.head(F.normalize(pooled, dim=-1)), pooled
""",
            "input_ids",
        ),
        (token_ids(30),),
        (floats("scores", 3), floats("pooled", 8)),
        TEXT,
    ),
)
