"""Settings that prove less than they seem to, in a whole run of a model that is right."""

from typing import Any

import pytest
from faults.recipes import write_recipe

from convkit.host.home import Home
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 4)

    def forward(self, input_ids, attention_mask):
        scores = self.words(input_ids) * attention_mask.unsqueeze(-1)
        return {"scores": scores, "labels": scores.argmax(-1)}

def build():
    return Net()
"""
ROWS = ["batch", "sequence"]
ORT = {"runtime": "onnxruntime"}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("doubtful")
    targets: dict[str, Any] = {
        "blind": ORT | {"tolerance": {"cosine": 0.99}, "outputs": {"labels": {"max_abs": 1.0}}},
        "wide": ORT | {"tolerance": {"max_abs": 1000.0}, "outputs": {"labels": {"max_abs": 1.0}}},
        "narrow": ORT | {"tolerance": {"max_abs": 1e-12}},
    }
    recipe = write_recipe(
        folder,
        code=CODE,
        axes={
            "batch": {"min": 1, "typical": 2, "max": 4},
            "sequence": {"min": 2, "typical": 6, "max": 12},
        },
        inputs=[
            {"name": name, "dtype": "int64", "shape": ROWS, "sample": {"integers": [0, most]}}
            for name, most in (("input_ids", 50), ("attention_mask", 2))
        ],
        outputs=[
            {"name": "scores", "dtype": "float32", "shape": [*ROWS, 4], "mask": "input_ids"},
            {"name": "labels", "dtype": "int64", "shape": ROWS},
        ],
        targets=targets,
    )
    options = RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)
    return run_recipe(options).record


def by_target(record: RunRecord) -> dict[str, set[str]]:
    """Return the codes of each target and of its verification."""
    return {
        target.name: {
            finding.code
            for findings in (target.findings, *(each.findings for each in target.verifications))
            for finding in findings
        }
        for target in record.targets
    }


def test_each_target_has_its_own_doubts(record: RunRecord) -> None:
    masks = {"C401", "C402"}
    found = by_target(record)
    assert found["blind"] == masks | {"N503", "N504"}
    assert found["wide"] == masks | {"N501", "N504"}
    assert found["narrow"] == masks | {"N502"}


def test_what_any_model_would_pass_is_unproven(record: RunRecord) -> None:
    assert {target.name: target.status for target in record.targets} == {
        "blind": "verified",
        "wide": "unproven",
        "narrow": "verified",
    }
    assert record.status == "unproven"
    assert record.exit_code == 0, "the command line adds --strict"


def test_they_are_warnings_at_their_places(record: RunRecord) -> None:
    assert {finding.severity for finding in record.findings} == {"warning"}
    places = {finding.code: finding.place.tensor for finding in record.findings}
    assert places["C401"] == "attention_mask"
    assert {places[code] for code in ("C402", "N501", "N502", "N503")} == {"scores"}
    assert places["N504"] == "labels"


def test_a_mask_drawn_at_random_is_mended_by_its_sample(record: RunRecord) -> None:
    (finding,) = [each for each in record.findings if each.code == "C401"]
    assert finding.remedy is not None
    assert finding.remedy.change == {"inputs.1.sample": "padding_mask"}
