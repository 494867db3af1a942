"""What `convkit init` says of a folder without a config.json follows from the folder's files."""

import json
import zipfile

import pytest

from convkit.host.draft.folder_without_config import missing_config_fault, other_format


def write(file, content=b""):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def settings(file, **content):
    return write(file, json.dumps(content).encode())


def archive(file, *names):
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as opened:
        for name in names:
            opened.writestr(name, b"")
    return file


def test_a_trainers_folder_points_to_its_checkpoints(tmp_path):
    first = settings(tmp_path / "checkpoint-1" / "config.json", model_type="bert").parent
    second = settings(tmp_path / "checkpoint-2" / "config.json", model_type="bert").parent
    assert f": {first} or {second}" in missing_config_fault(tmp_path)


def test_a_hubs_cache_points_to_its_snapshot(tmp_path):
    snapshot = settings(tmp_path / "snapshots" / "abc" / "config.json", model_type="vit").parent
    assert f"Pass the folder that has one: {snapshot}" in missing_config_fault(tmp_path)


def test_a_configuration_that_is_no_models_is_not_offered(tmp_path):
    settings(tmp_path / "1_Pooling" / "config.json", word_embedding_dimension=32)
    assert "Pass the" not in missing_config_fault(tmp_path)


def test_many_files_are_counted_not_listed(tmp_path):
    for number in range(9):
        write(tmp_path / f"{number}.onnx")
    message = missing_config_fault(tmp_path)
    assert "or one of 5 more" in message
    assert "8.onnx" not in message


def test_an_adapter_names_its_base(tmp_path):
    settings(tmp_path / "adapter_config.json", base_model_name_or_path="acme/base")
    write(tmp_path / "adapter_model.safetensors")
    message = missing_config_fault(tmp_path)
    assert "an adapter for acme/base" in message
    assert "merge_and_unload" in message


@pytest.mark.parametrize(
    ("member", "says"), [("x/constants.pkl", "Pass its model file"), ("x/data.pkl", "build.py")]
)
def test_a_torchscript_file_is_passed_and_weights_need_a_factory(member, says, tmp_path):
    archive(tmp_path / "model.pt", member)
    assert says in missing_config_fault(tmp_path)


@pytest.mark.parametrize("name", ["model.gguf", "saved_model.pb", "model.keras"])
def test_another_frameworks_file_is_named(name, tmp_path):
    message = missing_config_fault(write(tmp_path / name).parent)
    assert f"{name} is a" in message
    assert "config.json to" not in message
    assert other_format([tmp_path / "model.bin"]) is None


def test_a_folder_of_other_files_lists_some(tmp_path):
    write(tmp_path / "README.md")
    assert "no model either, only README.md" in missing_config_fault(tmp_path)
    assert "no such folder" in missing_config_fault(tmp_path / "missing")
