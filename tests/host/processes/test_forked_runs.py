"""A run's stages are forked, and say and make what fresh ones do."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from faults.recipes import write_recipe
from watched_workers import Watched, running_servers

from convkit.host.home import Home
from convkit.host.processes.progress_events import SilentListener
from convkit.host.processes.worker_start import WORKERS, FreshProcesses
from convkit.host.record.run_record import StageReport
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, every worker is fresh"),
]


TARGETS = {
    "half": {
        "runtime": "onnxruntime",
        "precision": {"default": "float16", "keep_float32": "auto"},
        "tolerance": {"max_abs": 1e-2},
    },
    "coreml-half": {
        "runtime": "coreml",
        "minimum": "iOS17",
        "precision": {"default": "float16", "keep_float32": "auto"},
        "tolerance": {"max_abs": 1e-2},
    },
}
ROWS = {
    "axes": {"batch": {"min": 1, "typical": 2, "max": 3}},
    "inputs": [
        {"name": "input", "dtype": "float32", "shape": ["batch", 4], "sample": {"normal": [0, 1]}}
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
}
LINEAR = "def build():\n    return torch.nn.Linear(4, 3)\n"


def test_a_run_forks_its_stages_and_ends_its_servers(tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path / "model", code=LINEAR, targets={"ort": {"runtime": "onnxruntime"}}, **ROWS
    )
    before = running_servers()
    during: dict[str, set[int]] = {}

    class Watching(SilentListener):
        def stage_finished(self, stage: str, status: str, seconds: float) -> None:
            during[stage] = running_servers() - before

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, "host", FreshProcesses())
        options = RunOptions(recipe, Home(tmp_path / "home"), toolchain="host", track=False)
        assert run_recipe(options, Watching()).record.exit_code == 0
    # Export and reference share one; the other stages need no tools that are slow to import.
    assert len(during["export"] | during["reference"]) == 1
    assert during["verify:ort"] == set(), "it keeps its memory while nobody needs it"
    assert running_servers() == before


def stages_of(recipe: Path, home: Path, strategy: Watched) -> dict[str, StageReport]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, "host", strategy)
        record = run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False)).record
    return {stage.id: stage for stage in record.stages}


@pytest.mark.parametrize(
    "source",
    [*(pytest.param(each, marks=pytest.mark.thorough) for each in ("torch", "torch, all")), "onnx"],
)
def test_a_forked_stage_says_and_makes_what_a_fresh_one_does(
    tmp_path: Path, forked: Watched, source: str
) -> None:
    """Above all, it reports no tools that were only imported ahead."""
    if source != "onnx":
        # Core ML's tools, and its search for a precision, are costly.
        targets = TARGETS if source == "torch, all" else {"half": TARGETS["half"]}
        recipe = write_recipe(tmp_path / "model", code=LINEAR, targets=targets, **ROWS)
    else:
        graph = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[batch,4] input)'
            " => (float[batch,3] y)"
            " { y = Slice(input, starts, ends, axes) }"
        )
        for name, value in (("starts", 0), ("ends", 3), ("axes", 1)):
            graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array([value]), name))
        recipe = write_recipe(tmp_path / "model", graph=graph, **ROWS)
    fresh = stages_of(recipe, tmp_path / "fresh", Watched(FreshProcesses()))
    again = stages_of(recipe, tmp_path / "forked", forked)
    assert {stage.status for stage in fresh.values()} == {"done"}, fresh
    assert fresh.keys() == again.keys()
    for name, stage in fresh.items():
        assert again[name].versions == stage.versions, name
        assert again[name].findings == stage.findings, name
        assert again[name].status == stage.status, name
        if stage.kind in ("export", "precision", "build"):
            assert again[name].artifact == stage.artifact, name
        assert again[name].peak_memory_bytes == pytest.approx(stage.peak_memory_bytes, rel=0.3)
    forks = [one for one in forked.started if not isinstance(one, subprocess.Popen)]
    loaded = ("precision",) if source == "onnx" else ("export", "reference", "precision")
    ahead = [
        stage
        for stage in fresh.values()
        if stage.kind in loaded or "coreml" in (stage.target or "")
    ]
    assert len(forks) == len(ahead)
    assert bool(ahead) == (source != "onnx")  # an ONNX file in float32 needs no costly import
