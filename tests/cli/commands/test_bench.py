"""What `convkit bench` makes of its options, and how it prints a benchmark."""

import ast
import dataclasses
import io
from pathlib import Path

import pytest
import yaml
from records import verified_record
from rich.console import Console

from convkit.cli.commands.bench import _size, bench_settings
from convkit.cli.input.recipe_names import find_recipe
from convkit.cli.output.bench_table import bench_summary
from convkit.cli.output.run_printing import built_lines
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.host.record.bench_record import BenchRecord, Interval, ModelFigures, SizeFigures
from convkit.host.report.bench_section import bench_view
from convkit.protocol.contract import TensorSpec
from convkit.protocol.errors import UsageError
from convkit.protocol.findings.finding import Finding

RECIPE = {
    "schema": 1,
    "name": "small",
    "model": {"config": {"architecture": "bert"}},
    "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 2]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 2]}],
    "bench": {"seconds": 3},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


@pytest.mark.parametrize(
    ("text", "size"),
    [("largest", "largest"), ("batch=1", {"batch": 1}), ("batch=1, s=2", {"batch": 1, "s": 2})],
)
def test_a_size_is_a_name_or_axes(text, size):
    assert _size(text) == size


@pytest.mark.parametrize("text", ["huge", "batch=", "batch=two", "batch=1,s"])
def test_any_other_size_is_refused(text):
    with pytest.raises(UsageError, match="--size"):
        _size(text)


def test_options_replace_the_recipesbench_settings(tmp_path):
    loaded = parse_recipe(yaml.safe_dump(RECIPE), tmp_path / "recipe.yaml")
    settings = bench_settings(loaded, ["batch=3"], None, None)
    assert (settings.sizes, settings.seconds) == (({"batch": 3},), 3)
    assert bench_settings(loaded, [], 2, 0.5).threads == 2
    with pytest.raises(
        UsageError, match="--size, axis batch: found 9; the axis ranges from 1 to 4"
    ):
        bench_settings(loaded, ["batch=9"], None, None)
    with pytest.raises(UsageError, match="perhaps you meant 'batch'"):
        bench_settings(loaded, ["bach=1"], None, None)


def printed(record: BenchRecord) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(bench_summary(record))
    return console.export_text()


def test_a_benchmark_is_printed_with_its_noise_and_its_gaps():
    time, ratio = Interval(0.002, 0.001, 0.003), Interval(0.5, 0.4, 0.6)
    sizes = {"batch": 2}
    original = SizeFigures("typical", sizes, 10, time, throughput=1000.0)
    target = dataclasses.replace(original, ratios={"p50": ratio})
    models = (
        ModelFigures("original", "torch", "cpu", "float32", 2048, sizes=(original,)),
        ModelFigures("ort", "onnxruntime", "cpu", "float32", 1024, sizes=(target,)),
        ModelFigures("trt", "tensorrt", "cuda", "float16", absent="simulated: no cuda"),
        ModelFigures("odd", "onnxruntime", "cpu", "float32",
                     sizes=(SizeFigures("typical", sizes, error="too large"),)),
    )  # fmt: skip
    missed = Finding("E401", "ort: latency p50 is missed", evidence={"most_expensive": ["a"]})
    record = BenchRecord(
        1, "id", "small", 0.0, 1.0, {}, 4, {"typical": 7}, {"typical": 0.12}, models,
        findings=(missed,), summary=("fastest: ort",), waiting={"typical": 0.4},
    )  # fmt: skip
    text = printed(record)
    assert "typical (batch=2), 7 rounds, 4 threads, unsteady: 12 %" in text
    assert "Threads waited for a processor 40 % of the time" in text
    assert "Threads waited" not in printed(dataclasses.replace(record, waiting={"typical": 0.05}))
    assert "0.50x (0.40 to 0.60)" in text
    assert "trt: no figure: simulated: no cuda" in text
    assert "too large" in text
    assert "fastest: ort" in text
    assert "error E401 ort: latency p50 is missed" in text


def test_sizes_are_shown_in_the_order_of_the_benchmark():
    """A file has the rounds sorted by name."""
    sizes = tuple(
        SizeFigures(name, {"batch": count}, 10, Interval(1.0, 1.0, 1.0))
        for name, count in (("typical", 2), ("largest", 4))
    )
    counts = {"largest": 7, "typical": 7}
    noise = dict.fromkeys(counts, 0.1)
    models = (ModelFigures("original", "torch", "cpu", "float32", 2048, sizes=sizes),)
    record = BenchRecord(1, "id", "small", 0.0, 1.0, {}, 4, counts, noise, models)
    text = printed(record)
    assert text.index("typical (batch=2)") < text.index("largest (batch=4)")
    view = bench_view(record)
    assert view is not None
    assert [each.title for each in view.sizes] == ["typical (batch=2)", "largest (batch=4)"]


def test_a_bare_name_finds_its_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "bert.yaml").touch()
    (tmp_path / "vit.yaml").touch()
    assert find_recipe(Path("bert")) == Path("recipes/bert.yaml")
    assert find_recipe(Path("vit")) == Path("vit.yaml")
    for unknown in ("other", "bert.yml", "sub/bert"):
        assert find_recipe(Path(unknown)) == Path(unknown)


def test_a_run_ends_with_the_lines_that_load_a_verified_model():
    record = verified_record()
    lines = built_lines(record, "/runs/1")
    name = record.targets[0].name
    assert f"Built: /runs/1/models/{name}" in lines
    assert f"  session = convkit.load('/runs/1/models/{name}')" in lines
    failed = [dataclasses.replace(target, status="failed") for target in record.targets]
    assert built_lines(dataclasses.replace(record, targets=tuple(failed)), "/runs/1") == []


def test_the_lines_that_load_a_model_are_python_whatever_its_tensors_are_called() -> None:
    record = verified_record()
    for names in (("input_ids", "mask"), ("serving_default_x:0", "lambda")):
        inputs = tuple(TensorSpec(name, "float32", ("batch",)) for name in names)
        contract = dataclasses.replace(record.contract, inputs=inputs)
        lines = built_lines(dataclasses.replace(record, contract=contract), "/runs/1")
        (call,) = [line for line in lines if "outputs" in line]
        tree = ast.parse(call.strip())
        assert [name for name in names if name in ast.unparse(tree)] == [*names]
