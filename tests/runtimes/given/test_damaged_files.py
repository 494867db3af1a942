"""Damage that shows in the bytes of a built file, of each format as its own library writes it."""

import shutil
import struct
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from given_models import SAVE, convert

from convkit.host.draft.recipe_draft import needs_survey
from convkit.protocol.errors import UsageError
from convkit.runtimes.given.formats import FORMATS


def damage(path: Path) -> str | None:
    check = FORMATS[path.suffix].damage
    assert check is not None
    return check(path)


def cut(path: Path, *, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


@pytest.fixture(scope="module")
def tflite(tmp_path_factory) -> Path:
    """A model whose weights come last, as TensorFlow's converter writes them."""
    from ai_edge_litert import schema_py_generated as schema

    path = tmp_path_factory.mktemp("tflite") / "model.tflite"
    model = schema.ModelT()
    model.version, model.subgraphs, model.operatorCodes = 3, [schema.SubGraphT()], []
    weights = schema.BufferT()
    weights.data = np.ones(64, np.uint8)
    model.buffers = [schema.BufferT(), weights]
    builder = flatbuffers.Builder(64)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(builder.Output())
    return path


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """An ML program whose weights are in a file of their own."""
    from mil_programs import mb, mil_program, save_program

    def body(x):
        return mb.add(x=x, y=np.arange(64, dtype=np.float32).reshape(1, 64), name="y")

    path = tmp_path_factory.mktemp("package") / "model.mlpackage"
    save_program(mil_program(body, {"x": ((1, 64), "fp32")}), path)
    return path


@pytest.mark.parametrize("suffix", [".tflite", ".xml", ".mlpackage"])
def test_a_whole_file_has_no_damage_and_is_explained(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    SAVE[suffix](path)
    assert damage(path) is None
    with pytest.raises(UsageError, match="a converter built this file"):
        needs_survey(str(path), destination=tmp_path / "r.yaml")


def test_a_tflite_model_that_is_cut_off(tflite, tmp_path):
    assert damage(tflite) is None
    whole = tflite.read_bytes()
    copy = tmp_path / "model.tflite"
    for length in (8, 20, len(whole) // 2, len(whole) - 8):
        copy.write_bytes(whole[:length])
        assert damage(copy) == "it is truncated", length
    copy.write_bytes(struct.pack("<I", 8) + b"TFL3" + bytes(12))
    assert damage(copy) is None  # no buffers: nothing that could be missing


def test_an_ir_without_all_of_its_weights(tmp_path):
    path, weights = tmp_path / "model.xml", tmp_path / "model.bin"
    SAVE[".xml"](path)
    size = weights.stat().st_size
    cut(weights, by=1)
    assert damage(path) == f"model.bin has {size - 1} of {size} bytes of weights"
    weights.unlink()
    assert damage(path) == "its weights, model.bin, are not beside it"
    convert(path.with_suffix(".onnx"))
    cut(path, by=20)
    assert (damage(path) or "").startswith("it is not complete XML")
    path.write_text("<html></html>", encoding="utf-8")
    assert damage(path) == "its root element is 'html' instead of 'net'"


def test_a_package_that_lacks_a_part(package, tmp_path):
    assert damage(package) is None
    inner = Path("Data/com.apple.CoreML")
    weights = inner / "weights/weight.bin"

    def spoiled(spoil) -> str | None:
        copy = tmp_path / "model.mlpackage"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(package, copy)
        spoil(copy)
        return damage(copy)

    name = "weights/weight.bin"
    assert spoiled(lambda copy: (copy / weights).unlink()) == f"its weights, {name}, are missing"
    for by in (4, 64 * 4, 64 * 4 + 60):
        assert spoiled(lambda copy, by=by: cut(copy / weights, by=by)) == (
            f"its weights, {name}, are truncated or damaged"
        )
    assert spoiled(lambda copy: cut(copy / inner / "model.mlmodel", by=1)) == (
        "model.mlmodel is truncated or damaged"
    )
    assert spoiled(lambda copy: (copy / inner / "model.mlmodel").unlink()) == (
        "Data/com.apple.CoreML/model.mlmodel is missing"
    )
    manifest = "Manifest.json"
    assert spoiled(lambda copy: (copy / manifest).write_text("{}")) == (
        "its Manifest.json names no model"
    )
    assert spoiled(lambda copy: cut(copy / manifest, by=5)) == "its Manifest.json is not valid JSON"
