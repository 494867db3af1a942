"""Drafts of models that run with their example's values only."""

from pathlib import Path

import pytest

from convkit.host.draft.surveyed_model import signature_of_survey
from convkit.host.draft.transformers_families import Drawn
from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.errors import UsageError
from convkit.protocol.messages import Sample, SurveyResult

SURVEY = SurveyResult(
    Contract((TensorSpec("box", "int64", (40, 2)),), (), ()),
    {"box": Sample("file", path="/scratch/example.npz")},
    ran=True,
)


def test_the_sample_is_the_file_beside_the_recipe():
    (box,) = signature_of_survey(SURVEY, Path("recipes/net.example.npz")).inputs
    assert box.sample == Drawn("file", "net.example.npz")


def test_without_a_file_the_draft_says_how_to_get_one():
    with pytest.raises(UsageError, match=r"'box'.*-o RECIPE\.yaml"):
        signature_of_survey(SURVEY)
