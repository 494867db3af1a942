"""The random faults of IRs: each changes the IR, says where, and leaves one that OpenVINO reads."""

import random
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import openvino
import pytest
from openvino import opset13 as ov
from openvino import opset14

from convkit.runtimes.openvino.as_graph.translation import as_graph
from faults.mutants.changes import NothingToMutateError
from faults.whole.ir_editing import IREditor
from faults.whole.ir_mutations import MUTATIONS

RANDOM = np.random.default_rng(0)
FEEDS = {name: RANDOM.standard_normal((2, 4, 6, 6)).astype(np.float32) for name in ("x", "z")}
OUTPUTS = ["one", "cut", "two"]


def weight(*shape: int):
    return ov.constant(RANDOM.standard_normal(shape).astype(np.float32))


def whole(*numbers: int):
    return ov.constant(np.asarray(numbers, np.int64))


def body(x, z):
    ones = [[1, 1]] * 4
    x = ov.add(ov.convolution(x, weight(4, 4, 3, 3), *ones), weight(1, 4, 1, 1))
    x = opset14.avg_pool(x, [1, 1], [1, 1], [1, 1], [3, 3], exclude_pad=True)
    x = ov.subtract(ov.relu(x), z)
    x = ov.matmul(x, weight(6, 6), transpose_a=False, transpose_b=True)
    x = ov.mvn(x, whole(-1), normalize_variance=True, eps=1e-5, eps_mode="inside_sqrt")
    x = ov.multiply(ov.gelu(ov.multiply(x, weight(6)), "erf"), ov.constant(np.float32(0.5)))
    rows = ov.squeeze(ov.slice(x, whole(0), whole(1), whole(1), whole(1)), whole(1))
    begin, lengths = weight(2, 1, 6), whole(6, 6)
    cells = (weight(1, 18, 6), weight(1, 18, 6), weight(1, 24))
    gru = ov.gru_sequence(
        rows, begin, lengths, *cells, 6, "forward", linear_before_reset=True
    ).output(0)
    x = ov.elu(ov.transpose(ov.add(x, gru), whole(0, 1, 3, 2)), 0.9)
    x = ov.softmax(ov.sqrt(ov.abs(ov.matmul(x, x, transpose_a=False, transpose_b=True))), -1)
    x = ov.add(x, ov.reduce_mean(x, whole(-1), keep_dims=True))
    cut = ov.slice(ov.tanh(x), whole(1), whole(3), whole(1), whole(1))
    two = ov.interpolate(
        *(x, whole(6, 6), "linear_onnx", "sizes"),
        coordinate_transformation_mode="align_corners",
        axes=whole(2, 3),
    )
    return ov.relu(x), cut, two


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inputs = [ov.parameter(values.shape, np.float32, name=name) for name, values in FEEDS.items()]
    for each, name in zip(inputs, FEEDS, strict=True):
        each.output(0).get_tensor().set_names({name})
    results = []
    for name, node in zip(OUTPUTS, body(*inputs), strict=True):
        results.append(ov.result(node))
        results[-1].input_value(0).get_tensor().set_names({name})
    path = tmp_path_factory.mktemp("ir") / "right.xml"
    openvino.save_model(openvino.Model(results, inputs, "m"), path, compress_to_fp16=False)
    return path


@pytest.fixture(scope="module")
def shapes(right: Path) -> dict[str, tuple[int, ...]]:
    translated = as_graph(right, FEEDS, OUTPUTS)
    assert translated is not None
    return dict(translated.shapes)


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_every_fault_changes_the_ir_and_says_where(
    number: int, right: Path, shapes: dict, tmp_path: Path
) -> None:
    for seed in range(20):
        editor = IREditor(right, shapes)
        try:
            mutation = MUTATIONS[number](editor, random.Random(seed))
        except NothingToMutateError:
            continue
        editor.save(tmp_path / "wrong.xml")
        try:
            openvino.Core().read_model(tmp_path / "wrong.xml")
        except RuntimeError:  # of the same types, but not of shapes that fit
            continue
        break
    else:
        pytest.fail("nothing in the IR to mutate")
    assert ET.tostring(ET.parse(right).getroot()) != (tmp_path / "wrong.xml").read_bytes()
    assert mutation.kinds
    assert mutation.nodes & {*shapes, *(str(each.get("name")) for each in editor.operations)}


def test_a_fault_changes_what_openvino_computes(right: Path, shapes: dict, tmp_path: Path) -> None:
    editor = IREditor(right, shapes)
    (softmax,) = editor.of("SoftMax")
    editor.insert_after(softmax, "Multiply", np.full((1,), 1.25, np.float32))
    editor.save(tmp_path / "wrong.xml")
    found = [
        openvino.Core().compile_model(str(path), "CPU")(FEEDS)["one"]
        for path in (right, tmp_path / "wrong.xml")
    ]
    assert np.allclose(found[1], 1.25 * found[0], atol=1e-6)
