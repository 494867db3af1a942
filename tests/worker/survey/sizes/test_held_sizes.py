"""A file that declares an axis open and runs with one size only, 1 included, is said to, with the
node that refuses others.
"""

from pathlib import Path

import numpy as np
import pytest
from test_file_survey import saved, surveyed

RECURRENT = """g (float[steps,batch,3] x) => (float[steps,one,batch,2] y) {
    y, last = GRU<hidden_size=2>(x, w, r, , , first)
}"""
JOINED = """g (float[batch,steps,3] x) => (float[batch,more,3] y) {
    y = Concat<axis=1>(row, x)
}"""
SPLIT = """g (float[batch,6] x) => (float[batch,2,3] y) {
    shape = Constant<value_ints=[1,2,3]>()
    y = Reshape(x, shape)
}"""
OPEN = """g (float[batch,6] x) => (float[batch,6] y) {
    y = Sigmoid(x)
}"""


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"w": (1, 6, 3), "r": (1, 6, 2), "first": (1, 1, 2), "row": (1, 1, 3)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("text", "operator"), [(RECURRENT, "GRU"), (JOINED, "Concat"), (SPLIT, "Reshape")]
)
def test_an_axis_that_only_1_works_for_is_named_with_its_node(
    tmp_path: Path, text: str, operator: str
) -> None:
    used = {
        name: value for name, value in weights().items() if f" {name}" in text or f"({name}" in text
    }
    found = surveyed(saved(tmp_path, text, **used))
    (finding,) = found.findings
    assert finding.code == "C116"
    assert finding.evidence == {"axis": "batch", "size": 1}
    assert operator in finding.message
    assert finding.message in found.notes


def test_an_open_axis_has_no_finding(tmp_path: Path) -> None:
    assert surveyed(saved(tmp_path, OPEN)).findings == ()
