"""Whether a graph's sizes may follow from the values of its inputs."""

import onnx.parser
import onnx_ir as ir
import pytest

from convkit.worker.survey.sizes.sizes_from_values import may_follow_values

HEADER = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>\n'


def follows(text: str) -> bool:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(HEADER + text))
    return may_follow_values(model.graph)


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",
        "s = Shape(x) y = Expand(x, s)",
        "s = Shape(x) n = ReduceProd<keepdims=1>(s) y = Reshape(x, n)",
        "axes = Constant<value_ints=[0]>() y = ReduceSum(x, axes)",
        # The size decides, not the values.
        """s = Size(x) two = Constant<value_int=2>() more = Greater(s, two)
        y = If(more) <then_branch = t () => (float[a] p) { p = Relu(x) },
            else_branch = e () => (float[b] q) { q = Neg(x) }>""",
    ],
)
def test_sizes_from_sizes_alone(body: str) -> None:
    assert not follows(f"g (float[n] x) => (float[m] y) {{ {body} }}")


@pytest.mark.parametrize(
    "body",
    [
        "i = Cast<to=7>(x) y = Expand(x, i)",
        "p = NonZero(x) y = Cast<to=1>(p)",
        "k = Cast<to=7>(x) y, i = TopK(x, k)",
        "a = Abs(x) i = Cast<to=7>(a) s = Identity(i) y = Reshape(x, s)",
        "y = custom.Anything(x)",
        "s = SequenceConstruct(x, x) y = ConcatFromSequence<axis=0>(s)",
        """b = Cast<to=9>(x)
        y = If(b) <then_branch = t () => (float[a] p) { p = Relu(x) },
            else_branch = e () => (float[b] q) { z = Constant<value_ints=[0]>()
                q = ConstantOfShape(z) }>""",
    ],
)
def test_sizes_that_values_may_decide(body: str) -> None:
    assert follows(f"g (float[n] x) => (float[m] y) {{ {body} }}")


def test_a_body_can_use_values_from_outside_it() -> None:
    text = """g (float[n] x, float[2,3] rows) => (float[m] y) {
        s = Size(x) two = Constant<value_int=2>() more = Greater(s, two)
        y = If(more) <then_branch = t () => (float[a] p) {
                i = NonZero(x) j = Cast<to=1>(i) z = Constant<value_ints=[-1]>()
                p = Reshape(j, z) },
            else_branch = e () => (float[b] q) { q = Neg(x) }>
    }"""
    assert follows(text)
    assert not follows(text.replace("NonZero(x)", "Abs(x)"))
