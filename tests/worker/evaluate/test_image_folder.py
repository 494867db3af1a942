"""A folder with a folder of images for each class, as the rows of a task metric."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Evaluation
from convkit.protocol.preprocessing_constants import ImageConstants, Preprocessing
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.evaluate.row_reading import read_rows
from convkit.worker.evaluate.task_runs import run_rows, score_built
from convkit.worker.job_context import UnfitDataError

CONSTANTS = ImageConstants(resize=(2, 2), scale=1 / 255)


def contract(given: Preprocessing | None) -> Contract:
    pixels = TensorSpec("pixels", "float32", ("batch", 3, 2, 2), preprocess=given)
    scores = TensorSpec("y", "float32", ("batch", 2))
    return Contract((pixels,), (scores,), (Axis("batch", 1, 2, 4),))


def brightness(feeds):
    """Class 1 is for bright images."""
    bright = feeds["pixels"].mean(axis=(1, 2, 3)) - 0.5
    return {"y": np.stack([-bright, bright], axis=1)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, level, count in (("bright", 250, 1), ("dark", 5, 3)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((4, 6, 3), level + number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "dark" / ".DS_Store").write_bytes(b"not an image")
    return tmp_path / "photos"


def asked(photos: Path, **changes) -> Evaluation:
    return Evaluation(str(photos), "accuracy", "y", {"pixels": "image"}, (), "label", **changes)


def test_the_first_rows_are_of_all_classes(photos):
    rows = read_rows(asked(photos))
    assert rows.column("label") == [0, 1, 1, 1]
    assert rows.column("class") == ["bright", "dark", "dark", "dark"]
    assert [path.name for path in rows.column("image")] == ["0.png", "0.png", "1.png", "2.png"]
    assert read_rows(asked(photos, most_rows=2)).column("class") == ["bright", "dark"]


def test_images_are_prepared_as_the_contract_says(photos, tmp_path):
    given = contract(Preprocessing(image=CONSTANTS))
    seen = []

    def darkness(feeds):
        seen.append(feeds["pixels"])
        return {"y": -brightness(feeds)["y"]}

    made_from = CaseInputs(given, {}, 0, ModelFacts())
    run_rows(asked(photos), made_from, None, darkness, tmp_path)
    found = score_built(asked(photos), given, brightness, tmp_path, lambda *_: None)
    assert (found.rows, found.original, found.candidate) == (4, 1.0, 0.0)
    assert [batch.shape for batch in seen] == [(2, 3, 2, 2)] * 2
    assert seen[0].dtype == np.float32
    np.testing.assert_allclose(seen[0][:, 0, 0, 0], [250 / 255, 5 / 255], rtol=1e-6)


def test_an_input_must_say_how_images_become_it(photos, tmp_path):
    made_from = CaseInputs(contract(None), {}, 0, ModelFacts())
    with pytest.raises(UnfitDataError, match="does not say how an image becomes pixels") as caught:
        run_rows(asked(photos), made_from, None, brightness, tmp_path)
    assert "preprocess: {image: ...}" in caught.value.findings[0].remedy.text


def test_a_file_that_is_no_image_is_named(photos, tmp_path):
    (photos / "dark" / "Thumbs.db").write_bytes(b"not an image")
    made_from = CaseInputs(contract(Preprocessing(image=CONSTANTS)), {}, 0, ModelFacts())
    with pytest.raises(UnfitDataError, match=r"Thumbs\.db cannot be read as an image"):
        run_rows(asked(photos), made_from, None, brightness, tmp_path)


def test_folders_without_images_have_too_few_rows(tmp_path):
    (tmp_path / "photos" / "dark").mkdir(parents=True)
    with pytest.raises(UnfitDataError, match=r"photos has too few rows \(0\)"):
        read_rows(asked(tmp_path / "photos"))
