"""What an input of transformers' models may be, from its name and the configuration."""

import types

import pytest

from convkit.worker.survey.torch_module.input_candidates import by_name


@pytest.mark.parametrize(("config", "channels"), [({}, 1), ({"audio_channels": 2}, 2)])
def test_sound_is_tried_with_an_axis_of_channels_last(config, channels) -> None:
    found = by_name("input_values", types.SimpleNamespace(**config))
    assert [each.shape for each in found] == [("batch", "samples"), ("batch", channels, "samples")]
    assert {each.sample.kind for each in found} == {"audio"}


def test_a_spectrogram_is_tried_first_where_the_configuration_has_bins() -> None:
    found = by_name("input_features", types.SimpleNamespace(num_mel_bins=80))
    assert found[0].shape == ("batch", "length", 80)
    assert found[-1].shape == ("batch", 1, "samples")
