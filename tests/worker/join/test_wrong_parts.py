"""Which built parts are blamed for a wrong joined output. The parts are functions, not sessions."""

from types import SimpleNamespace

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Call, Flow
from convkit.worker.join.call_trace import write_call
from convkit.worker.join.part_flow import Wiring
from convkit.worker.join.wrong_parts import parts_at_fault
from convkit.worker.metrics.row_sets import compare_outputs

PART = Contract((TensorSpec("x", "float32", (3,)),), (TensorSpec("y", "float32", (3,)),), ())
Y, Z = (TensorSpec(name, "float32", (3,)) for name in "yz")
WHOLE = Contract(PART.inputs, (Y, Z), ())
FLOW = Flow(
    (Call("one", "one", {"x": "x"}), Call("two", "two", {"x": "x"})), {"y": "one.y", "z": "two.y"}
)


def blamed(folder, factors, original=1.0):
    """Return the finding if the built parts are off by `factors`, and their originals by
    `original`; 0.5 percent is allowed.
    """
    wiring, x = Wiring(FLOW, WHOLE, {"one": PART, "two": PART}), np.ones(3, np.float32)
    for call in FLOW.steps:
        write_call(folder, "typical", call, 0, {"y": x * np.float32(original)})
    session = SimpleNamespace(
        wiring=wiring, call=lambda call, _, feeds: {"y": feeds["x"] * factors[call.part]}
    )
    built = SimpleNamespace(feeds=lambda _: {"x": x}, expected=lambda _: {"y": x, "z": x})
    outputs = tuple(compare_outputs(WHOLE, {"y": x, "z": x}, wiring.run({"x": x}, session.call)))
    case = SimpleNamespace(case="typical", outputs=outputs)
    return parts_at_fault(session, {name: {"nrmse": 0.005} for name in "yz"}, [case], folder, built)


def test_parts_that_make_the_difference_together_are_named_the_largest_first(tmp_path):
    finding = blamed(tmp_path, {"one": np.float32(1.01), "two": np.float32(1.02)})
    assert finding.code == "C514"
    assert "parts 'two' and 'one' make the difference together" in finding.message
    assert finding.evidence["parts"] == ["two", "one"]


def test_one_part_that_is_wrong_alone_is_named_by_itself(tmp_path):
    finding = blamed(tmp_path, {"one": np.float32(1.0), "two": np.float32(1.02)})
    assert finding.evidence == {"part": "two", "proven": True, "wrong_alone": True}


def test_nothing_is_blamed_within_the_limits(tmp_path):
    assert blamed(tmp_path, {"one": np.float32(1.001), "two": np.float32(1.001)}) is None


def test_parts_whose_originals_are_off_are_not_blamed(tmp_path):
    factors = dict.fromkeys(("one", "two"), np.float32(1.01))
    assert blamed(tmp_path / "rounding", factors, original=1.01).code == "C510"
    # Where the originals are joined, a wrong join is reported with its cause.
    assert blamed(tmp_path / "wrong", factors, original=1.5) is None
