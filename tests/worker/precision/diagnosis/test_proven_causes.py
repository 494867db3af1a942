"""A constant out of range, and a tensor that is not finite: which of them spoils the outputs?"""

import numpy as np
import onnx_ir as ir
import pytest

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.diagnosis.counterfactual import Interventions, proven
from convkit.worker.precision.diagnosis.overflow_origins import find_root_causes
from convkit.worker.precision.diagnosis.rounding_growth import simulate_with_errors
from convkit.worker.precision.diagnosis.unrepresentable_constants import scan_constants
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

# A norm whose epsilon vanishes, and scores behind a mask of -1e9.
NORM = "d = Sub(x, x) n = Add(d, eps) r = Div(d, n)"
MASKED = "m = Where(dead, mask, SCORES) y = Softmax<axis=1>(m)"
OVERFLOW = (
    "h = Mul(x, large) hidden = Where(dead, r, h) both = Concat<axis=0>(hidden, PICKED)"
    " y = Add(both, x)"
)
TWO_MASKS = (
    "live = Not(dead) first = Where(live, other, x) m = Where(dead, mask, first)"
    " s = Softmax<axis=1>(m) seen = Where(dead, x, first) y = Add(s, seen)"
)
DEAD, PARTLY = "{1, 1}", "{0, 1}"
FINE_EPS, LOST_EPS = "{0.001}", "{1e-12}"


def causes(body: str, dead: str, eps: str) -> tuple[list[str], list[str]]:
    """Return the constants and the tensors to blame on one row of two scores."""
    floats = (
        f"float mask = {{-1e9}}, float other = {{1e9}}, float large = {{6e4}}, float eps = {eps}"
    )
    weights = f"<bool[2] dead = {dead}, {floats}>"
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> g (float[N, 2] x) => (float[N, 2] y) {weights}'
        f" {{ {NORM} {body} }}"
    )
    model = prepare(ir.from_onnx_text(text))
    assignment = assign(model, PrecisionPlan("float16", ()))
    cases = {"case": {"x": np.array([[1, 2]], np.float32)}}
    errors = simulate_with_errors(model, assignment, cases, threads=1)
    scans = scan_constants(model, "float16", assignment)
    found = find_root_causes(model, "float16", errors, scans)
    tried = Interventions(model, assignment, cases["case"], saturate=False, threads=1)
    found = proven(found, tried.count)
    return [scan.constant for scan in found.constants], [bad.error.tensor for bad in found.tensors]


@pytest.mark.parametrize(
    ("body", "dead", "eps", "to_blame"),
    [
        (MASKED.replace("SCORES", "x"), DEAD, FINE_EPS, (["mask"], [])),
        (MASKED.replace("SCORES", "r"), PARTLY, FINE_EPS, ([], [])),
        # The mask is -inf as well, but behind it everything is NaN already.
        (MASKED.replace("SCORES", "r"), PARTLY, LOST_EPS, ([], ["r"])),
        # The norm is NaN only where the mask hides it.
        (MASKED.replace("SCORES", "r"), DEAD, LOST_EPS, (["mask"], [])),
        # The same overflow, once selected away and once not.
        (OVERFLOW.replace("PICKED", "x"), DEAD, LOST_EPS, ([], ["r"])),
        (OVERFLOW.replace("PICKED", "h"), DEAD, LOST_EPS, ([], ["r", "h"])),
        # Of two constants beyond the range, one is harmless: nothing is selected from it.
        (TWO_MASKS, DEAD, FINE_EPS, (["mask"], [])),
    ],
    ids=[
        "a dead row",
        "nothing",
        "the norm, not the mask",
        "the mask, not the norm",
        "the norm, not the overflow",
        "the norm and the overflow",
        "one mask of two",
    ],
)
def test_only_what_makes_the_difference_is_to_blame(
    body: str, dead: str, eps: str, to_blame: tuple[list[str], list[str]]
) -> None:
    assert causes(body, dead, eps) == to_blame
