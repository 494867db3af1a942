"""`inspect` says what a file is that it cannot read, before it starts anything."""

from pathlib import Path

import pytest

from convkit.host.draft.file_inspection import inspect_model
from convkit.host.home import Home
from convkit.protocol.errors import ModelFileError


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.ort", b"\0" * 64, "onnxruntime's own format"),
        ("model.tflite", b"\0" * 64, "model.tflite"),
        ("model.pt2", b"PK", "Draft its recipe: convkit init"),
        ("model.jit", b"PK", "Draft its recipe: convkit init"),
    ],
)
def test_it_names_the_format(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    progress: list[str] = []
    with pytest.raises(ModelFileError, match=said) as raised:
        inspect_model(path, Home.find(tmp_path / "home"), progress.append)
    assert "Wire format" not in str(raised.value)
    assert not progress
