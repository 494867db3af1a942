"""Core ML packages: equal by their canonical form, or told apart by operation, weight and text."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_programs import mb, mil_program, save_program

from convkit.protocol.messages import CompareRequest, CompareResult, FileComparison
from convkit.runtimes.coreml import compare as coreml_compare
from convkit.worker.job_context import Context
from convkit.worker.mil.package_files import read_model, read_package

DATE = "com.github.apple.coremltools.conversion_date"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"


def large_weight() -> np.ndarray:
    return np.arange(4096, dtype=np.float32).reshape(64, 64)


def build(
    folder: Path,
    *,
    nudge: float = 0.0,
    alpha: float = 0.25,
    operation: str = "add",
    name: str = "sum",
) -> Path:
    """Write an artifact: a package of a few operations, and the modules of its tensors."""
    weight = large_weight()
    weight[3, 5] += nudge

    def body(a: Any) -> Any:
        product = mb.matmul(x=a, y=weight, name="product")
        return getattr(mb, operation)(
            x=mb.leaky_relu(x=product, alpha=alpha, name="leaky"), y=1.0, name=name
        )

    folder.mkdir()
    save_program(mil_program(body, {"a": ((2, 64), "fp32")}), folder / "model.mlpackage")
    (folder / "modules.json").write_text(json.dumps({"leaky": "encoder.activation"}))
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("packages") / "original")


def compared(first: Path, second: Path, epsilon: float = 1e-6) -> CompareResult:
    return coreml_compare.run(CompareRequest(str(first), str(second), epsilon), Context(first))[0]


def package(first: Path, second: Path, epsilon: float = 1e-6) -> FileComparison:
    files = {file.name: file for file in compared(first, second, epsilon).files}
    assert set(files) == {"model.mlpackage", "modules.json"}
    assert files["modules.json"].likeness == "BIT_IDENTICAL"
    return files["model.mlpackage"]


def copied(original: Path, tmp_path: Path, change: Callable[[Any], None] | None = None) -> Path:
    folder = Path(shutil.copytree(original, tmp_path / "copy"))
    if change is not None:
        found = read_package(folder / "model.mlpackage")
        model = read_model(found)
        change(model)
        found.model.write_bytes(model.SerializeToString())
    return folder


def operations(model: Any) -> list[Any]:
    function = model.mlProgram.functions["main"]
    return function.block_specializations[function.opset].operations


def test_a_copy_is_identical(original: Path, tmp_path: Path) -> None:
    assert package(original, copied(original, tmp_path)).likeness == "BIT_IDENTICAL"
    single = compared(original / "model.mlpackage", tmp_path / "copy" / "model.mlpackage")
    assert [(file.name, file.likeness) for file in single.files] == [
        ("model.mlpackage", "BIT_IDENTICAL")
    ]


def test_made_again_is_canonically_identical(original: Path, tmp_path: Path) -> None:
    def redate(model: Any) -> None:
        model.description.metadata.userDefined[DATE] = "1970-01-01"

    other = copied(original, tmp_path, redate)
    manifest = other / "model.mlpackage" / "Manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()), indent=1))
    found = package(original, other)
    assert (found.likeness, found.differences) == ("CANONICAL_IDENTICAL", ())


def test_doc_strings_and_the_place_of_weights_are_no_difference(
    original: Path, tmp_path: Path
) -> None:
    def moved(model: Any) -> None:
        model.mlProgram.docString = "made on a Tuesday"
        for operation in operations(model):
            for value in operation.attributes.values():
                if value.WhichOneof("value") == "blobFileValue":
                    value.blobFileValue.offset = size

    size = (original / "model.mlpackage" / WEIGHTS).stat().st_size
    other = copied(original, tmp_path, moved)
    weights = other / "model.mlpackage" / WEIGHTS
    content = bytearray(weights.read_bytes())
    record = bytearray(content[64:128])  # the one record, once more: its data stay where they are
    weights.write_bytes(bytes(content + record))
    found = package(original, other)
    assert (found.likeness, found.differences) == ("CANONICAL_IDENTICAL", ())


def test_weights_within_epsilon_and_beyond(original: Path, tmp_path: Path) -> None:
    nudged = build(tmp_path / "nudged", nudge=1e-3)
    found = package(original, nudged)
    (difference,) = found.differences
    assert found.likeness == "STRUCTURAL"
    assert difference.kind == "initializer"
    assert "1 elements differ, the first at [3, 5]" in difference.detail
    beyond = package(original, nudged, epsilon=1e-8)
    assert (beyond.likeness, len(beyond.differences)) == ("DIFFERENT", 1)
    changed = package(original, build(tmp_path / "changed", nudge=np.nan), epsilon=1e9)
    assert changed.likeness == "DIFFERENT"


def test_a_changed_scalar_is_located_with_its_module(original: Path, tmp_path: Path) -> None:
    found = package(original, build(tmp_path / "other", alpha=0.5))
    (difference,) = found.differences
    assert (found.likeness, difference.first, difference.second) == ("DIFFERENT", "0.25", "0.5")
    assert "leaky" in difference.place


def test_a_replaced_operation_is_located(original: Path, tmp_path: Path) -> None:
    found = package(original, build(tmp_path / "other", operation="sub"))
    assert found.likeness == "DIFFERENT"
    (difference,) = (
        each for each in found.differences if each.kind == "node" and each.place == "sum"
    )
    assert difference.first.startswith("add(")
    assert difference.second.startswith("sub(")


def test_a_renamed_output(original: Path, tmp_path: Path) -> None:
    found = package(original, build(tmp_path / "other", name="total"))
    assert found.likeness == "DIFFERENT"
    assert {("output", "sum"), ("output", "total")} <= {
        (each.kind, each.place) for each in found.differences
    }


def contract(model: Any) -> None:
    model.description.metadata.userDefined["convkit.contract"] = "x"


def author(model: Any) -> None:
    model.description.metadata.author = "somebody"


def spaces(model: Any) -> None:
    model.description.metadata.license = "two  spaces"


def version(model: Any) -> None:
    model.specificationVersion += 1


def input_shape(model: Any) -> None:
    model.description.input[0].type.multiArrayType.shape[0] = 3


def without_program(model: Any) -> None:
    model.ClearField("mlProgram")


def used_before_made(model: Any) -> None:
    found = operations(model)
    copies = [type(each).FromString(each.SerializeToString()) for each in found][::-1]
    del found[:]
    found.extend(copies)


@pytest.mark.parametrize(
    ("change", "kind", "place"),
    [
        (contract, "metadata", "convkit.contract"),
        (author, "metadata", "author"),
        (spaces, "metadata", "license"),
        (version, "opset", "Core ML"),
        (input_shape, "input", "a"),
        (without_program, "model", "kind"),
        (used_before_made, "node", "order"),
    ],
)
def test_a_difference_is_located(
    original: Path, tmp_path: Path, change: Callable[[Any], None], kind: str, place: str
) -> None:
    other = copied(original, tmp_path, change)
    for found in (package(original, other), package(other, original)):
        assert found.likeness == "DIFFERENT"
        assert [(each.kind, each.place) for each in found.differences] == [(kind, place)]


def test_a_text_is_compared_letter_by_letter(original: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first = copied(original, tmp_path / "one", spaces)

    def one_space(model: Any) -> None:
        model.description.metadata.license = "two spaces"

    assert package(first, copied(original, tmp_path, one_space)).likeness == "DIFFERENT"


def test_weights_in_a_file_are_compared_whatever_their_type(original: Path, tmp_path: Path) -> None:
    def as_truth_values(model: Any) -> None:
        for operation in operations(model):
            for value in operation.attributes.values():
                if value.WhichOneof("value") == "blobFileValue":
                    value.type.tensorType.dataType = (
                        1  # BOOL, of which no layout in the file is known
                    )

    folders = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folders.append(copied(original, tmp_path / name, as_truth_values))
    weights = folders[1] / "model.mlpackage" / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    found = package(*folders)
    assert found.likeness == "DIFFERENT"
    assert "1 elements differ" in found.differences[0].detail


def test_damaged_and_missing_packages(original: Path, tmp_path: Path) -> None:
    other = copied(original, tmp_path)
    (other / "model.mlpackage" / WEIGHTS).write_bytes(b"short")
    found = package(original, other)
    assert found.likeness == "DIFFERENT"
    assert "damaged or truncated" in found.differences[0].detail
    shutil.rmtree(other / "model.mlpackage")
    assert [file.likeness for file in compared(original, other).files] == [
        "MISSING",
        "BIT_IDENTICAL",
    ]
    assert [file.likeness for file in compared(other, original).files] == ["EXTRA", "BIT_IDENTICAL"]
