"""Outputs that are NaN where there is nothing are compared elsewhere only."""

from pathlib import Path

import numpy as np
import pytest
from test_file_survey import saved, surveyed

from convkit.host.draft.init_command import Drafting, draft
from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

# Predictions for the atoms of a residue, of which some do not exist.
BLANK = """g (float[n,6,4] x, bool[n,6] mask) => (float[n,6] y) {
    axes = Constant<value_ints=[2]>()
    sum = ReduceSum<keepdims=0>(x, axes)
    real = Cast<to=1>(mask)
    share = Div(real, real)
    y = Mul(sum, share)
}"""


def test_the_mask_that_explains_the_nan_is_drafted(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, BLANK))
    assert found.contract.outputs[0].mask == "mask"
    assert any("'y' is NaN where 'mask' marks padding" in note for note in found.notes)


@pytest.mark.parametrize(
    "other",
    [
        BLANK.replace("y = Mul(sum, share)", "y = Mul(sum, real)"),  # no NaN
        # NaN at real positions, too: of the row, if any of it is padding.
        BLANK.replace(
            "y = Mul(sum, share)",
            "last = Constant<value_ints=[1]>() all = ReduceSum(share, last) y = Mul(sum, all)",
        ),
    ],
)
def test_other_outputs_have_no_mask(tmp_path: Path, other: str) -> None:
    found = surveyed(saved(tmp_path, other))
    assert found.contract.outputs[0].mask is None


def test_such_a_file_verifies(tmp_path: Path) -> None:
    path = saved(tmp_path, BLANK)
    recipe = tmp_path / "recipe.yaml"
    home = Home(tmp_path / "home")
    recipe.write_text(draft(Drafting(str(path), recipe), home, lambda _: None, toolchain="host"))
    assert "mask: mask" in recipe.read_text()
    record = run_recipe(RunOptions(recipe, home, toolchain="host", track=False)).record
    assert [target.status for target in record.targets] == ["verified"]
    padded = next(
        case
        for verification in record.targets[0].verifications
        for case in verification.cases
        if case.case == "padded"
    )
    assert padded.passed
    assert np.isfinite(padded.outputs[0].metrics.max_abs)
