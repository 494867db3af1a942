import numpy as np
import pytest

from convkit.worker.cases.values.pictures_and_sounds import draw_audio, draw_image


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    "shape", [(2, 3, 64, 80), (2, 64, 80, 3), (64, 80), (1, 1, 1, 1), (5,), (), (0, 3, 8, 8)]
)
def test_pictures_have_their_shape_and_range_and_are_drawn_again_alike(shape):
    picture = draw_image(shape, random())
    assert picture.shape == shape
    assert ((picture >= 0) & (picture <= 1)).all()
    np.testing.assert_array_equal(picture, draw_image(shape, random()))
    if np.prod(shape) > 100:
        assert not np.array_equal(picture, draw_image(shape, random(1)))


def test_neighbors_in_a_picture_are_alike_and_edges_sharp_in_either_layout():
    for picture in (
        draw_image((1, 3, 96, 96), random())[0, 0],
        draw_image((96, 96, 3), random())[..., 0],
    ):
        steps = np.abs(np.diff(picture, axis=1))
        assert np.median(steps) < 0.02  # noise has 0.3
        assert steps.max() > 0.3


@pytest.mark.parametrize("shape", [(2, 1, 16000), (16000,), (3, 0), ()])
def test_sound_has_its_shape_and_range(shape):
    sound = draw_audio(shape, random())
    assert sound.shape == shape
    assert ((sound >= 0) & (sound <= 1)).all()


def test_sound_holds_a_pitch_and_not_noise():
    sound = draw_audio((16000,), random()) - 0.5
    spectrum = np.abs(np.fft.rfft(sound)) ** 2
    strongest = np.sort(spectrum)[::-1]
    assert strongest[:100].sum() > 0.8 * spectrum.sum()
