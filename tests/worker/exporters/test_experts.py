"""Mixtures of experts, which are traced with an implementation that ONNX has operators for."""

import pytest
import torch
from transformers import MixtralConfig, MixtralModel

from convkit.worker.exporters.traceable_layers import traceable_experts


@pytest.fixture(scope="module")
def mixtral() -> torch.nn.Module:
    torch.manual_seed(0)
    return MixtralModel(
        MixtralConfig(
            vocab_size=20,
            hidden_size=16,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            num_local_experts=3,
        )
    ).eval()


@pytest.mark.parametrize("own", ["grouped_mm", "eager"])
def test_experts_are_traced_in_another_way_and_compute_the_same(mixtral, own):
    mixtral.set_experts_implementation(own)
    tokens = torch.randint(0, 20, (2, 5), generator=torch.Generator().manual_seed(0))
    expected = mixtral(tokens, use_cache=False).last_hidden_state
    with traceable_experts(torch.nn.Sequential(mixtral)):
        assert mixtral.get_experts_implementation()[""] == "batched_mm"
        found = mixtral(tokens, use_cache=False).last_hidden_state
    assert mixtral.get_experts_implementation()[""] == own
    assert torch.allclose(found, expected, atol=1e-5)


def test_other_modules_stay_as_they_are():
    with traceable_experts(torch.nn.Linear(2, 2)) as nothing:
        assert nothing is None


def test_an_implementation_that_is_fixed_when_loaded_is_kept():
    asked = []

    class Fixed(torch.nn.Module):
        def get_experts_implementation(self) -> dict[str, str]:
            return {"": "deepgemm_megamoe"}

        def set_experts_implementation(self, name: object) -> None:
            asked.append(name)
            raise RuntimeError(f"cannot switch to {name}")

    with traceable_experts(Fixed()):
        assert asked == ["batched_mm"]
    assert asked == ["batched_mm"], "there is nothing to switch back"
