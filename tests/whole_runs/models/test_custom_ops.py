"""Models with operators of onnxruntime-extensions, which onnxruntime alone does not know."""

import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import yaml

import convkit
from convkit.cli.output.run_printing import built_lines
from convkit.host.bench.bench_requests import original_envelope, target_envelope
from convkit.host.draft.init_command import Drafting, draft
from convkit.host.facts.planning_facts import gather
from convkit.host.fleet.recipe_bundle import bundle_of
from convkit.host.home import Home
from convkit.host.plan.stage_keys import ingredients, stage_key
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.keys.model_parts import part_content
from convkit.host.recipe.reading.loading import load_recipe, parse_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.protocol.errors import ModelFileError, RecipeError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CustomOps, OperatorLibrary
from convkit.worker.graph.typed_graph import UntypedValueError, prepare
from convkit.worker.job_context import StageFailedError
from convkit.worker.runtime_interface.refusal_causes import with_remedy
from convkit.worker.runtime_interface.registered_operators import (
    is_custom,
    known_libraries,
    library_files,
    unknown_operator,
    using,
)

GRAPH = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]>
g (float[batch,8] x) => (float[batch,8] y) <float[batch,8] n, float[batch,8] p>
{ n, p = ai.onnx.contrib.NegPos(x)
  y = Sub(p, n) }"""
OPERATORS = """
def symbolic():
    pass
"""


def library() -> Path:
    package = importlib.metadata.distribution("onnxruntime-extensions")
    (name,) = [file for file in package.files or () if file.match("_extensions_pydll*.so")]
    return Path(str(package.locate_file(name)))


def recipe(folder: Path, **changes: Any) -> Path:
    onnx.save(onnx.parser.parse_model(GRAPH), folder / "given.onnx")
    (folder / "ops.py").write_text(OPERATORS)
    content = {
        "schema": 1,
        "name": "custom",
        "model": {"onnx": "given.onnx"},
        "axes": {"batch": {"min": 1, "typical": 2, "max": 3}},
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 8]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 8]}],
        "verify": {"tolerance": {"max_abs": 1e-6}, "ladder": "quick"},
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content | changes, sort_keys=False))
    return path


def run(path: Path) -> RunOutcome:
    home = Home.find(path.parent / "home")
    return run_recipe(RunOptions(recipe=path, home=home, toolchain="host", track=False))


def findings(outcome: RunOutcome) -> dict[str, Finding]:
    return {each.code: each for stage in outcome.record.stages for each in stage.findings}


def test_a_graph_runs_with_the_library_that_its_recipe_declares(tmp_path: Path) -> None:
    (tmp_path / "libops.so").symlink_to(library())
    path = recipe(tmp_path, custom_ops=["libops.so"])
    outcome = run(path)
    assert outcome.record.targets[0].status == "verified", findings(outcome)
    provenance = (outcome.folder / "provenance.json").read_text()
    assert hashlib.sha256(library().read_bytes()).hexdigest() in provenance
    x = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], "float32")
    [loads] = [line for line in built_lines(outcome.record, "run") if "convkit.load" in line]
    assert loads.endswith("('run/models/ort', custom_ops=[...])")
    session = convkit.load(outcome.folder / "models" / "ort", custom_ops=[tmp_path / "libops.so"])
    assert session(x=x)["y"].tolist() == np.abs(x).tolist()
    with pytest.raises(ModelFileError, match=r"ai\.onnx\.contrib:NegPos.*custom_ops=\["):
        convkit.load(outcome.folder / "models" / "ort")


def test_calibration_runs_the_operators_too(tmp_path: Path) -> None:
    """static-int8: onnxruntime's calibrators open sessions of their own."""
    (tmp_path / "libops.so").symlink_to(library())
    path = recipe(
        tmp_path,
        custom_ops=["libops.so"],
        targets={"ort": {"runtime": "onnxruntime", "precision": {"quantize": "static-int8"}}},
        verify={"tolerance": {"max_abs": 0.5}, "ladder": "quick"},
    )
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    text = GRAPH.replace("y = Sub(p, n)", "s = Sub(p, n)\n  y = MatMul(s, W)")
    model = onnx.parser.parse_model(text.replace("<float", "<float[batch,8] s, float", 1))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "W"))
    onnx.save(model, tmp_path / "given.onnx")
    outcome = run(path)
    assert outcome.record.targets[0].status == "verified", findings(outcome)
    built = onnx.load(outcome.folder / "models" / "ort" / "model.onnx")
    operators = {node.op_type for node in built.graph.node}
    assert {"NegPos", "QuantizeLinear"} <= operators


def test_types_of_its_results_are_the_library_s(tmp_path: Path) -> None:
    """ONNX infers none: the graph lacks those of NegPos, and of what reads them."""
    text = GRAPH[: GRAPH.index(" <float[batch,8] n")] + GRAPH[GRAPH.index("\n{") :]
    model = ir.from_proto(onnx.parser.parse_model(text))
    with pytest.raises(UntypedValueError, match=r"'n' \(ai\.onnx\.contrib\.NegPos\)"):
        prepare(model)
    with using(CustomOps((OperatorLibrary(str(library())),))):
        typed = prepare(model)
    assert {
        value.name: value.dtype for node in typed.graph for value in node.outputs
    } == dict.fromkeys(("n", "p", "y"), ir.DataType.FLOAT)


def test_types_of_onnxruntime_s_own_operators_are_known() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float16[n,8] x) => (float16[n,8] y) { q = com.microsoft.QuickGelu(x)
      y = Add(q, q) }"""
    typed = prepare(ir.from_proto(onnx.parser.parse_model(text)))
    assert [node.outputs[0].dtype for node in typed.graph] == [ir.DataType.FLOAT16] * 2


def test_an_undeclared_operator_is_named_with_the_way_to_declare_it(tmp_path: Path) -> None:
    outcome = run(recipe(tmp_path))
    assert (outcome.record.status, outcome.record.exit_code) == ("failed", 1)
    finding = findings(outcome)["V103"]
    assert "ai.onnx.contrib.NegPos" in finding.message
    assert "custom_ops: [path/to/library.so]" in str(finding.remedy)


def test_a_library_that_does_not_load_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libops.so").write_text("not a library")
    path = recipe(tmp_path, custom_ops=["libops.so"])
    outcome = run(path)
    assert (outcome.record.status, outcome.record.exit_code) == ("broken", 3)
    finding = findings(outcome)["E322"]
    assert finding.remedy is not None
    assert finding.remedy.change == {}
    assert "libops.so" in finding.message
    assert "onnxruntime cannot load it" in finding.message


def test_a_library_that_a_package_lacks_is_refused_with_those_it_has() -> None:
    missing = OperatorLibrary("*/libother.so", "onnxruntime-extensions")
    with using(CustomOps((missing,))), pytest.raises(StageFailedError, match="_extensions_pydll"):
        library_files()
    absent = OperatorLibrary("lib.so", "convkit-tests-no-such-package")
    with using(CustomOps((absent,))), pytest.raises(StageFailedError, match="is not installed"):
        library_files()


def test_the_content_of_a_library_is_part_of_every_key(tmp_path: Path) -> None:
    (tmp_path / "libops.so").write_text("one")
    path = recipe(tmp_path, custom_ops=["libops.so"])

    def keys() -> dict[str, str]:
        loaded = load_recipe(path)
        stages = plan_stages(loaded.recipe)
        home = Home.find(tmp_path / "home")
        facts = gather(loaded, stages, home, "host", lambda _: None).facts
        needs = dict.fromkeys((stage.id for stage in stages), "")
        found = {}
        for stage in stages:
            parts = ingredients(stage, loaded.recipe, facts, needs)
            assert parts is not None
            found[stage.id] = stage_key(parts)
        return found

    before = keys()
    assert keys() == before
    (tmp_path / "libops.so").write_text("another")
    after = keys()
    assert all(before[stage] != after[stage] for stage in before)


def test_malformed_declarations_are_refused(tmp_path: Path) -> None:
    (tmp_path / "libops.so").write_text("")
    for entry, message in {
        "ops.txt": r"custom_ops.*ops\.txt.*shared library",
        "absent.so": r"found no file 'absent\.so'",
        "ops.py:absent": "does not define 'absent'",
    }.items():
        path = recipe(tmp_path, custom_ops=[entry])
        with pytest.raises(RecipeError, match=message):
            load_recipe(path)
    library, translation = {"library": "libops.so"}, {"translation": "ops.py:symbolic"}
    for entry, message in (
        (library | translation, "either library or translation"),
        (library | {"runtime": "coreml"}, "'coreml'; write a runtime with libraries: onnxruntime"),
        (translation | {"runtime": "tensorrt"}, "runtime goes with library"),
    ):
        path = recipe(tmp_path, custom_ops=[entry])
        with pytest.raises(RecipeError, match=message):
            load_recipe(path)


def test_benchmarks_and_fleets_get_the_libraries(tmp_path: Path) -> None:
    (tmp_path / "libops.so").write_text("")
    path = recipe(tmp_path, custom_ops=["libops.so", "ops.py:symbolic"])
    loaded, home = load_recipe(path), Home.find(tmp_path / "home")
    declared = CustomOps((OperatorLibrary(str(tmp_path / "libops.so")),))
    target = target_envelope(loaded, home, "ort", tmp_path, tmp_path, tmp_path, (), "", 1)
    original = original_envelope(loaded, home, tmp_path, (), "", 1, {})
    assert target.custom_ops == original.custom_ops == declared
    assert {"libops.so", "ops.py"} <= bundle_of(loaded).files.keys()


def test_a_plugin_is_part_of_keys_benchmarks_and_fleets(tmp_path: Path) -> None:
    (tmp_path / "libplugin.so").write_text("")
    plugin = {"library": "libplugin.so", "runtime": "tensorrt"}
    path = recipe(tmp_path, custom_ops=[plugin], targets={"trt": {"runtime": "tensorrt"}})
    loaded, home = load_recipe(path), Home.find(tmp_path / "home")
    declared = CustomOps((OperatorLibrary(str(tmp_path / "libplugin.so"), runtime="tensorrt"),))
    target = target_envelope(loaded, home, "trt", tmp_path, tmp_path, tmp_path, (), "", 1)
    assert target.custom_ops == declared
    stages = plan_stages(loaded.recipe)
    original = [stage for stage in stages if stage.kind == "reference"]  # TensorRT is not here
    facts = gather(loaded, original, home, "host", lambda _: None).facts
    parts = ingredients(original[0], loaded.recipe, facts, {})
    assert parts is not None
    assert parts["custom_ops.libraries.0.runtime"] == "tensorrt"
    assert "libplugin.so" in bundle_of(loaded).files


def test_parts_have_the_custom_operators_of_the_whole() -> None:
    content = {
        "schema": 1,
        "name": "whole",
        "custom_ops": ["libops.so"],
        "parts": {"one": {"model": {"onnx": "one.onnx"}}},
    }
    assert part_content(content, "one")["custom_ops"] == ["libops.so"]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("Fatal error: my-lib:Scale(-1) is not a registered function/op", True),
        ("Fatal error: com.microsoft:Later(-1) is not a registered function/op", False),
        ("Protobuf parsing failed", False),
    ],
)
def test_only_operators_of_custom_domains_are_to_be_declared(message: str, *, named: bool) -> None:
    assert (unknown_operator(message) is not None) == named
    assert ("custom_ops" in with_remedy(message)) == named


def test_the_package_of_a_library_is_installed_where_models_run(tmp_path: Path) -> None:
    library = {"package": "onnxruntime-extensions", "library": "*/_extensions_pydll*"}
    path = recipe(tmp_path, custom_ops=[library], tools={"onnxruntime-extensions": "==0.15.*"})
    for stage in plan_stages(load_recipe(path).recipe):
        assert "onnxruntime-extensions==0.15.*" in stage.environment.requirements, stage.id


@pytest.mark.thorough
def test_a_draft_declares_the_package_of_a_file_s_operators(tmp_path: Path) -> None:
    recipe(tmp_path)
    text = draft(
        Drafting(str(tmp_path / "given.onnx"), tmp_path / "drafted.yaml"),
        Home(tmp_path / "home"),
        lambda _: None,
        toolchain="host",
    )
    written = yaml.safe_load(text)
    assert written["tools"]["onnxruntime-extensions"] == "==0.15.*"
    (entry,) = written["custom_ops"]
    assert entry["package"] == "onnxruntime-extensions"
    # Only a run with the library tells that any batch will do.
    assert written["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 8]}]
    parse_recipe(text, tmp_path / "drafted.yaml")


def test_operators_of_a_known_package_are_custom_in_every_domain() -> None:
    assert is_custom("com.microsoft.extensions")
    assert not is_custom("com.microsoft")
    assert known_libraries({"", "com.acme"}) == ()
    (found,) = known_libraries({"", "ai.onnx.contrib", "com.microsoft.extensions"})
    assert found.package == "onnxruntime-extensions"
