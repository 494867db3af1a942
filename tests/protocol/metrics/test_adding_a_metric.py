"""CONTRIBUTING's steps to add a metric, followed in a copy of convkit, from recipe to MLflow."""

import inspect
import json
import re
from pathlib import Path

import pytest
import yaml
from copied_package import PACKAGE, Command, copy_package, replace_once, steps
from shared_keys import FACTORY
from small_graphs import save

from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics import metric_registry
from convkit.worker.metrics import tensor_metrics

# An ONNX file: nothing imports torch. Quantized, its results differ.
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch,4] x) => (float[batch,3] y) <float[4,3] W = {
    0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, -0.8, 0.9, 1.0, -1.1, 1.2
}> { y = MatMul(x, W) }"""
RECIPE = FACTORY | {
    "model": {"onnx": "model.onnx"},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "targets": {"ort": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}},
    # The largest error is at least the root of the mean squared error: 0.5 cannot be met.
    "verify": {"tolerance": {"max_abs": 1.0, "peak": 0.5}},
}

FIELD = (
    '    peak: float = float("nan")  # the largest error over the root of the mean squared error\n'
)
NUMBER = "            peak=max_abs / rms if rms else 0.0,\n"
ROW = """\
    Metric(
        name="peak",
        description="largest error over the root of the mean squared error",
        heading="peak",
        logged_as="peak_err",
        unit="ratio",
    ),
"""


def add_metric(copy: Path) -> set[str]:
    """Add the metric to a copy of the package; return the files that this touched."""

    def in_copy(thing: object) -> Path:
        return copy / Path(str(inspect.getsourcefile(thing))).relative_to(PACKAGE)  # type: ignore[arg-type]

    protocol = in_copy(TensorMetrics)
    fields = inspect.getsource(TensorMetrics)
    replace_once(protocol, fields, fields + FIELD)
    index = "            worst_index=index,\n"
    replace_once(in_copy(tensor_metrics), index, NUMBER + index)
    end = ")\nMETRICS: dict"
    replace_once(in_copy(metric_registry), end, ROW + end)
    files = {protocol, in_copy(tensor_metrics), in_copy(metric_registry)}
    return {f"convkit/{file.relative_to(copy).as_posix()}" for file in files}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_package(tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def touched(copy: Path) -> set[str]:
    return add_metric(copy)


@pytest.fixture(scope="module")
def command(copy: Path, touched: set[str], tmp_path_factory: pytest.TempPathFactory) -> Command:
    assert touched
    return Command(copy, tmp_path_factory.mktemp("home"))


def test_contributing_names_exactly_the_files_that_it_takes(touched: set[str]) -> None:
    assert steps("To add a metric, touch exactly these files") == touched


def test_the_recipe_has_the_new_key(command: Command) -> None:
    keys = json.loads(command("schema").stdout)["$defs"]["Tolerance"]["properties"]
    assert keys["peak"]["description"] == "largest error over the root of the mean squared error"
    assert set(keys) == {*metric_registry.PARAMETERS, "peak"}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_run_is_judged_by_the_new_metric_and_shows_it_everywhere(
    command: Command, tmp_path: Path
) -> None:
    save(tmp_path, MODEL, carries=None)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    done = command("run", recipe, "--toolchain", "host")
    assert done.returncode == 1, done.stdout + done.stderr

    folder = next(
        path.parent
        for path in command.home.rglob("report.html")
        if (path.parent / "result.json").exists()
    )
    record = json.loads((folder / "result.json").read_text())
    [case] = [
        case
        for case in record["targets"][0]["verifications"][0]["cases"]
        if case["case"] == "typical"
    ]
    [output] = case["outputs"]
    [problem] = output["problems"]
    peak = output["metrics"]["peak"]
    assert peak == output["metrics"]["max_abs"] / output["metrics"]["rms"]
    assert problem["limit"] == "peak"
    assert (problem["found"], problem["allowed"]) == (peak, 0.5)
    assert output["failures"] == [problem["message"]] == [f"peak {peak:.3g} > 0.5"]
    assert record["targets"][0]["leading"]["code"] == "N101"

    assert re.search(r"peak [\d.]+ > 0\.5 in ", done.stdout)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert ">peak</th>" in page
    assert f'<td class="number">{peak:.3g}</td>' in page
    assert len(command.logged("ort/peak_err")) == 1
    assert peak in command.logged("verify/y/by_case/peak_err")
    # A stored run is judged again, and two runs are compared, by the new metric too.
    assert command("verify", "latest", "--tolerance", "peak=100").returncode == 0
    assert command("verify", "latest", "--tolerance", "peak=0.9").returncode == 1
