import onnx
import onnx_ir
import pytest

from convkit.worker.exporters.trace_comparison import first_difference, open_inferred_sizes


def trace(text):
    return onnx_ir.from_proto(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    )


def graph(size="3", op="Reshape", extra=""):
    return trace(f"""g (float[n, 4] x) => (float[n, 4] y) {{
        shape = Constant<value_ints: ints = [-1, {size}]>()
        {extra}
        y = {op}(x, shape)
    }}""")


def test_the_same_graph_under_other_names():
    other = trace("""g (float[n, 4] a) => (float[n, 4] b) {
        c = Constant<value_ints: ints = [-1, 3]>()
        b = Reshape(a, c)
    }""")
    assert first_difference(graph(), other) is None


def test_another_constant():
    found = first_difference(graph("3"), graph("5"))
    assert (found.first, found.second) == ((-1, 3), (-1, 5))
    assert "value_ints" in found.what


@pytest.mark.parametrize("other", [graph(op="Expand"), graph(extra="z = Relu(x)")])
def test_another_node(other):
    assert first_difference(graph(), other) is not None


def test_a_node_more_at_the_end():
    longer = trace("""g (float[n, 4] x) => (float[n, 4] y) {
        shape = Constant<value_ints: ints = [-1, 3]>()
        y = Reshape(x, shape)
        z = Relu(y)
    }""")
    assert first_difference(graph(), longer) is not None
    assert first_difference(longer, graph()) is not None


def test_a_weight_of_another_shape_and_a_small_one_of_another_value():
    def added(declaration):
        return trace(
            f"g (float[n, 4] x) => (float[n, 4] y) <float[{declaration}> {{ y = Add(x, w) }}"
        )

    assert first_difference(added("2] w = {1, 2}"), added("3] w = {1, 2, 3}")) is not None
    assert first_difference(added("2] w = {1, 2}"), added("2] w = {1, 3}")) is not None
    assert first_difference(added("2] w = {1, 2}"), added("2] w = {1, 2}")) is None


def test_a_difference_inside_a_branch():
    def branching(size):
        return trace(f"""g (bool[1] c, float[n] x) => (float[m] y) {{
            y = If(c) <then_branch = t () => (float[m] a) {{ a = Relu(x) }},
                       else_branch = e () => (float[m] b) {{
                           s = Constant<value_ints: ints = [{size}]>()
                           b = Expand(x, s) }}>
        }}""")

    assert first_difference(branching(3), branching(3)) is None
    assert first_difference(branching(3), branching(5)).first == (3,)


def shaped(shape):
    return trace(f"g (float[n, 4] x) => (float[{shape}] y) {{ y = Relu(x) }}")


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("2, 4", "3, 4", "?, 4"),  # the example's size
        ("2, 4", "2, 4", "2, 4"),  # a fixed one
        ("2, 4", "n, 4", "?, 4"),
        ("n, 4", "3, 4", "n, 4"),
    ],
)
def test_only_sizes_that_both_traces_state_are_kept(first, second, left):
    graph = shaped(first)
    open_inferred_sizes(graph, shaped(second))
    sizes = [
        size if isinstance(size, int) else size.value or "?"
        for size in graph.graph.outputs[0].shape
    ]
    assert ", ".join(map(str, sizes)) == left


def test_a_shape_whose_rank_differs_between_traces_is_left_open():
    graph = shaped("2, 4")
    open_inferred_sizes(graph, shaped("8"))
    assert graph.graph.outputs[0].shape is None
