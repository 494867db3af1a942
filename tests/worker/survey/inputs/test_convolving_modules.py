"""Which modules a draft takes for convolving ones."""

from pathlib import Path

import pytest
import torch
from tiny_models import factory_source
from torch.nn import GRU, Conv1d, ConvTranspose2d, Embedding, Linear, Sequential

from convkit.protocol.messages import SurveyModelRequest
from convkit.worker.job_context import Context
from convkit.worker.stages.survey_model import run
from convkit.worker.survey.inputs.layer_hints import convolves


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Sequential(Conv1d(2, 8, 5), Linear(8, 2)), True),
        (ConvTranspose2d(2, 8, 5), True),
        (Sequential(Conv1d(2, 8, 5), Linear(80, 80)), False),
        (Sequential(Conv1d(2, 8, 5), Embedding(100, 8)), False),
        (Sequential(Conv1d(2, 8, 5), GRU(16, 16)), False),
        (torch.nn.ReLU(), False),
    ],
    ids=lambda each: str(each)[:24],
)
def test_most_weights_decide(module: torch.nn.Module, *, expected: bool) -> None:
    assert convolves(module) is expected


@pytest.mark.parametrize(
    ("layer", "expected"), [("Conv1d(2, 8, 5)", True), ("Linear(4, 4)", False)]
)
def test_a_survey_says_so(tmp_path: Path, layer: str, *, expected: bool) -> None:
    code = f"def build():\n    return torch.nn.Sequential(torch.nn.{layer})\n"
    request = SurveyModelRequest(factory_source(tmp_path, code), 60.0)
    result, _ = run(request, Context(tmp_path))
    assert result.convolves is expected
