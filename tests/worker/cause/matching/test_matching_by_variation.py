"""Values that hardly vary are nearly the same whatever they were computed from."""

import numpy as np
import pytest
import torch

from convkit.worker.cause.matching.value_matching import match_values
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.recording.torch_recording import record


class Uniform(torch.nn.Module):
    """Attention whose scores are all alike: its probabilities are a half, and a little."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 1e-3, -1)


X = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def recording() -> Recording:
    return record(Uniform(), {"x": X}, ("y",))


def probabilities(scores: torch.Tensor) -> np.ndarray:
    return np.asarray(torch.softmax(scores, -1), np.float32)


def test_probabilities_of_other_scores_do_not_match(recording: Recording) -> None:
    other = probabilities(X.flip(0) * 1e-4)
    off = np.abs(other - recording.output("y")).max() / 0.5
    assert off < 3e-3  # less than values may be off by that match
    assert "y" not in match_values(recording, {"y": other}, 1e-2)


def test_their_last_bits_may_differ(recording: Recording) -> None:
    nudged = recording.output("y") * np.float32(1 + 2e-6)
    assert match_values(recording, {"y": nudged}, 1e-2)["y"].value == recording.outputs["y"]


def test_values_that_a_mask_hides_are_no_variation() -> None:
    scores = torch.stack([X[..., 0], X[..., 1], torch.full((3, 5), -1e9)], -1)

    class Masked(torch.nn.Module):
        def forward(self, scores: torch.Tensor) -> torch.Tensor:
            return torch.softmax(scores * 1e-3, -1)

    masked = record(Masked(), {"scores": scores}, ("y",))
    other = probabilities(scores.flip(0) * 1e-4)
    assert np.abs(other - masked.output("y")).max() < 3e-3
    assert "y" not in match_values(masked, {"y": other}, 1e-2)
