"""GPTQ and AWQ checkpoints, packed here number by number, without either package."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import save_bert

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import load_model
from convkit.worker.original.loading.packed_checkpoint import Packing, packing_of, unpacked

LAYER = "encoder.layer.0.output.dense"
PLACES = (0, 2, 4, 6, 1, 3, 5, 7)  # AWQ's order of the columns in an int32


def packed(numbers: np.ndarray, bits: int, places: tuple[int, ...] | None = None) -> np.ndarray:
    """Return int32s that hold the numbers of each row, the first in the lowest bits."""
    count = 32 // bits
    words = np.zeros((len(numbers), numbers.shape[1] // count), np.uint32)
    for row in range(words.shape[0]):
        for column in range(words.shape[1]):
            for place in range(count):
                own = places[place] if places else place
                number = int(numbers[row, column * count + own])
                words[row, column] |= np.uint32(number << (bits * place))
    return words.view(np.int32)


def layer(method: str, bits: int = 4, *, offset: int = 1, inputs: int = 64, outputs: int = 32):
    """Return a packed layer and its weight, with groups of 16 inputs."""
    random = np.random.default_rng(bits)
    groups, top = inputs // 16, 1 << bits
    integers = random.integers(0, top, (inputs, outputs))
    zeros = random.integers(0, top, (groups, outputs))
    scales = random.uniform(0.001, 0.1, (groups, outputs)).astype(np.float16)
    weight = np.repeat(scales.astype(np.float32), 16, axis=0)
    weight = (weight * (integers - np.repeat(zeros, 16, axis=0))).T
    if method == "awq":
        parts = {"qweight": packed(integers, 4, PLACES), "qzeros": packed(zeros, 4, PLACES)}
    else:
        stored = (zeros - offset) % top
        parts = {"qweight": packed(integers.T, bits).T, "qzeros": packed(stored, bits)}
    return {**parts, "scales": scales}, weight.astype(np.float32)


@pytest.mark.parametrize(
    "packing",
    [Packing("gptq", bits, offset) for bits in (2, 4, 8) for offset in (0, 1)]
    + [Packing("awq", 4, 0)],
)
def test_the_weight_is_exact(packing):
    parts, weight = layer(packing.method, packing.bits, offset=packing.zero_offset)
    np.testing.assert_array_equal(unpacked(packing, parts), weight)


def test_inputs_in_another_order_have_their_own_group():
    parts, weight = layer("gptq")
    index = np.random.default_rng(0).permutation(np.repeat(np.arange(4, dtype=np.int32), 16))
    order = np.argsort(index, kind="stable")
    integers = np.empty((64, 32), np.int64)
    sorted_integers = np.stack(
        [(parts["qweight"].view(np.uint32)[row // 8] >> (4 * (row % 8))) & 15 for row in range(64)]
    )
    integers[order] = sorted_integers
    expected = np.empty_like(weight)
    expected[:, order] = weight
    moved = parts | {"qweight": packed(integers.T, 4).T, "g_idx": index}
    np.testing.assert_array_equal(unpacked(Packing("gptq", 4, 1), moved), expected)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scales": None}, "scales is missing"),
        ({"scales": np.ones((4, 31), np.float16)}, "do not fit"),
        ({"scales": np.ones((3, 32), np.float16)}, "do not fit"),
        ({"g_idx": np.full(64, 4, np.int32)}, "g_idx does not name a group of 4"),
        ({"g_idx": np.zeros(63, np.int32)}, "for 64 inputs"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, told):
    parts, _ = layer("gptq")
    with pytest.raises(ValueError, match=told):
        unpacked(Packing("gptq", 4, 1), parts | changes)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4}, Packing("gptq", 4, 1)),
        (
            {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"},
            Packing("gptq", 8, 0),
        ),
        ({"quant_method": "awq", "bits": 4, "version": "gemm"}, Packing("awq", 4, 0)),
        ({"quant_method": "compressed-tensors"}, None),  # transformers reads it
        ({"quant_method": "gptq", "bits": 3}, "GPTQ with 3 bits; convkit reads 2, 4 and 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "convkit reads gemm with 4"),
    ],
)
def test_what_can_be_read_follows_from_config_json(settings, expected):
    configuration = {"quantization_config": settings}
    if isinstance(expected, str):
        with pytest.raises(StageFailedError, match=expected):
            packing_of(configuration, "model.path")
    else:
        assert packing_of(configuration, "model.path") == expected


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("plain") / "bert")


def checkpoint(plain, folder, method):
    """Return the folder with one layer packed, and that layer's weight."""
    shutil.copytree(plain, folder)
    parts, weight = layer(method)
    tensors = load_file(folder / "model.safetensors")
    assert tensors.pop(f"{LAYER}.weight").shape == weight.shape
    tensors |= {f"{LAYER}.{name}": values for name, values in parts.items()}
    tensors = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 16}
    (folder / "config.json").write_text(json.dumps(config))
    return weight


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_packed_folder_is_loaded_as_any_other(plain, tmp_path, method):
    weight = checkpoint(plain, tmp_path / "packed", method)
    loaded = load_model(Source("path", path=str(tmp_path / "packed")))
    assert loaded.unloaded == ()
    assert not hasattr(loaded.config, "quantization_config")
    found = loaded.module.get_submodule(LAYER).weight.numpy()
    np.testing.assert_array_equal(found, weight)


def test_a_damaged_layer_and_a_folder_without_packed_weights_are_named(plain, tmp_path):
    checkpoint(plain, tmp_path / "packed", "gptq")
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    del tensors[f"{LAYER}.qzeros"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(StageFailedError, match=f"{LAYER}: qzeros is missing"):
        load_model(Source("path", path=str(tmp_path / "packed")))
    shutil.copyfile(plain / "model.safetensors", file)
    with pytest.raises(StageFailedError, match="says gptq, and its files have no qweight"):
        load_model(Source("path", path=str(tmp_path / "packed")))
