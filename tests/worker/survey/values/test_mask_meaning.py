"""Whether 0 or 1 marks padding in a mask is found out by what the model leaves out."""

from pathlib import Path

import pytest
from test_file_survey import saved, surveyed
from test_module_survey import own

from convkit.host.draft.recipe_draft import draft_recipe
from convkit.protocol.messages import SurveyResult

ATTENDING = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(30, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, tokens, mask):
        x = self.table(tokens)
        return self.attention(x, x, x, key_padding_mask={mask}, need_weights=False)[0]{pool}
"""
POOLED = """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(30, 8)

    def forward(self, tokens, padding_mask):
        keep = {keep}.unsqueeze(-1).float()
        return (self.table(tokens) * keep).sum(1) / keep.sum(1).clamp(min=1)
"""
CAUSAL = """
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(30, 8)

    def forward(self, tokens, mask):
        return (self.table(tokens) * {keep}.unsqueeze(-1)).cumsum(1)
"""
UNUSED = """
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(30, 8)

    def forward(self, tokens, mask):
        return self.table(tokens) + 0.0 * mask.unsqueeze(-1)
"""


def padding_of(result: SurveyResult, name: str) -> int:
    (spec,) = (spec for spec in result.contract.inputs if spec.name == name)
    assert result.samples[name].kind == "padding_mask"
    return spec.padding


@pytest.mark.parametrize(
    ("body", "name", "padding"),
    [
        (ATTENDING.format(mask="mask", pool=""), "mask", 1),
        (ATTENDING.format(mask="~mask", pool=""), "mask", 0),
        pytest.param(
            ATTENDING.format(mask="mask", pool="[:, 0]"), "mask", 1, marks=pytest.mark.thorough
        ),
        pytest.param(
            POOLED.format(keep="(1 - padding_mask.long())"),
            "padding_mask",
            1,
            marks=pytest.mark.thorough,
        ),
        (POOLED.format(keep="padding_mask"), "padding_mask", 0),
        (CAUSAL.format(keep="mask.logical_not()"), "mask", 1),
        (CAUSAL.format(keep="mask"), "mask", 0),
        (UNUSED, "mask", 0),
    ],
)
@pytest.mark.sampled(3)
def test_what_a_mark_hides_is_padding(tmp_path: Path, body: str, name: str, padding: int) -> None:
    assert padding_of(own(tmp_path, body), name) == padding


@pytest.mark.thorough
def test_a_row_that_is_masked_whole_is_left_out_if_it_is_nan(tmp_path: Path) -> None:
    result = own(tmp_path, ATTENDING.format(mask="mask", pool=""))
    assert result.skip == ("masked-row",)
    assert any("NaN for a fully masked row" in note for note in result.notes)
    text = draft_recipe(
        f"{tmp_path}/factory.py:build", destination=tmp_path / "r.yaml", survey=result
    )
    assert "skip: [masked-row]" in text
    assert "name: mask, dtype: bool, shape: [batch, sequence], sample: key_padding_mask" in text
    assert own(tmp_path, POOLED.format(keep="padding_mask")).skip == ()


# softmax over positions, of which the mask leaves out those that are `marked`
GRAPH = """g (float[batch,sequence] x, {type}[batch,sequence] mask) => (float[batch,sequence] y) {{
    hidden = Cast<to=9>(mask)
    {negated}
    none = Constant<value_float={nothing}>()
    left = Where(marked, none, x)
    shares = Softmax<axis=-1>(left)
    y = Mul(shares, x)
}}"""


@pytest.mark.parametrize("kind", ["bool", "int64", "float"])
@pytest.mark.parametrize("nothing", ["-10000.0", "-inf"])
@pytest.mark.parametrize(("negated", "padding"), [("Identity", 1), ("Not", 0)])
def test_a_files_masks_have_a_meaning(
    tmp_path: Path, kind: str, nothing: str, negated: str, padding: int
) -> None:
    text = GRAPH.format(type=kind, negated=f"marked = {negated}(hidden)", nothing=nothing)
    if nothing == "-inf":
        text = text.replace(
            "none = Constant<value_float=-inf>()",
            "one = Constant<value_float=-1.0>()\n zero = Constant<value_float=0.0>()\n"
            " none = Div(one, zero)",
        )
    result = surveyed(saved(tmp_path, text))
    assert result.ran
    assert padding_of(result, "mask") == padding
    assert result.skip == (("masked-row",) if nothing == "-inf" else ())
