"""Kinds of explanations are tried in one process, and none is lost if another's end it."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir
import pytest

from convkit.worker.cause.explanations import explanation_search
from convkit.worker.cause.explanations.explanation_search import explain
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
EXPECTED = np.tanh(X)


def graph_of(operator: str) -> Any:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        agraph (float[3, 4] x) => (float[3, 4] y) {{ y = {operator}(x) }}"""
    return make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))


class EndsTheProcess:
    """A graph that a kernel without a check cannot run."""

    def run(self, targets: object, feeds: object) -> dict[str, np.ndarray]:
        os._exit(1)


def deadly(count: int) -> Any:
    def candidates(_: Region) -> Iterator[Rewrite]:
        ending: Any = EndsTheProcess()
        for number in range(count):
            yield Rewrite("attribute", "y", f"ends the process ({number})", ending)

    return candidates


def corrected(_: Region) -> Iterator[Rewrite]:
    yield Rewrite("operator", "y", "it is Sigmoid", graph_of("Sigmoid"))
    yield Rewrite("operator", "y", "it should be Tanh", graph_of("Tanh"))


@pytest.fixture
def region() -> Region:
    return Region(graph_of("Relu"), "y", {"x": X}, EXPECTED, (), {}, (), {"y": (3, 4)})


@pytest.mark.parametrize("count", [1, 3, 12])
@pytest.mark.sampled(2)
def test_what_ends_the_process_hides_no_other_kind(
    count: int, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"deadly": deadly(count), "corrected": corrected}
    monkeypatch.setattr(explanation_search, "CANDIDATES", kinds)
    found = explain(region, kinds=tuple(kinds))
    assert found is not None
    assert found.rewrite.text == "it should be Tanh"


def test_all_kinds_share_a_process(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    forks = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(1) or fork())
    kinds = {f"nothing {n}": lambda _: iter(()) for n in range(9)} | {"corrected": corrected}
    monkeypatch.setattr(explanation_search, "CANDIDATES", kinds)
    assert explain(region, kinds=tuple(kinds)) is not None
    assert len(forks) <= 2  # one for the kinds, one for the number that a node may have instead


@pytest.mark.thorough
def test_nothing_is_found_among_kinds_that_only_end_the_process(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"one": deadly(8), "other": deadly(7)}
    monkeypatch.setattr(explanation_search, "CANDIDATES", kinds)
    assert explain(region, kinds=tuple(kinds)) is None
