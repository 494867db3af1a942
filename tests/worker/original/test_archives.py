"""TorchScript archives and those of torch.export as models."""

import contextlib
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch_archives import save_exported, save_script

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.forward_signature import forward_parameters
from convkit.worker.original.loading import load_model

INPUTS = {"x": torch.randn(4, 8), "y": torch.randn(4, 8)}


def test_a_script_is_called_by_name_in_eval_mode_with_its_own_module_paths(tmp_path):
    module = save_script(tmp_path / "m.pt")
    loaded = load_model(Source("torchscript", path=str(tmp_path / "m.pt")))
    for sign in (1, -1):  # both sides of its branch
        given = {"y": INPUTS["y"], "x": sign * INPUTS["x"].abs()}
        assert torch.allclose(loaded.module(**given), module(**given))
    assert list(forward_parameters(loaded)) == ["x", "y"]
    assert list(loaded.module.state_dict()) == list(module.state_dict())
    assert [name for name, _ in loaded.module.named_modules()] == [
        name for name, _ in module.named_modules()
    ]


def test_an_exported_program_is_called_by_name_with_its_own_module_paths(tmp_path):
    module = save_exported(tmp_path / "e.pt2")
    loaded = load_model(Source("exported", path=str(tmp_path / "e.pt2")))
    assert torch.allclose(loaded.module(**INPUTS)["out"], module(**INPUTS)["out"])
    assert list(forward_parameters(loaded)) == ["x", "y"]
    assert list(loaded.module.state_dict()) == list(module.state_dict())
    assert {"body.linear", "body.drop", "head"} <= dict(loaded.module.named_modules()).keys()
    assert loaded.example is not None
    assert {name: list(each.shape) for name, each in loaded.example.items()} == {
        "x": [3, 8],
        "y": [3, 8],
    }


@pytest.mark.parametrize(
    ("key", "content", "says"),
    [
        ("torchscript", "exported", "write model.exported"),
        ("exported", "torchscript", "write model.torchscript"),
        ("torchscript", "saved", "write model.factory"),
        ("exported", "saved", "write model.factory"),
        ("torchscript", "cut", "damaged"),
        ("exported", "cut", "damaged"),
        ("exported", "emptied", "damaged"),
        ("torchscript", "emptied", "damaged"),
    ],
)
def test_another_or_a_damaged_file_is_a_clear_error(tmp_path, key, content, says):
    path = tmp_path / "file"
    if content == "saved":
        torch.save(torch.nn.Linear(2, 2).state_dict(), path)
    else:
        kind = content if content in ("torchscript", "exported") else key
        (save_script if kind == "torchscript" else save_exported)(path)
        if content == "cut":
            path.write_bytes(path.read_bytes()[:500])
        if content == "emptied":
            rewrite(path, lambda name, data: b"" if name.endswith((".py", "model.json")) else data)
    with pytest.raises(StageFailedError, match=rf"model\.{key}: file cannot be loaded.*{says}"):
        load_model(Source(key, path=str(path)))


def rewrite(path: Path, change) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, change(name, data))


class Touch:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize("place", ["example inputs", "weights", "constants"])
def test_code_in_a_pickle_does_not_run_unless_allowed(tmp_path, place):
    path, mark = tmp_path / "e.pt2", tmp_path / "mark"
    save_exported(path)
    saved = tmp_path / "saved"
    torch.save(Touch(mark), saved)
    hostile = pickle.dumps(Touch(mark)) if place == "constants" else saved.read_bytes()

    def change(name: str, data: bytes) -> bytes:
        if place == "example inputs" and name.endswith(".pt"):
            return hostile
        if place == "weights" and name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        if place == "weights" and name.endswith("weight_0"):
            return hostile
        if place == "constants" and name.endswith("constants_config.json"):
            meta = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
            return json.dumps({"config": {"thing": meta | {"tensor_meta": None}}}).encode()
        return data

    rewrite(path, change)
    if place == "constants":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("e/data/constants/opaque_obj_0", hostile)
    with pytest.raises(StageFailedError, match=r"could run any code.*allow_pickle"):
        load_model(Source("exported", path=str(path)))
    assert not mark.exists()
    with contextlib.suppress(StageFailedError):  # what it unpickled is not a weight
        load_model(Source("exported", path=str(path), allow_pickle=True))
    assert mark.exists(), "or this test plants nothing"
