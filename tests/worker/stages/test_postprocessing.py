"""Postprocessing through the stages: the contract's constants against the original's function, and
the results of built models.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import verified_graphs
from small_graphs import HEADER, save

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Processor, ReferenceRequest, Sample, Source
from convkit.protocol.postprocessing_constants import LabelConstants, Postprocessing
from convkit.worker.job_context import Context, UnfitDataError
from convkit.worker.stages import reference

CLASSIFIER = HEADER + "g (float[batch,3] x) => (float[batch,3] scores) {{ {} }}"
SAME = CLASSIFIER.format("scores = Identity(x)")
# Of a row like (1, 0.9, 0), the second is the best.
MOVES = CLASSIFIER.format("more = Constant<value_floats=[0., 2., 0.]>() scores = Add(x, more)")
NAMES = ("cat", "dog", "eel")
DECODE = """
def decode(outputs):
    return [["cat", "dog", "eel"][best] for best in outputs["scores"].argmax(-1)]

def broken(outputs):
    return outputs["logits"]

def unlabeled(outputs):
    return outputs["scores"]
"""
SAMPLES = {"x": Sample("normal", (0.0, 1.0))}


def contract(names: tuple[str, ...] = NAMES) -> Contract:
    made = Postprocessing(labels=LabelConstants(names))
    scores = TensorSpec("scores", "float32", ("batch", 3), postprocess=made)
    return Contract(
        (TensorSpec("x", "float32", ("batch", 3)),), (scores,), (Axis("batch", 1, 4, 8),)
    )


def findings(
    folder: Path,
    asked: Contract,
    function: str = "decode",
    graph: str = SAME,
    samples: dict[str, Sample] = SAMPLES,
) -> list[Finding]:
    """Run the reference of a graph behind a function of the user's."""
    (folder / "post.py").write_text(DECODE)
    output = folder / "reference"
    output.mkdir()
    source = Source("onnx", path=str(save(folder / "original", graph)))
    processor = Processor("function", str(folder / "post.py"), function)
    request = ReferenceRequest(
        source, asked, samples, 0, (), None, (), processed={"scores": processor}
    )
    return reference.run(request, Context(output))[1]


def test_labels_in_the_originals_order_have_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, contract()) == []


def test_labels_in_another_order_are_named_with_their_place(tmp_path: Path) -> None:
    [finding] = findings(tmp_path, contract(("cat", "eel", "dog")))
    assert (finding.code, finding.place.tensor) == ("C571", "scores")
    assert "number 1 is 'dog' in the original, 'eel' in the app" in finding.message
    assert finding.remedy is not None
    assert finding.remedy.change == {"outputs.0.postprocess.labels.names": list(NAMES)}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("broken", "broken raised KeyError: 'logits'"),
        ("unlabeled", "unlabeled returned ndarray: "),
        ("missing", "missing"),
    ],
)
def test_a_function_that_returns_no_results_is_an_error(
    function: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(UnfitDataError, match=says) as caught:
        findings(tmp_path, contract(), function)
    assert caught.value.findings[0].evidence["key"] == "outputs.0.postprocess.processor.call"


def test_constants_that_nothing_could_be_compared_with_have_a_warning(tmp_path: Path) -> None:
    undefined = CLASSIFIER.format("root = Sqrt(x) scores = Div(root, root)")
    negative = {"x": Sample("uniform", (-2.0, -1.0))}
    found = findings(tmp_path, contract(("eel", "cat", "dog")), graph=undefined, samples=negative)
    [finding] = [each for each in found if each.code.startswith("C57")]
    assert (finding.code, finding.severity, finding.place.tensor) == ("C579", "warning", "scores")


def test_a_model_without_names_needs_a_function(tmp_path: Path) -> None:
    asked = contract()
    output = tmp_path / "reference"
    output.mkdir()
    source = Source("onnx", path=str(save(tmp_path / "original", SAME)))
    request = ReferenceRequest(
        source, asked, SAMPLES, 0, (), None, (), processed={"scores": Processor()}
    )
    with pytest.raises(UnfitDataError, match="no id2label"):
        reference.run(request, Context(output))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    return verified_graphs.make_reference(folder, SAME, contract(), SAMPLES)


def measured(original: Path, text: str) -> Any:
    return verified_graphs.run(original, text, contract=contract())[0]


def test_the_same_model_gives_the_same_results(original: Path) -> None:
    result = measured(original, SAME)
    assert {each.case for each in result.results} == {each.case for each in result.cases}
    assert all(each.rows > 0 for each in result.results)
    assert all(each.differing == 0 for each in result.results)


def test_rows_with_another_label_are_counted_with_their_margin(original: Path) -> None:
    result = measured(original, MOVES)
    rows = sum(each.rows for each in result.results)
    differing = [each for each in result.results if each.differing]
    assert 0 < sum(each.differing for each in differing) < rows
    worst = max(differing, key=lambda each: each.margin)
    # The other label got 2 more: rows of a larger margin keep theirs.
    assert 0 < worst.margin < 2
    assert "'dog', " in worst.example
    assert dataclasses.replace(worst, margin=0.0).scores == "scores"
