"""What libraries read in C++ or Rust, outside the model's folder, is recorded."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_unanswered_lookups import found

LOADED = """
import sys
sys.path.insert(0, {top!r})
from convkit.protocol.messages import Source
from convkit.worker.original.loading.python_factory import load
from convkit.worker.process.opened_files import OpenedFiles
with OpenedFiles(None) as opened:
    load(Source("factory", path={file!r}, identifier="build"))
print("\\n".join(name for name in opened.found() if name.startswith({kinds!r})))
"""
READS = """
import torch
from safetensors import safe_open
from safetensors.torch import load_file
def build():
    torch.from_file({data!r} + "/from_file.bin", size=8).clone()
    storage = torch.UntypedStorage.from_file({data!r} + "/storage.bin", nbytes=32)
    try:
        torch.jit.load({data!r} + "/traced.pt")
    except RuntimeError:
        pass
    load_file({data!r} + "/whole.safetensors")
    with safe_open(filename={data!r} + "/opened.safetensors", framework="pt") as tensors:
        tensors.get_tensor("x")
    try:
        safe_open({data!r} + "/absent.safetensors", framework="pt")
    except FileNotFoundError:
        pass
    return torch.nn.Linear(2, 2)
"""


def test_they_are_recorded_as_reads_and_failed_lookups(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("from_file.bin", "storage.bin"):
        np.ones(8, np.float32).tofile(data / name)
    for name in ("whole", "opened"):
        save_file({"x": torch.ones(2)}, data / f"{name}.safetensors")
    (data / "traced.pt").write_bytes(b"no archive")  # opening it is a read, too
    names = ["from_file.bin", "opened.safetensors", "storage.bin", "traced.pt", "whole.safetensors"]
    kinds = (str(data), f"exists:{data}/absent")
    assert found(tmp_path, READS.format(data=str(data)), kinds, LOADED) == [
        *(f"{data}/{name}" for name in names),
        f"exists:{data}/absent.safetensors",
    ]


LIBRARIES = {
    "tokenizers": "from tokenizers import Tokenizer; Tokenizer.from_file({path!r})",
    "onnxruntime": "import onnxruntime; onnxruntime.InferenceSession({path!r})",
    "pyarrow.parquet": "from pyarrow.parquet import read_table; read_table({path!r})",
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.sampled(1)
def test_what_other_libraries_read_is_recorded(tmp_path, library):
    pytest.importorskip(library)
    path = tmp_path / "data" / "whatever"
    path.parent.mkdir()
    path.write_bytes(b"nothing that it can read")  # opening it is a read, too
    load = LIBRARIES[library].format(path=str(path))
    code = f"""
import torch
def build():
    try:
        {load}
    except Exception:
        pass
    return torch.nn.Linear(2, 2)
"""
    assert found(tmp_path, code, str(path.parent), LOADED) == [str(path)]
