"""One model, one digest; another model, another."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_programs import mb, mil_program, save_program

import convkit
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.package_files import read_model, read_package
from convkit.worker.mil.package_identity import package_digest

HERE = Path(__file__).parent
CONVERSION = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import torch
from torch_conversion import converted, exported
torch.manual_seed(0)
layers = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 64)
)
converted(exported(layers, [torch.zeros(2, 8)]), Path(sys.argv[1]), half=True)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_two_conversions_have_one_digest(tmp_path: Path) -> None:
    digests, models = set(), set()
    for seed in ("1", "2"):
        path = tmp_path / seed / f"model{seed}.mlpackage"
        path.parent.mkdir()
        places = [str(HERE), str(Path(convkit.__file__).parents[1])]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", CONVERSION, str(path), *places], check=True, env=environment
        )
        digests.add(package_digest(path))
        models.add((path / "Data/com.apple.CoreML/model.mlmodel").read_bytes())
    assert len(models) == 2, "the files are equal, so the test shows nothing"
    assert len(digests) == 1
    assert len(digests.pop()) == 64


def large_weight(change: float = 0.0) -> np.ndarray:
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    weight[3, 5] += change
    return weight


def package(
    folder: Path, body: Callable[..., Any] | None = None, weight: np.ndarray | None = None
) -> Path:
    weight = large_weight() if weight is None else weight

    def default(a: Any) -> Any:
        return mb.add(x=mb.matmul(x=a, y=weight, name="product"), y=1.0, name="sum")

    folder.mkdir()
    return save_program(
        mil_program(body or default, {"a": ((2, 64), "fp32")}), folder / "p.mlpackage"
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package(tmp_path_factory.mktemp("identity") / "original")


def copy_of(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy.mlpackage"))


def rewrite(path: Path, change: Callable[[Any], None]) -> None:
    found = read_package(path)
    model = read_model(found)
    change(model)
    found.model.write_bytes(model.SerializeToString())


def test_place_date_and_item_names_do_not_count(original: Path, tmp_path: Path) -> None:
    copied = copy_of(original, tmp_path)
    manifest = json.loads((copied / "Manifest.json").read_text())
    root = manifest["rootModelIdentifier"]
    items = {
        ("root" if name == root else name[::-1]): item
        for name, item in manifest["itemInfoEntries"].items()
    }
    renamed = {"fileFormatVersion": "1.0.0", "rootModelIdentifier": "root"}
    renamed["itemInfoEntries"] = dict(reversed(items.items()))
    (copied / "Manifest.json").write_text(json.dumps(renamed))

    def redate(model: Any) -> None:
        model.description.metadata.userDefined["com.github.apple.coremltools.conversion_date"] = (
            "1970-01-01"
        )

    rewrite(copied, redate)
    assert package_digest(copied) == package_digest(original)


def another_text(model: Any) -> None:
    model.description.metadata.userDefined["convkit.contract"] = "x"


def another_author(model: Any) -> None:
    model.description.metadata.author = "somebody"


def another_input_name(model: Any) -> None:
    model.description.input[0].name = "b"


def another_version(model: Any) -> None:
    model.specificationVersion += 1


def another_operation(model: Any) -> None:
    function = model.mlProgram.functions["main"]
    operations = function.block_specializations[function.opset].operations
    next(each for each in operations if each.type == "add").type = "sub"


@pytest.mark.parametrize(
    "change", [another_text, another_author, another_input_name, another_version, another_operation]
)
def test_a_changed_model_file_counts(
    change: Callable[[Any], None], original: Path, tmp_path: Path
) -> None:
    copied = copy_of(original, tmp_path)
    rewrite(copied, change)
    assert package_digest(copied) != package_digest(original)


def test_one_changed_weight_counts(original: Path, tmp_path: Path) -> None:
    changed = copy_of(original, tmp_path)
    weights = changed / "Data/com.apple.CoreML/weights/weight.bin"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert package_digest(changed) != package_digest(original)


def test_a_file_under_another_name_counts(original: Path, tmp_path: Path) -> None:
    changed = copy_of(original, tmp_path)
    weights = changed / "Data/com.apple.CoreML/weights/weight.bin"
    weights.rename(weights.with_name("other.bin"))
    assert package_digest(changed) != package_digest(original)


def test_a_link_has_no_identity(original: Path, tmp_path: Path) -> None:
    changed = copy_of(original, tmp_path)
    weights = changed / "Data/com.apple.CoreML/weights/weight.bin"
    weights.rename(tmp_path / "weight.bin")
    weights.symlink_to(tmp_path / "weight.bin")
    with pytest.raises(StageFailedError, match="a link inside a package"):
        package_digest(changed)
