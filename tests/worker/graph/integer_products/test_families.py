"""Rewritten products are, to the bit, those of onnxruntime's kernels on each family of
processors.
"""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import product_kernels as kernels
import pytest
from other_processors import PROCESSORS, emulated, printed_on

from convkit.worker.graph.integer_products.integer_operators import products_of
from convkit.worker.graph.integer_products.processor_families import OTHER, host_family
from convkit.worker.graph.integer_products.product_rewriting import (
    make_products_exact,
    switch_products,
    with_exact_products,
)
from convkit.worker.graph.integer_products.saturating_pairs import saturating_pairs

SCRIPT = Path(kernels.__file__)
FAMILIES = {"Haswell": "saturating-pairs", "Nehalem": "exact"}
# Sums of few windows and of one channel at a time saturate nowhere.
SAME = {"conv depthwise", "conv 1x1"}


@pytest.fixture(scope="module")
def digests() -> dict[str, dict[str, str]]:
    return kernels.all_digests()


def test_this_processor_s_family_is_reproduced_to_the_bit(
    digests: dict[str, dict[str, str]],
) -> None:
    own = host_family()
    assert {name: found["own"] for name, found in digests.items()} == {
        name: found[own] for name, found in digests.items()
    }


def test_the_other_family_computes_something_else(digests: dict[str, dict[str, str]]) -> None:
    other = OTHER[host_family()]
    assert {name for name, found in digests.items() if found[other] == found["own"]} == SAME


@emulated
@pytest.mark.parametrize("processor", PROCESSORS)
def test_processors_of_both_families_are_reproduced_to_the_bit(
    digests: dict[str, dict[str, str]], processor: str
) -> None:
    """Their own kernels compute what the rewritten graph computes here, and there."""
    found_there = printed_on(processor, SCRIPT)
    family = FAMILIES[processor]
    assert found_there["family"] == family
    for name, found in found_there["digests"].items():
        assert found["own"] == found[family] == digests[name][family], name
        assert {kind: found[kind] for kind in FAMILIES.values()} == {
            kind: digests[name][kind] for kind in FAMILIES.values()
        }, name


def test_pairs_that_can_saturate_are_those_that_some_input_saturates() -> None:
    """By trying the four corners of the inputs' range, which the sums are largest in."""
    rng = np.random.default_rng(1)
    weights = rng.integers(-128, 128, (7, 50)).astype(np.int8)
    pairs = saturating_pairs(weights)
    found = set(zip(pairs.rows.tolist(), pairs.columns.tolist(), strict=True))
    wanted = set()
    for row in range(0, 6, 2):
        for column in range(50):
            first, second = (int(weights[row + step, column]) for step in (0, 1))
            sums = [a * first + b * second for a in (0, 255) for b in (0, 255)]
            if max(sums) > 32767 or min(sums) < -32768:
                wanted.add((row, column))
    assert found == wanted
    assert 0 < len(wanted) < 150
    assert pairs.share == len(wanted) / 150


def parsed(body: str, header: str, constants: str) -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["": 13]> g ({header}) => (int32[N, M] y)'
        f" <{constants}> {{ {body} }}"
    )


@pytest.mark.parametrize(
    ("kinds", "saturates"),
    [
        (("uint8", "int8"), True),
        (("uint8", "uint8"), False),
        (("int8", "int8"), False),
        (("int8", "uint8"), False),
    ],
)
def test_only_unsigned_by_signed_products_saturate(kinds: tuple[str, str], saturates: bool) -> None:
    left, right = kinds
    model = parsed("y = MatMulInteger(x, w)", f"{left}[N, 4] x, {right}[4, M] w", "")
    (product,) = products_of(model)
    assert product.may_saturate == saturates


def test_seven_bit_weights_never_saturate() -> None:
    model = parsed("y = MatMulInteger(x, w)", "uint8[N, 2] x", "int8[2, 2] w = {64, -64, 64, -63}")
    assert switch_products(model).saturating == ()
    model = parsed("y = MatMulInteger(x, w)", "uint8[N, 2] x", "int8[2, 2] w = {64, -65, 65, -63}")
    (node,) = switch_products(model).saturating
    assert node.share == 0.5


def test_weights_that_are_computed_are_exact_and_named() -> None:
    model = parsed("y = MatMulInteger(x, w)", "uint8[N, 4] x, int8[4, M] w", "")
    rewritten = switch_products(model)
    assert [node.weight for node in rewritten.unknown] == ["w"]
    x = np.full((1, 4), 255, np.uint8)
    w = np.full((4, 3), 127, np.int8)
    session = kernels.open_model(ir.to_proto(model).SerializeToString())
    assert (session.run(["y"], {"x": x, "w": w})[0] == 4 * 255 * 127).all()


def test_a_model_without_such_products_is_left_alone() -> None:
    model = parsed("y = MatMulInteger(x, w)", "uint8[N, 4] x, uint8[4, M] w", "")
    rewritten = with_exact_products(ir.to_proto(model))
    make_products_exact(model)
    for graph in (model.graph, ir.from_proto(rewritten).graph):
        assert [(node.op_type, len(node.inputs)) for node in graph] == [("MatMulInteger", 2)]
