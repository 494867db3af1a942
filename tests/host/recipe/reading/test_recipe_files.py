import os
from pathlib import Path

import pytest

from convkit.host.recipe.reading.named_files import file_faults


def faults(recipe, folder: Path) -> list[tuple[object, str]]:
    return [(fault.path, fault.message) for fault in file_faults(recipe, folder)]


def one(recipe, folder: Path) -> str:
    ((_, message),) = faults(recipe, folder)
    return message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "m.onnx").write_bytes(b"x")
    (tmp_path / "net.py").write_text(
        "import torch as t\nfrom os import path\nFLAG, other = 1, 2\nbuilder = None\n"
        "def build(layers): ...\nclass Net: ...\n",
        encoding="utf-8",
    )
    (tmp_path / "texts.txt").write_text("one\n\ntwo\n", encoding="utf-8")
    (tmp_path / "x.npy").write_bytes(b"x")
    return tmp_path


@pytest.mark.parametrize(
    "recipe",
    [
        {"model": {"path": "model"}},
        {"model": {"onnx": "m.onnx"}},
        {"model": {"factory": "net.py:build"}},
        {"model": {"factory": {"call": "net.py:Net"}}},
        {"model": {"factory": "net.py:builder"}},
        {"model": {"factory": "net.py:path"}},
        {"model": {"factory": "net.py:t"}},
        {"verify": {"texts": "texts.txt"}},
        {"inputs": [{"sample": {"file": "x.npy"}}]},
    ],
)
def test_files_that_are_there_are_accepted(recipe, folder):
    assert faults(recipe, folder) == []


@pytest.mark.parametrize(
    ("recipe", "path", "says"),
    [
        ({"model": {"path": "modle"}}, ("model", "path"), "found no folder 'modle'"),
        ({"model": {"path": "modle"}}, ("model", "path"), "perhaps you meant 'model'"),
        ({"model": {"path": "empty"}}, ("model", "path"), "has no config.json"),
        ({"model": {"path": "m.onnx"}}, ("model", "path"), "an ONNX file goes under model.onnx"),
        ({"model": {"path": "net.py"}}, ("model", "path"), "write the folder it is in"),
        ({"model": {"onnx": "n.onnx"}}, ("model", "onnx"), "found no file 'n.onnx'"),
        ({"model": {"onnx": "model"}}, ("model", "onnx"), "is a folder; write the path of a file"),
        (
            {"model": {"factory": "nat.py:build"}},
            ("model", "factory"),
            "perhaps you meant 'net.py'",
        ),
        ({"model": {"factory": "net.py:biuld"}}, ("model", "factory"), "perhaps you meant 'build'"),
        (
            {"model": {"factory": {"call": "net.py:run"}}},
            ("model", "factory", "call"),
            "does not define 'run'",
        ),
        ({"verify": {"texts": "text.txt"}}, ("verify", "texts"), "perhaps you meant 'texts.txt'"),
        ({"verify": {"texts": "x" * 3000}}, ("verify", "texts"), "found no file"),
        ({"verify": {"texts": "a\0b"}}, ("verify", "texts"), "found no file"),
        (
            {"inputs": [{}, {"sample": {"file": "y.npy"}}]},
            ("inputs", 1, "sample", "file"),
            "found no file 'y.npy'",
        ),
    ],
)
def test_files_that_are_not_are_refused(recipe, path, says, folder):
    ((found, message),) = faults(recipe, folder)
    assert found == path
    assert says in message


def test_a_factory_that_is_not_python_is_refused_with_its_line(folder):
    (folder / "bad.py").write_text("x = 1\ndef build(:\n", encoding="utf-8")
    assert "is not valid Python: line 2" in one({"model": {"factory": "bad.py:build"}}, folder)


@pytest.mark.parametrize("source", ["from os import *\n", "if True:\n    def build(): ...\n"])
def test_a_factory_that_may_be_defined_is_left_to_the_stage(source, folder):
    (folder / "dynamic.py").write_text(source, encoding="utf-8")
    assert faults({"model": {"factory": "dynamic.py:build"}}, folder) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\n \n", "contains no text"),
        (b"caf\xe9\n", "cannot be read as UTF-8"),
        (b"x" * (2 << 20), "larger than 1 MiB"),
    ],
)
def test_texts_must_hold_text(content, says, folder):
    (folder / "t.txt").write_bytes(content)
    assert says in one({"verify": {"texts": "t.txt"}}, folder)


def test_paths_start_at_the_recipes_folder_and_absolute_ones_stay(folder, monkeypatch):
    monkeypatch.chdir(os.path.sep)
    assert faults({"model": {"path": "model"}}, folder) == []
    assert faults({"model": {"path": str(folder / "model")}}, Path(os.path.sep)) == []


@pytest.mark.parametrize(
    "recipe", [None, [], {"model": []}, {"model": {"path": 1}}, {"inputs": {}}, {"inputs": [[]]}]
)
def test_other_forms_are_passed_over(recipe, folder):
    assert faults(recipe, folder) == []
