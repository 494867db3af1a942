"""The shipped recognizer that keeps its own state in Core ML, at a tiny size."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from test_low_precision import run
from test_shipped_models import changed
from test_steps_run import WIDTH, calls

import convkit


def recognizer(folder: Path) -> Path:
    text = (Path(__file__).parents[3] / "recipes" / "recognizer-coreml.yaml").read_text()
    content = yaml.safe_load(text.replace("256", str(WIDTH)).replace("80]", "4]"))
    content["model"]["factory"]["arguments"] = {"mels": 4, "width": WIDTH}
    content["steps"] |= {"prefill": 3, "count": 3}
    del content["name"]
    return changed(folder, "recognizer-coreml", **content)


@pytest.mark.slow
def test_a_program_s_own_state_continues_from_call_to_call(tmp_path: Path) -> None:
    outcome = run(recognizer(tmp_path), tmp_path / "home")
    (target,) = outcome.record.targets
    assert (target.status, target.verifications[0].evidence) == ("verified", "simulated")
    errors = calls(outcome)
    assert list(errors) == ["steps:prefill", "steps:1", "steps:2", "steps:3"]
    assert max(errors.values()) < 2e-2
    session = convkit.load(outcome.folder / "models" / "float16")
    frames = np.ones((1, 2, 4), np.float32)
    state = np.zeros((2, 1, WIDTH), np.float32)
    first = session(frames=frames, hidden=state, cell=state)
    again = session(frames=frames, hidden=first["hidden_out"], cell=first["cell_out"])
    assert np.abs(again["scores"] - first["scores"]).max() > 1e-3
