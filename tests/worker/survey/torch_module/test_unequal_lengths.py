"""Inputs whose lengths may differ get axes of their own; a mask goes with what it masks."""

import re
from pathlib import Path

import pytest
from test_module_survey import example_of, own, shapes

from convkit.host.draft.recipe_draft import draft_recipe
from convkit.worker.survey.torch_module.module_trials import ModuleTrials, ShapesOnly

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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_what_is_added_and_its_mask_keep_one_length(tmp_path: Path) -> None:
    found = shapes(own(tmp_path, ADDED))
    assert found == {
        "words": ("batch", "sequence"),
        "kinds": ("batch", "sequence"),
        "mask": ("batch", "sequence"),
        "output": ("batch", 8),
    }


VIDEO = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 16, 16)
        self.rnn, self.head = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)

    def forward(self, clip):
        rows, frames = clip.shape[:2]
        seen = self.conv(clip.flatten(0, 1)).mean((-1, -2)).view(rows, frames, 4)
        return self.head(self.rnn(seen).mean(1))
"""
POINTS = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv1d(3, 16, 1)

    def forward(self, points):
        return self.conv(points.transpose(1, 2)).max(-1).values
"""
DENOISING = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.time = torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.Linear(16, 3)

    def forward(self, sample, timestep):
        angles = timestep[:, None].float() / torch.arange(1.0, 9.0)
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        return self.conv(sample) + time[:, :, None, None]
"""
# nanoGPT's way: a loss that is None without targets.
WITH_A_LOSS = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = torch.nn.Embedding(40, 8), torch.nn.Linear(8, 40)

    def forward(self, idx, targets=None):
        logits = self.head(self.table(idx))
        loss = None
        if targets is not None:
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss
"""
# Each column of a table is a category with a table of its own, the last the smallest.
CATEGORIES = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tables = torch.nn.ModuleList([torch.nn.Embedding(n, 4) for n in (50, 90, 3)])
        self.head = torch.nn.Linear(12, 1)

    def forward(self, categories):
        return self.head(torch.cat([t(categories[:, n]) for n, t in enumerate(self.tables)], -1))
"""


# A text read at the position that a length names, twice; the rows are counted by Python.
TOWERS = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.rnn = torch.nn.Embedding(40, 6), torch.nn.GRU(6, 6, batch_first=True)

    def read(self, words, length):
        return self.rnn(self.table(words))[0][torch.arange(len(words)), length - 1]

    def forward(self, query, query_length, answer, answer_length):
        return (self.read(query, query_length) * self.read(answer, answer_length)).sum(-1)
"""
SPOKEN = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.speakers = torch.nn.Embedding(40, 6), torch.nn.Embedding(3, 6)

    def forward(self, phonemes, speaker_id, speed):
        return self.table(phonemes) / speed.view(-1, 1, 1) + self.speakers(speaker_id)[:, None]
"""
EDGES = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(12, 4)

    def forward(self, x, edge_index):
        source, target = edge_index
        nodes = self.layer(x)
        return torch.zeros_like(nodes).index_add(0, target, nodes[source])
"""
LETTERS = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.letters = torch.nn.Embedding(40, 6), torch.nn.Embedding(30, 6)

    def forward(self, words, chars):
        rows, count, letters = chars.shape
        return self.words(words) + self.letters(chars).amax(2)
"""


@pytest.mark.thorough
def test_broadcasting_three_coordinates_makes_no_length_of_its_own(tmp_path: Path) -> None:
    body = """
    def forward(self, origin, direction):
        return origin + direction / direction.norm(dim=-1, keepdim=True)
"""
    example = example_of(tmp_path, "(torch.randn(32, 3), torch.randn(32, 3))")
    found = shapes(own(tmp_path, body, example=example))
    assert found["origin"] == found["direction"]
    assert found["direction"][1] in (3, "sequence")


@pytest.mark.thorough
def test_lengths_belong_to_the_text_that_they_are_named_after(tmp_path: Path) -> None:
    result = own(tmp_path, TOWERS)
    along = {name: sample.along for name, sample in result.samples.items()}
    assert along["query_length"] == "sequence"
    assert along["answer_length"] == "sequence_2"
    # len(words) is a plain number to TorchScript's exporter, which fixes the batch.
    assert result.exporter is None
    assert {axis.name for axis in result.contract.axes} == {"batch", "sequence", "sequence_2"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (POINTS, {"points": ("batch", "points", 3)}),
        (DENOISING, {"sample": ("batch", 3, 224, 224), "timestep": ("batch",)}),
        (
            SPOKEN,
            {"phonemes": ("batch", "sequence"), "speaker_id": ("batch",), "speed": ("batch",)},
        ),
        (EDGES, {"x": ("batch", 12), "edge_index": (2, "edges")}),
        (LETTERS, {"chars": ("batch", "sequence", "letters")}),
        (WITH_A_LOSS, {"idx": ("batch", "sequence"), "output_0": ("batch", "sequence", 40)}),
    ],
    ids=["points", "denoising", "spoken", "edges", "letters", "with a loss"],
)
@pytest.mark.sampled(3)
def test_usual_inputs_are_found(
    tmp_path: Path, body: str, expected: dict[str, tuple[int | str, ...]]
) -> None:
    result = own(tmp_path, body)
    found = shapes(result)
    assert {name: found[name] for name in expected} == expected
    assert "output_1" not in found


@pytest.mark.thorough
def test_large_inputs_are_drawn_a_few_times_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawing a clip takes half a second; most sizes are tried on shapes alone."""
    drawn, shaped = [], []
    draw, on_shapes = ModuleTrials.drawn, ShapesOnly.run
    monkeypatch.setattr(
        ModuleTrials, "drawn", lambda self, *given: drawn.append(1) or draw(self, *given)
    )
    monkeypatch.setattr(
        ShapesOnly, "run", lambda self, *given: shaped.append(1) or on_shapes(self, *given)
    )
    found = own(tmp_path, VIDEO)
    assert shapes(found)["clip"] == ("batch", "frames", 3, 224, 224)
    assert len(shaped) > len(drawn) > 0


RANKING = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 20)

    def forward(self, x):
        scores = self.layer(x)
        return torch.cat([scores, scores * 3 / 3 * 7 / 7], -1).softmax(-1).topk(20, -1).indices
"""


def test_labels_that_rounding_decides_may_differ(tmp_path: Path) -> None:
    result = own(tmp_path, RANKING)
    assert 0 < result.flips["output"] < 1
    text = draft_recipe(
        f"{tmp_path}/factory.py:build", destination=tmp_path / "r.yaml", survey=result
    )
    assert re.search(r"output: \{ agreement: 0\.\d+ \}", text)
    assert own(tmp_path, LETTERS).flips == {}


def test_categories_stay_below_the_smallest_table(tmp_path: Path) -> None:
    assert own(tmp_path, CATEGORIES).samples["categories"].numbers == (0, 3)


# What torch's exporter cannot keep, and TorchScript's can.
RECURRENT = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = torch.nn.RNN(5, 8, batch_first=True)

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


@pytest.mark.parametrize("body", [RECURRENT, PACKED], ids=["rnn", "packed lstm"])
@pytest.mark.sampled(1)
def test_a_length_that_torchs_exporter_cannot_keep_stays_open_with_another(
    tmp_path: Path, body: str
) -> None:
    result = own(tmp_path, body)
    assert result.exporter == "torchscript"
    assert {axis.name for axis in result.contract.axes} == {"batch", "sequence"}
    assert any("TorchScript's can: its graph matches" in note for note in result.notes)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # torch's own
def test_bags_of_any_length_need_no_other_exporter(tmp_path: Path) -> None:
    result = own(tmp_path, BAGS)
    assert result.exporter is None
    assert {axis.name for axis in result.contract.axes} == {"batch", "sequence"}


def test_the_usual_exporter_is_not_named(tmp_path: Path) -> None:
    assert own(tmp_path, ADDED).exporter is None


def test_a_branch_on_values_is_not_traced(tmp_path: Path) -> None:
    assert own(tmp_path, DECIDING).exporter is None
