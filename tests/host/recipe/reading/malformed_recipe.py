"""Malformed recipes: a change to a good one, where the problem is, and what must be said of it."""

import dataclasses

GOOD = """\
schema: 1
name: small
description: a small recipe
model:
  config:
    architecture: bert
    overrides: {num_hidden_layers: 1}
tools:
  python: "3.11"
  torch: "==2.13.*"
export: {exporter: torch, opset: 18}
axes:
  batch: {min: 1, typical: 2, max: 4}
  sequence: {min: 2, typical: 8, max: 16}
inputs:
  - {name: ids, dtype: int64, shape: [batch, sequence], sample: token_ids}
  - {name: mask, dtype: int64, shape: [batch, sequence], sample: padding_mask}
  - {name: kinds, dtype: int64, shape: [batch, sequence], sample: {integers: [0, 2]}}
outputs:
  - {name: hidden, dtype: float32, shape: [batch, sequence, 8]}
verify:
  seed: 0
  tolerance: {max_abs: 1e-4, cosine: 0.999}
targets:
  ort-cpu:
    runtime: onnxruntime
    device: cpu
    precision: float32
    versions: ["==1.21.*", "==1.31.*"]
track: {experiment: convkit/small}
"""


@dataclasses.dataclass(frozen=True)
class Malformed:
    """`old` in the good recipe becomes `new`; the only problem is where `at` begins, in the
    changed text.
    """

    old: str
    new: str
    at: str
    key: str
    says: str

    @property
    def text(self) -> str:
        """The whole recipe."""
        assert GOOD.count(self.old) >= 1, self.old
        return GOOD.replace(self.old, self.new, 1)

    @property
    def place(self) -> tuple[int, int]:
        """Line and column, from 1."""
        before = self.text[: self.text.index(self.at)]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


M = Malformed
CONFIG = "  config:\n    architecture: bert\n    overrides: {num_hidden_layers: 1}\n"
