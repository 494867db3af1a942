"""Loading: what a sound package says of itself, and every kind of unsound one."""

import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mil_programs import convert_and_save, ct, mb, mil_program, quietly, run_one, save_program
from torch_conversion import exported

from convkit.worker.job_context import StageFailedError
from convkit.worker.mil import package_files as package_module
from convkit.worker.mil.package_files import read_model, read_package
from convkit.worker.mil.program import load_program

WEIGHT = np.arange(4096, dtype=np.float32).reshape(
    64, 64
)  # large enough to be put into the weights file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def body(a: Any) -> Any:
        return mb.matmul(x=a, y=WEIGHT, name="product")

    program = mil_program(body, {"a": ((2, 64), "fp32")})
    return save_program(program, tmp_path_factory.mktemp("sound") / "sound.mlpackage")


@pytest.fixture
def package(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sound, tmp_path / "package.mlpackage"))


def model_file(package: Path) -> Path:
    return package / "Data/com.apple.CoreML/model.mlmodel"


def weights_file(package: Path) -> Path:
    return package / "Data/com.apple.CoreML/weights/weight.bin"


def test_a_sound_package(sound: Path) -> None:
    program = load_program(sound)
    (feature,) = program.inputs
    assert (feature.name, feature.dtype, feature.shape) == ("a", "float32", (2, 64))
    assert [each.name for each in program.outputs] == ["product"]
    assert program.states == ()
    assert program.weight_bytes == WEIGHT.nbytes
    np.testing.assert_array_equal(
        run_one(program, a=np.ones((2, 64), np.float32))[0], WEIGHT.sum(0)
    )


def without_manifest(package: Path) -> None:
    (package / "Manifest.json").unlink()


def with_broken_manifest(package: Path) -> None:
    (package / "Manifest.json").write_text("{")


def with_empty_manifest(package: Path) -> None:
    (package / "Manifest.json").write_text("{}")


def with_escaping_manifest(package: Path) -> None:
    manifest = json.loads((package / "Manifest.json").read_text())
    manifest["itemInfoEntries"]["evil"] = {"path": "../../secret", "name": "x", "author": "y"}
    (package.parent / "secret").write_text("")
    (package / "Manifest.json").write_text(json.dumps(manifest))


def without_model(package: Path) -> None:
    model_file(package).unlink()


def with_truncated_model(package: Path) -> None:
    content = model_file(package).read_bytes()
    model_file(package).write_bytes(content[: len(content) // 2])


def with_nonsense_for_a_model(package: Path) -> None:
    model_file(package).write_bytes(b"\xff" * 100)


def with_empty_model(package: Path) -> None:
    model_file(package).write_bytes(b"")


def without_weights(package: Path) -> None:
    weights_file(package).unlink()


def without_the_weights_folder(package: Path) -> None:
    shutil.rmtree(weights_file(package).parent)


def with_truncated_weights(package: Path) -> None:
    content = weights_file(package).read_bytes()
    weights_file(package).write_bytes(content[:-64])


def with_empty_weights(package: Path) -> None:
    weights_file(package).write_bytes(b"")


def with_other_weights(package: Path) -> None:
    weights_file(package).write_bytes(b"\x00" * len(weights_file(package).read_bytes()))


def with_a_record_that_lies_about_its_size(package: Path) -> None:
    content = bytearray(weights_file(package).read_bytes())
    struct.pack_into("<Q", content, 64 + 8, 2**40)
    weights_file(package).write_bytes(content)


def rewritten(package: Path, change: Callable[[Any], None]) -> None:
    model = read_model(read_package(package))
    change(model)
    model_file(package).write_bytes(model.SerializeToString())


def operations(model: Any) -> Any:
    function = model.mlProgram.functions["main"]
    return function.block_specializations[function.opset].operations


def with_an_unknown_operation(package: Path) -> None:
    def change(model: Any) -> None:
        operations(model)[-1].type = "no_such_operation"

    rewritten(package, change)


def with_a_name_that_is_not_there(package: Path) -> None:
    def change(model: Any) -> None:
        operations(model)[-1].inputs["x"].arguments[0].name = "elsewhere"

    rewritten(package, change)


def with_a_weight_of_another_shape(package: Path) -> None:
    def change(model: Any) -> None:
        for operation in operations(model):
            for output in operation.outputs:
                sizes = [each.constant.size for each in output.type.tensorType.dimensions]
                if operation.type == "const" and sizes == [64, 64]:
                    value = operation.attributes["val"]
                    value.type.tensorType.dimensions[0].constant.size = 65

    rewritten(package, change)


def with_another_description(package: Path) -> None:
    def change(model: Any) -> None:
        model.description.input[0].name = "b"

    rewritten(package, change)


def with_an_image(package: Path) -> None:
    def change(model: Any) -> None:
        model.description.input[0].type.imageType.width = 64

    rewritten(package, change)


def as_a_neural_network(package: Path) -> None:
    def change(model: Any) -> None:
        model.neuralNetwork.SetInParent()

    rewritten(package, change)


def as_a_pipeline(package: Path) -> None:
    def change(model: Any) -> None:
        model.pipeline.SetInParent()

    rewritten(package, change)


UNSOUND: dict[Callable[[Path], None], str] = {
    without_manifest: r"no Manifest\.json: not an \.mlpackage",
    with_broken_manifest: r"Manifest\.json cannot be read",
    with_empty_manifest: r"Manifest\.json does not describe a model",
    with_escaping_manifest: "points outside the package",
    without_model: r"Data/com\.apple\.CoreML/model\.mlmodel is missing",
    with_truncated_model: "damaged or truncated",
    with_nonsense_for_a_model: "damaged or truncated",
    with_empty_model: "holds nothing, not an ML program",
    without_weights: "the weights are missing",
    without_the_weights_folder: "weights is missing",
    with_truncated_weights: "truncated or damaged: the record at byte 64 does not fit",
    with_empty_weights: "not a weights file",
    with_other_weights: "not a weights file",
    with_a_record_that_lies_about_its_size: "truncated or damaged: the record at byte 64",
    with_an_unknown_operation: "coremltools cannot read the program: .*no_such_operation",
    with_a_name_that_is_not_there: "coremltools cannot read the program: .*elsewhere",
    with_a_weight_of_another_shape: "coremltools cannot read the program: ",
    with_another_description: (
        "the description names b, product; the program has the inputs a and the outputs product"
    ),
    with_an_image: "the input a is an image; the evaluator accepts arrays, and images in color",
    as_a_neural_network: "holds a neural network, not an ML program",
    as_a_pipeline: "holds a pipeline, not an ML program",
}


@pytest.mark.parametrize("damage", UNSOUND, ids=lambda damage: damage.__name__)
def test_an_unsound_package(damage: Callable[[Path], None], package: Path) -> None:
    damage(package)
    with pytest.raises(StageFailedError, match=UNSOUND[damage]):
        load_program(package)


def test_what_is_no_package_at_all(package: Path, tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="there is no such package"):
        load_program(tmp_path / "absent.mlpackage")
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(model_file(package), "model.mlmodel")
    with pytest.raises(StageFailedError, match=r"a zip archive.*Unpack"):
        load_program(archive)
    single = tmp_path / "old.mlmodel"
    shutil.copy(model_file(package), single)
    with pytest.raises(StageFailedError, match=r"a single \.mlmodel file"):
        load_program(single)
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(StageFailedError, match="a file, not an"):
        load_program(text)
    compiled = tmp_path / "model.mlmodelc"
    compiled.mkdir()
    (compiled / "coremldata.bin").write_bytes(b"")
    with pytest.raises(StageFailedError, match="a compiled model"):
        load_program(compiled)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageFailedError, match=r"not an \.mlpackage"):
        load_program(tmp_path / "empty")


def test_weights_that_do_not_fit_into_memory(sound: Path) -> None:
    with pytest.raises(
        StageFailedError, match=r"its weights take 0\.0 GB and 0\.0 GB of memory are free"
    ):
        load_program(sound, memory_bytes=WEIGHT.nbytes - 1)
    assert load_program(sound, memory_bytes=WEIGHT.nbytes).weight_bytes == WEIGHT.nbytes


def test_a_model_file_that_no_protocol_buffer_can_hold(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_module, "LARGEST_MODEL_FILE", 100)
    with pytest.raises(StageFailedError, match="more than a protocol buffer can hold"):
        load_program(package)


def test_several_functions(sound: Path, tmp_path: Path) -> None:
    from coremltools.models.utils import MultiFunctionDescriptor, save_multifunction

    other = save_program(
        mil_program(lambda a: mb.add(x=a, y=1.0, name="sum"), {"a": ((3,), "fp32")}),
        tmp_path / "other.mlpackage",
    )
    descriptor = MultiFunctionDescriptor()
    descriptor.add_function(str(sound), "main", "large")
    descriptor.add_function(str(other), "main", "small")
    descriptor.default_function_name = "large"
    with quietly():
        save_multifunction(descriptor, str(tmp_path / "both.mlpackage"))
    assert load_program(tmp_path / "both.mlpackage").outputs[0].name == "product"
    small = load_program(tmp_path / "both.mlpackage", "small")
    np.testing.assert_array_equal(run_one(small, a=np.zeros(3, np.float32)), [1, 1, 1])
    with pytest.raises(StageFailedError, match="no function 'main'; it has large, small"):
        load_program(tmp_path / "both.mlpackage", "main")


def test_a_classifier_is_refused(tmp_path: Path) -> None:
    import torch

    program = exported(torch.nn.Softmax(-1), [torch.zeros(1, 3)])
    options = {
        "classifier_config": ct.ClassifierConfig(["x", "y", "z"]),
        "minimum_deployment_target": ct.target.iOS17,
    }
    path = convert_and_save(program, tmp_path / "p.mlpackage", **options)
    with pytest.raises(StageFailedError, match="classLabel: an input or output of type string"):
        load_program(path)
