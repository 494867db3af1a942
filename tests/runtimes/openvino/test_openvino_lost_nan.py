"""OpenVINO's Relu returns 0 for NaN: named as its kernel, with code that OpenVINO runs right."""

from pathlib import Path

import numpy as np
import pytest
from ir_models import DENSE, built, dense

from convkit.runtimes.openvino.as_graph.diagnose import computed
from convkit.runtimes.openvino.exposed_tensors import ExposedIR
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.cause.graphs.runnable_graph import read_graph
from convkit.worker.cause.place.built_against_graph import compare_built

pytest.importorskip("openvino")


def test_a_kernel_that_loses_nan_is_named_with_code_that_was_tried(tmp_path: Path) -> None:
    graph = dense(tmp_path / "export")
    folder, _, _ = built(tmp_path, graph)
    model = ExposedIR(folder / "model.xml", OpenVINOOptions())
    feeds = {spec.name: np.ones((4, 64), np.float32) for spec in DENSE.inputs}
    feeds[DENSE.inputs[0].name][1, 2] = np.nan
    found = compare_built(read_graph(graph), model, feeds, None, computed)
    assert found is not None
    assert (found.kind, found.names[0]) == ("computed", "r")
    assert found.loses_nan
    assert found.instead == "y = torch.where(torch.isnan(x), x, y)"
    numbers = {name: np.nan_to_num(values, nan=1.0) for name, values in feeds.items()}
    assert compare_built(read_graph(graph), model, numbers, None, computed) is None
