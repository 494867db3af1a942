"""A constant out of range, and a tensor that is not finite: which of them spoils the outputs?"""

import numpy as np
import onnx_ir as ir
import pytest

from convkit.models.graph.preparation import prepare
from convkit.precision.diagnosis.constants import scan_constants
from convkit.precision.diagnosis.error_growth import simulate_with_errors
from convkit.precision.diagnosis.root_causes import find_root_causes, proven_causes
from convkit.precision.lowering.plan import PrecisionPlan, assign

# A norm whose epsilon vanishes, and scores behind a mask of -1e9.
NORM = "d = Sub(x, x) n = Add(d, eps) r = Div(d, n)"
MASKED = "m = Where(dead, mask, SCORES) y = Softmax<axis=1>(m)"
DEAD, PARTLY = "{1, 1}", "{0, 1}"
FINE_EPS, LOST_EPS = "{0.001}", "{1e-12}"


def causes(body: str, dead: str, eps: str) -> tuple[list[str], list[str]]:
    """Return the constants and the tensors to blame on one row of two scores."""
    weights = f"<bool[2] dead = {dead}, float mask = {{-1e9}}, float eps = {eps}>"
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> g (float[N, 2] x) => (float[N, 2] y) {weights}'
        f" {{ {NORM} {body} }}"
    )
    model = prepare(ir.from_onnx_text(text))
    assignment = assign(model, PrecisionPlan("float16", ()))
    cases = {"case": {"x": np.array([[1, 2]], np.float32)}}
    errors, saturated = (
        simulate_with_errors(model, assignment, cases, threads=1, saturate=saturate)
        for saturate in (False, True)
    )
    scans = scan_constants(model, "float16", assignment)
    found = find_root_causes(model, "float16", errors, scans)
    found = proven_causes(found, model, errors, saturated)
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
    ],
    ids=["a dead row", "nothing", "the norm, not the mask", "the mask, not the norm"],
)
def test_only_what_makes_the_difference_is_to_blame(
    body: str, dead: str, eps: str, to_blame: tuple[list[str], list[str]]
) -> None:
    assert causes(body, dead, eps) == to_blame
