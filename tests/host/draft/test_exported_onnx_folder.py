"""Which of a folder's ONNX files `convkit init` takes."""

from pathlib import Path

import pytest

from convkit.host.draft.exported_onnx_folder import Halves, onnx_model
from convkit.protocol.errors import UsageError

ENCODER, DECODER = "encoder_model.onnx", "decoder_model.onnx"


def folder_of(folder: Path, *files: str) -> Path:
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["model.onnx", "config.json"], "model.onnx"),
        (["net.onnx"], "net.onnx"),
        (["below/model.onnx"], "below/model.onnx"),
        (["onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_int8.onnx"], "onnx/model.onnx"),
        (["model.onnx", "model.safetensors"], None),
        (["model.onnx", "pytorch_model-00001-of-00002.bin"], None),
        (["config.json", "tokenizer.json"], None),
    ],
)
def test_one_model_is_found_unless_there_are_weights(
    tmp_path: Path, files: list[str], expected: str | None
) -> None:
    folder = folder_of(tmp_path, *files)
    assert onnx_model(folder) == (None if expected is None else folder / expected)


@pytest.mark.parametrize("below", ["", "onnx/"])
def test_an_encoder_and_a_decoder_are_halves(tmp_path: Path, below: str) -> None:
    merged = "decoder_model_merged.onnx"
    folder = folder_of(tmp_path, *(f"{below}{each}" for each in (ENCODER, DECODER, merged)))
    expected = Halves(
        folder / below / ENCODER, folder / below / DECODER, (folder / below / merged,)
    )
    assert onnx_model(folder) == expected


def test_plain_names_are_halves_too(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "encoder.onnx", "decoder.onnx", "manifest.json")
    assert onnx_model(folder) == Halves(folder / "encoder.onnx", folder / "decoder.onnx", ())


@pytest.mark.parametrize(
    "files", [["unet.onnx", "vae.onnx"], ["unet/model.onnx", "vae/model.onnx"]]
)
def test_several_models_are_listed(tmp_path: Path, files: list[str]) -> None:
    folder = folder_of(tmp_path, *files)
    with pytest.raises(UsageError, match="several ONNX files") as caught:
        onnx_model(folder)
    assert all(str(folder / each) in str(caught.value) for each in files)
