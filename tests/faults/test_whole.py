"""A sample of the whole runs that `python -m faults.whole` scores, and the scoring itself."""

import dataclasses
import random
from pathlib import Path

import onnx
import pytest
from records import build_record

from convkit.host.record.run_record import RunRecord
from convkit.protocol.findings.finding import Finding, Place
from faults.mutants.changes import Mutation, NothingToMutateError
from faults.mutants.models import ARCHITECTURES
from faults.mutants.scoring import subject
from faults.whole.code import CODE_FAULTS
from faults.whole.code_kinds import DEVELOPMENT, HELD_OUT, development, held_out
from faults.whole.edges import EDGES
from faults.whole.mutated import COREML, ORT, run
from faults.whole.scoring import score, score_code
from faults.whole.subjects import SUBJECTS

MUTATION = Mutation("scaled weight", frozenset({"w", "MatMul_3"}), frozenset({"weight"}))
SUBJECT = subject(next(each for each in ARCHITECTURES if each.name == "encoder"))


def record(finding: Finding | None) -> RunRecord:
    """Return a run with one target, which failed with this headline or is verified."""
    made = build_record()
    target = dataclasses.replace(
        made.targets[0],
        status="verified" if finding is None else "failed",
        headline="" if finding is None else f"{finding.code} {finding.message}",
        leading=finding,
    )
    return dataclasses.replace(made, targets=(target,))


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (None, (False, False, False)),
        (Finding("N101", "off", Place(tensor="y")), (True, False, False)),
        (Finding("N405", "eps", Place(node="MatMul_3"), {"kind": "constant"}), (True, True, False)),
        (Finding("N403", "scaled", Place(tensor="b"), {"kind": "weight"}), (True, False, False)),
        (Finding("N403", "scaled", Place(tensor="w"), {"kind": "weight"}), (True, True, True)),
    ],
)
def test_a_headline_must_name_the_place_and_the_kind(
    finding: Finding | None, expected: tuple[bool, bool, bool]
) -> None:
    found = score(record(finding), MUTATION)
    assert (found.detected, found.placed, found.named) == expected


def test_a_fault_of_code_is_named_by_its_code_and_line() -> None:
    right = Finding("E208", "the branch", Place(source="model.py:7"))
    for finding, named in ((right, True), (dataclasses.replace(right, code="C106"), False)):
        (found,) = score_code(record(finding), frozenset({"E208"}), "model.py:7")
        assert (found.detected, found.named) == (True, named)
    (found,) = score_code(record(right), frozenset({"E208"}), "model.py:8")
    assert not found.named
    (found,) = score_code(record(None), frozenset({"E208"}), "model.py:7")
    assert (found.detected, found.named) == (False, False)


def test_kinds_of_code_faults_are_held_out_by_kind_and_by_architecture() -> None:
    tuned, held = development(), held_out()
    assert len({each.name for each in (*tuned, *held)}) == len(tuned) + len(held)
    assert not {each.name for each in DEVELOPMENT} & {each.name for each in HELD_OUT}
    for fault in (*tuned, *held):
        assert fault.forward.count("# here") == 1, fault.name
        compile(fault.source, fault.name, "exec")


@pytest.mark.parametrize("mutate", EDGES)
def test_every_fault_at_an_edge_gives_a_valid_graph(mutate) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(SUBJECT.model)
    before = model.SerializeToString()
    try:
        mutation = mutate(model, SUBJECT.shapes, random.Random(4))
    except NothingToMutateError:
        return
    assert model.SerializeToString() != before
    assert mutation.nodes
    assert mutation.kinds
    made = {name for node in model.graph.node for name in (*node.input, *node.output)}
    known = made | {node.name for node in model.graph.node}
    assert any(name in known or name.endswith("_inside") for name in mutation.nodes)


def test_every_subject_has_a_name_and_a_source_of_its_own() -> None:
    assert len({each.name for each in SUBJECTS}) == len(SUBJECTS)
    for each in SUBJECTS:
        compile(each.source(), each.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "code"),
    [
        ("branch on values", COREML, "E208"),
        pytest.param("a value becomes a number", COREML, "N510", marks=pytest.mark.thorough),
        ("branch on a size", ORT, "E302"),
        ("noise", COREML, "N303"),
        pytest.param("computed by numpy", COREML, "E305", marks=pytest.mark.thorough),
    ],
)
def test_a_fault_of_code_is_named_in_a_whole_run(
    name: str, target: dict[str, str], code: str, tmp_path: Path
) -> None:
    (fault,) = [each for each in CODE_FAULTS if each.name == name]
    fault = dataclasses.replace(fault, keys={"targets": {"built": target}})
    recipe = fault.write(tmp_path / "fault")
    (found,) = score_code(run(recipe, tmp_path / "home"), frozenset({code}), fault.named_at(recipe))
    assert found.named, found.headline
