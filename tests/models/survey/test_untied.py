"""Inputs whose lengths may differ get axes of their own; a mask goes with what it masks."""

from pathlib import Path

import pytest
from test_module_survey import own, shapes

TRANSLATION = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.source, self.target = torch.nn.Embedding(30, 8), torch.nn.Embedding(20, 8)
        self.layers = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, source, target, source_mask, target_mask):
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.layers(
            self.source(source), self.target(target), tgt_mask=future,
            src_key_padding_mask=source_mask, memory_key_padding_mask=source_mask,
            tgt_key_padding_mask=target_mask,
        )
"""
TRIPLET = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(30, 8)

    def mean(self, words):
        return self.table(words).mean(1)

    def forward(self, anchor, near, far):
        anchor = self.mean(anchor)
        return (anchor * self.mean(near)).sum(-1) - (anchor * self.mean(far)).sum(-1)
"""
ADDED = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.kinds = torch.nn.Embedding(30, 8), torch.nn.Embedding(4, 8)

    def forward(self, words, kinds, mask):
        keep = mask.unsqueeze(-1).float()
        return ((self.words(words) + self.kinds(kinds)) * keep).sum(1) / keep.sum(1).clamp(min=1)
"""


def test_two_texts_and_their_masks_have_a_length_each(tmp_path: Path) -> None:
    result = own(tmp_path, TRANSLATION)
    first, second = ("batch", "sequence"), ("batch", "sequence_2")
    found = shapes(result)
    assert [found[name] for name in ("source", "source_mask")] == [first, first]
    assert [found[name] for name in ("target", "target_mask")] == [second, second]
    assert found["output"] == (*second, 8)
    assert [spec.padding for spec in result.contract.inputs] == [0, 0, 1, 1]
    assert {axis.name for axis in result.contract.axes} == {"batch", "sequence", "sequence_2"}


def test_three_texts_have_three_lengths(tmp_path: Path) -> None:
    found = shapes(own(tmp_path, TRIPLET))
    assert len({found[name] for name in ("anchor", "near", "far")}) == 3


def test_what_is_added_and_its_mask_keep_one_length(tmp_path: Path) -> None:
    found = shapes(own(tmp_path, ADDED))
    assert found == {
        "words": ("batch", "sequence"),
        "kinds": ("batch", "sequence"),
        "mask": ("batch", "sequence"),
        "output": ("batch", 8),
    }


# What torch's exporter cannot keep, and TorchScript's can.
RECURRENT = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = torch.nn.GRU(5, 8, batch_first=True)

    def forward(self, history):
        return self.rnn(history)[1][-1]
"""
PACKED = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(30, 8)
        self.rnn = torch.nn.LSTM(8, 4, batch_first=True, bidirectional=True)

    def forward(self, tokens, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            self.table(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return torch.nn.utils.rnn.pad_packed_sequence(
            self.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1]
        )[0]
"""
BAGS = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.bags = torch.nn.EmbeddingBag(20, 8, mode="mean")

    def forward(self, kinds):
        return self.bags(kinds)
"""
# A branch on values: a trace would keep one side.
DECIDING = RECURRENT.replace(
    "return self.rnn(history)[1][-1]",
    "return self.rnn(history)[1][-1] if float(history.sum()) > 0 else history[:, 0, :1]",
)


@pytest.mark.parametrize("body", [RECURRENT, PACKED, BAGS], ids=["gru", "packed lstm", "bags"])
def test_a_length_that_torchs_exporter_cannot_keep_stays_open_with_another(
    tmp_path: Path, body: str
) -> None:
    result = own(tmp_path, body)
    assert result.exporter == "torchscript"
    assert {axis.name for axis in result.contract.axes} == {"batch", "sequence"}
    assert any("TorchScript's can: its graph matches" in note for note in result.notes)


def test_the_usual_exporter_is_not_named(tmp_path: Path) -> None:
    assert own(tmp_path, ADDED).exporter is None


def test_a_branch_on_values_is_not_traced(tmp_path: Path) -> None:
    assert own(tmp_path, DECIDING).exporter is None
