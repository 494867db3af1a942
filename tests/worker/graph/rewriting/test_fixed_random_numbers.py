"""Fixed numbers in place of those that a graph draws at random: the same in every run, spread as
the random ones would be.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from convkit.protocol.messages import Source
from convkit.worker.graph.rewriting.fixed_random_numbers import (
    fix_random,
    fixed_copy,
    given_file,
    random_nodes,
)
from convkit.worker.job_context import StageFailedError

LIKE = "g (float[n,m] x) => (float[n,m] y) {{ y = {}(x) }}"
NORMAL_LIKE = LIKE.format("RandomNormalLike")
IN_A_BRANCH = """g (float[n,m] x, bool b) => (float[n,m] y) {
    y = If (b) <
        then_branch = a () => (float[n,m] p) { p = RandomUniformLike<low=2.0, high=3.0>(x) },
        else_branch = c () => (float[n,m] q) { q = Identity(x) }>
}"""
IN_A_FUNCTION = """
<domain: "own", opset_import: ["" : 17]>
noise (x) => (y) { y = RandomNormalLike(x) }"""


def made(text: str, opset: int = 17, functions: str = "") -> onnx.ModelProto:
    imports = f'"" : {opset}' + (', "own" : 1' if functions else "")
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> {text}{functions}")


def ran(
    model: onnx.ModelProto, *, optimized: bool = False, **feeds: np.ndarray
) -> dict[str, np.ndarray]:
    settings = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def fixed(text: str, opset: int = 17, functions: str = "") -> onnx.ModelProto:
    model = made(text, opset, functions)
    assert fix_random(model)
    assert not random_nodes(model)
    onnx.checker.check_model(model)
    return model


def sized(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_every_session_and_call_returns_the_same(opset: int) -> None:
    model = fixed(NORMAL_LIKE, opset)
    one = ran(model, x=sized(3, 5))["y"]
    other = ran(model, optimized=True, x=sized(3, 5))["y"]
    assert one.shape == (3, 5)
    assert np.array_equal(one, other)
    session = onnxruntime.InferenceSession(made(NORMAL_LIKE, opset).SerializeToString())
    first, second = (session.run(None, {"x": sized(3, 5)})[0] for _ in range(2))
    assert not np.array_equal(first, second)  # as without them


@pytest.mark.parametrize(
    ("operator", "mean", "deviation"),
    [
        ("RandomNormalLike", 0.0, 1.0),
        ("RandomNormalLike<mean=3.0, scale=0.5>", 3.0, 0.5),
        ("RandomUniformLike", 0.5, 12**-0.5),
        ("RandomUniformLike<low=-1.0, high=3.0, seed=7.0>", 1.0, 4 / 12**0.5),
    ],
)
def test_numbers_are_spread_like_random_ones(operator: str, mean: float, deviation: float) -> None:
    values = ran(fixed(LIKE.format(operator)), x=sized(300, 400))["y"]
    assert abs(values.mean() - mean) < 0.02 * deviation
    assert abs(values.std() - deviation) < 0.02 * deviation
    # Neighbors along either axis are unrelated.
    steps = (values[:, :-1], values[:, 1:]), (values[:-1], values[1:])
    for one, other in steps:
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02


def test_nodes_draw_different_numbers() -> None:
    text = """g (float[n,m] x) => (float[n,m] y, float[n,m] z) {
        y = RandomNormalLike(x)
        z = RandomNormalLike(x)
    }"""
    found = ran(fixed(text), x=sized(100, 100))
    assert abs(np.corrcoef(found["y"].ravel(), found["z"].ravel())[0, 1]) < 0.05


def test_a_fixed_shape_and_other_types() -> None:
    text = """g (float[n] x) => (float[2,3] y, double[n] z, float16[2] h) {
        y = RandomUniform<shape=[2,3]>()
        z = RandomNormalLike<dtype=11>(x)
        h = RandomNormal<shape=[2], dtype=10>()
    }"""
    found = ran(fixed(text), x=sized(4))
    assert [(each.shape, each.dtype.name) for each in found.values()] == [
        ((2, 3), "float32"),
        ((4,), "float64"),
        ((2,), "float16"),
    ]
    assert found["y"].std() > 0.05


def test_the_type_of_the_input_is_the_type_of_the_numbers() -> None:
    model = fixed("g (double[n] x) => (double[n] y) { y = RandomNormalLike(x) }")
    assert ran(model, x=np.zeros(3))["y"].dtype == np.float64


@pytest.mark.parametrize("shape", [(0, 4), (1, 1)])
def test_no_elements_and_one(shape: tuple[int, int]) -> None:
    assert ran(fixed(NORMAL_LIKE), x=sized(*shape))["y"].shape == shape


def test_a_scalar() -> None:
    model = fixed("g (float x) => (float y) { y = RandomNormalLike(x) }")
    assert ran(model, x=np.array(0, np.float32))["y"].shape == ()


def test_chances_decide_how_many_are_drawn() -> None:
    model = fixed(LIKE.format("Bernoulli"))
    values = ran(model, x=np.full((200, 200), 0.3, np.float32))["y"]
    assert set(np.unique(values)) == {0, 1}
    assert abs(values.mean() - 0.3) < 0.02


def test_bodies_and_functions_are_rewritten() -> None:
    model = fixed(IN_A_BRANCH)
    values = ran(model, x=sized(2, 3), b=np.array(True))["y"]
    assert ((values > 2) & (values < 3)).all()
    inner = fixed("g (float[n,m] x) => (float[n,m] y) { y = own.noise(x) }", 17, IN_A_FUNCTION)
    assert ran(inner, x=sized(2, 3))["y"].std() > 0.1


def test_a_file_of_an_old_opset_is_refused() -> None:
    with pytest.raises(StageFailedError, match="the file has opset 9, and fixed numbers need 11"):
        fix_random(made(NORMAL_LIKE, 9))


def test_a_copy_is_made_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(made(NORMAL_LIKE), path)
    with given_file(Source("onnx", str(path))) as same:
        assert same == path
    with given_file(Source("onnx", str(path), random="fixed")) as copy:
        assert copy.name == path.name
        assert not random_nodes(onnx.load(copy))
    assert not copy.exists()
    assert random_nodes(onnx.load(path))


def test_a_file_without_random_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(made(LIKE.format("Relu")), path)
    with pytest.raises(StageFailedError, match="no node that draws random numbers"):  # noqa: SIM117
        with fixed_copy(path):
            pass
