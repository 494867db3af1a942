"""What an input means is found out by what the model does with it: masks of any kind, lengths, ids
in whose places something else goes, the batch, and sizes that the code holds.
"""

from pathlib import Path

import pytest
import torch
from test_module_survey import example_of, own, shapes

from convkit.host.draft.recipe_draft import draft_recipe
from convkit.protocol.messages import Held, Sample, SurveyResult
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.module_survey import survey_module
from convkit.worker.survey.torch_module.argument_roles import argument_uses

ATTENTION = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.o = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, x, {name}):
        q, k, v = self.q(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 3
        scores = {masked}
        return self.o(scores.softmax(-1) @ v)
"""
ENCODER = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(30, 8)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first={batch_first})
        self.layers = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor={batch_first})

    def forward(self, {inputs}):
        return self.layers(self.table(tokens), {masks})
"""
SCATTER = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.project = torch.nn.Embedding(300, 8), torch.nn.Linear(6, 8)
        self.out = torch.nn.Linear(8, 8)

    def forward(self, ids, image_features):
        x = self.table(ids)
        places = (ids == 299)[..., None].expand_as(x)
        return self.out(x.masked_scatter(places, self.project(image_features)))
"""
CHOICE = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = torch.nn.Embedding(3000, 8), torch.nn.Linear(8, 4)

    def forward(self, ids):
        last = (ids == 2999).int().argmax(-1)
        return self.out(self.table(ids)[torch.arange(ids.shape[0]), last])
"""
HELD = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = torch.nn.GRU(6, 5, batch_first=True)
        self.register_buffer("first", torch.zeros(1, 3, 5))

    def forward(self, x):
        return self.rnn(x, {first})[0]
"""


def sampled(result: SurveyResult, name: str, folder: Path) -> str:
    """Return the line of an input in a draft."""
    text = draft_recipe(f"{folder}/factory.py:build", destination=folder / "r.yaml", survey=result)
    return next(line for line in text.splitlines() if f"name: {name}," in line)


@pytest.mark.parametrize(
    ("name", "masked", "dtype", "sample"),
    [
        ("m", "scores.masked_fill(m[:, None], float('-inf'))", "bool", "key_padding_mask"),
        ("m", "scores.masked_fill(~m[:, None], -1e9)", "bool", "padding_mask"),
        ("attention_bias", "scores + attention_bias[:, None]", "float32", "additive_padding_mask"),
        ("m", "scores.masked_fill(m, float('-inf'))", "bool", "inverted_causal_mask"),
        ("mask", "scores + mask.log()[:, None]", "bool", "padding_mask"),
    ],
    ids=["hides", "keeps", "added", "pairs", "multiplied"],
)
@pytest.mark.sampled(3)
def test_a_mask_is_drawn_as_what_hides_positions(
    tmp_path: Path, name: str, masked: str, dtype: str, sample: str
) -> None:
    result = own(tmp_path, ATTENTION.format(name=name, masked=masked))
    line = sampled(result, name, tmp_path)
    assert f"dtype: {dtype}," in line
    assert f"sample: {sample} }}" in line
    assert shapes(result)["x"] == ("batch", "sequence", 8)


@pytest.mark.thorough
def test_what_torch_writes_at_padding_by_its_fast_path_is_not_compared(tmp_path: Path) -> None:
    masks = "src_key_padding_mask=padding"
    code = ENCODER.format(batch_first=True, inputs="tokens, padding", masks=masks)
    result = own(tmp_path, code)
    assert shapes(result)["tokens"] == ("batch", "sequence")
    assert "sample: key_padding_mask" in sampled(result, "padding", tmp_path)
    assert result.contract.outputs[0].mask == "padding"
    assert "masked-row" in result.skip


@pytest.mark.thorough
def test_lengths_are_known_by_what_lies_beyond_them(tmp_path: Path) -> None:
    masked = "scores.masked_fill((torch.arange(x.shape[1]) >= n[:, None])[:, None], -1e9)"
    result = own(tmp_path, ATTENTION.format(name="n", masked=masked))
    assert result.samples["n"].along == "sequence"


class Candidates(torch.nn.Module):
    """Several candidates a row, each with a length of its own."""

    def __init__(self, *, reads_all: bool) -> None:
        super().__init__()
        self.table, self.reads_all = torch.nn.Embedding(30, 4), reads_all

    def forward(self, ids: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        real = torch.arange(ids.shape[2]) < count[:, :, None]
        rows = self.table(ids) * real[..., None]
        summed = rows.sum(2) + (self.table(ids).mean(2) if self.reads_all else 0)
        return summed / count[:, :, None].clamp_min(1) + rows[..., 0].gather(
            2, count[..., None] - 1
        )


@pytest.mark.parametrize("reads_all", [False, True])
def test_lengths_may_be_those_of_a_row_s_candidates(*, reads_all: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    example = (
        torch.randint(0, 30, (3, 4, 7), generator=generator),
        torch.randint(1, 8, (3, 4), generator=generator),
    )
    loaded = LoadedModel(Candidates(reads_all=reads_all).eval(), "a test's")
    found = survey_module(loaded, 60, lambda _: None, example)
    sample = found.samples["count"]
    longest = found.contract.inputs[0].shape[2]
    assert isinstance(longest, str)
    assert (sample == Sample("lengths", along=longest)) != reads_all


@pytest.mark.thorough
def test_the_batch_is_the_axis_with_independent_rows(tmp_path: Path) -> None:
    code = ENCODER.format(batch_first=False, inputs="tokens", masks="mask=None")
    result = own(tmp_path, code)
    assert shapes(result)["tokens"] == ("sequence", "batch")
    assert "change nothing in the first row" in result.axis_notes["batch"]
    assert "--example" in result.axis_notes["batch"]  # one sequence runs, too


@pytest.mark.thorough
def test_ids_have_a_value_as_often_as_there_are_rows_for_it(tmp_path: Path) -> None:
    result = own(tmp_path, SCATTER)
    assert result.samples["ids"].held == (Held(299, "features"),)
    assert shapes(result)["image_features"] == ("features", 6)
    assert "holds: [[299, features]]" in sampled(result, "ids", tmp_path)


@pytest.mark.thorough
def test_a_value_that_ids_are_compared_with_is_drawn(tmp_path: Path) -> None:
    assert own(tmp_path, CHOICE).samples["ids"].held == (Held(2999),)


@pytest.mark.parametrize(
    ("first", "size", "what"),
    [("torch.zeros(1, 2, 5)", 2, "factory.py"), ("self.first", 3, "'first'")],
)
@pytest.mark.sampled(1)
def test_what_holds_the_batchs_size_is_named(
    tmp_path: Path, first: str, size: int, what: str
) -> None:
    result = own(tmp_path, HELD.format(first=first))
    assert shapes(result)["x"][0] == size
    assert any(f"fixed at {size}" in note and what in note for note in result.notes)


class Patches(torch.nn.Module):
    """Puts four patches of each image where ids are 7."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(9, 4)
        self.patches = torch.nn.Conv2d(3, 4, 4, 4)

    def forward(self, ids: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
        rows = self.patches(pixels).flatten(2).transpose(1, 2)
        return self.table(ids).masked_scatter((ids == 7).unsqueeze(-1), rows)


def test_rows_that_are_computed_from_an_image_are_counted_by_image() -> None:
    ids = torch.tensor([[1, 7, 7, 7, 7, 2], [7, 7, 7, 7, 3, 4]])
    arguments = {"ids": ids, "pixels": torch.zeros(2, 3, 8, 8)}
    role = argument_uses(Patches(), arguments).roles["pixels"]
    assert (role.name, role.ids, role.value, role.from_each) == ("rows", "ids", 7, 4)


PACKED = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = torch.nn.GRU(6, 4, batch_first=True)

    def forward(self, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return torch.nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
"""


def test_lengths_of_a_packed_batch_fill_their_axis_and_descend(tmp_path: Path) -> None:
    example = example_of(tmp_path, "(torch.ones(3, 9, 6), torch.tensor([9, 5, 2]))")
    result = own(tmp_path, PACKED, example=example)
    assert result.samples["lengths"] == Sample("lengths", (1.0,), along="sequence")
    assert shapes(result)["output"] == ("batch", "sequence", 4)
