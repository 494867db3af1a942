"""Large checkpoints that are narrower than float32 are widened on disk and mapped from there."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_models import save_bert

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import load_model, rewritten_checkpoint
from convkit.worker.original.loading.rewritten_checkpoint import ShardWriter, should_widen


class Usage(NamedTuple):
    """A disk's bytes, as shutil.disk_usage returns them."""

    total: int
    used: int
    free: int


ENOUGH = 2**40


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """Return a tiny BERT whose weights are bfloat16, but for the norms, which are float32."""
    folder = save_bert(tmp_path_factory.mktemp("narrow") / "bert")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    rounded = {
        name: tensor if "LayerNorm" in name else tensor.bfloat16()
        for name, tensor in tensors.items()
    }
    save_file(rounded, file, metadata={"format": "pt"})
    return folder


@pytest.fixture
def machine(monkeypatch):
    """Return a function that sets this machine's free memory and disk, in bytes."""

    def holds(memory, disk=ENOUGH):
        monkeypatch.setattr(rewritten_checkpoint, "available_memory", lambda: memory)
        usage = Usage(disk, 0, disk)
        monkeypatch.setattr(rewritten_checkpoint.shutil, "disk_usage", lambda _: usage)

    return holds


def mapped(tensor):
    """Return the file that a tensor's elements are mapped from; "" for plain memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(None, 5)
        first, last = (int(part, 16) for part in fields[0].split("-"))
        if first <= tensor.data_ptr() < last:
            return fields[5] if len(fields) > 5 else ""
    return ""


def weights(folder, **options):
    module = load_model(Source("path", path=str(folder), **options)).module
    return module.state_dict()


def test_a_widened_checkpoint_is_the_converted_one_and_stays_in_its_file(narrow, machine):
    machine(memory=ENOUGH)
    expected = weights(narrow)
    machine(memory=1)
    found = weights(narrow)
    assert found.keys() == expected.keys()
    assert all(
        tensor.dtype == torch.float32 for tensor in found.values() if tensor.is_floating_point()
    )
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    name = "encoder.layer.0.attention.self.query.weight"
    assert "/weights-" in mapped(found[name])
    assert "/weights-" not in mapped(expected[name])


def test_several_files_with_an_index_are_widened_too(narrow, machine, tmp_path, monkeypatch):
    shutil.copytree(narrow, tmp_path / "bert")
    tensors = load_file(narrow / "model.safetensors")
    (tmp_path / "bert" / "model.safetensors").unlink()
    monkeypatch.setattr(rewritten_checkpoint, "_SHARD_BYTES", 4096)
    writer = ShardWriter(tmp_path / "bert")
    for name, tensor in tensors.items():
        writer.add(name, tensor)
    writer.close()
    # Not of this checkpoint: the index does not name it.
    save_file(
        {"pooler.dense.bias": torch.full((32,), torch.inf)}, tmp_path / "bert" / "z.safetensors"
    )
    machine(memory=1)
    found, expected = weights(tmp_path / "bert"), weights(narrow)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_shards_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(rewritten_checkpoint, "_SHARD_BYTES", 4096)
    writer = ShardWriter(tmp_path)
    for index in range(10):
        writer.add(f"w{index}", torch.full((40, 16), float(index)).t())
    writer.close()
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) == 5
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    for name, file in index.items():
        with safe_open(tmp_path / file, framework="pt") as opened:
            assert torch.equal(opened.get_tensor(name), torch.full((16, 40), float(name[1:])))
    assert set(index.values()) == {file.name for file in files}


@pytest.mark.parametrize(
    "configuration", [{"quantization_config": {"bits": 8}}, {"auto_map": {"a": "b"}}]
)
def test_what_transformers_must_read_itself_is_left_to_it(narrow, machine, tmp_path, configuration):
    machine(memory=1)
    assert should_widen(narrow, {}, tmp_path, "model.path")
    assert not should_widen(narrow, configuration, tmp_path, "model.path")


def test_small_and_float32_checkpoints_are_left_alone(narrow, machine, tmp_path):
    machine(memory=ENOUGH)
    assert not should_widen(narrow, {}, tmp_path, "model.path")
    machine(memory=1)
    wide = {
        name: tensor.float() for name, tensor in load_file(narrow / "model.safetensors").items()
    }
    save_file(wide, tmp_path / "model.safetensors")
    assert not should_widen(tmp_path, {}, tmp_path, "model.path")
    assert "/weights-" not in mapped(weights(narrow, dtype="stored")["pooler.dense.weight"])


def test_memory_does_not_grow_with_the_model_however_much_there_is(
    narrow, machine, tmp_path, monkeypatch
):
    machine(memory=ENOUGH)
    monkeypatch.setattr(rewritten_checkpoint, "_MOST_IN_MEMORY", 1000)
    assert should_widen(narrow, {}, tmp_path, "model.path")
    machine(memory=ENOUGH, disk=1)  # where else?
    assert not should_widen(narrow, {}, tmp_path, "model.path")


def test_the_missing_bytes_are_told_before_anything_is_loaded(narrow, machine):
    needed = sum(4 * tensor.numel() for tensor in load_file(narrow / "model.safetensors").values())
    machine(memory=needed, disk=1)  # it just fits in memory
    weights(narrow)
    machine(memory=needed - 1000, disk=needed - 10)
    with pytest.raises(
        StageFailedError, match=r"1,000 bytes are missing in memory, or 10 in .*TMPDIR"
    ):
        weights(narrow)


def test_a_damaged_file_gets_the_error_of_any_other(narrow, machine, tmp_path):
    shutil.copytree(narrow, tmp_path / "bert")
    machine(memory=1)
    (tmp_path / "bert" / "model.safetensors").write_bytes(b"\x10" + bytes(30))
    with pytest.raises(StageFailedError, match="transformers could not load bert"):
        weights(tmp_path / "bert")
