import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from small_recipe import recipe

from convkit.host.recipe.keys.recipe import Export
from convkit.host.recipe.keys.target_models import target_models
from convkit.host.toolchain.versions import stage_requirements
from convkit.host.toolchain.versions.default_releases import (
    DEFAULT_PYTHON,
    DEFAULTS_BY_EXPORTER,
    OLDEST_PYTHON,
    tool_defaults,
)
from convkit.host.toolchain.versions.incompatible_pairs import KNOWN_PAIRS, broken_pairs
from convkit.host.toolchain.versions.stage_requirements import (
    NEEDS,
    EnvironmentSpec,
    diagnosis_spec,
    environment_spec,
    inspection_spec,
    package_name,
)
from convkit.protocol.messages import StageKind
from convkit.protocol.runtimes.runtime_registry import runtimes

ONNX = {"onnx": "model.onnx"}
FACTORY = {"factory": "net.py:build"}


def names(spec: EnvironmentSpec) -> list[str]:
    return [package_name(line) for line in spec.requirements]


def specifier(spec: EnvironmentSpec, name: str) -> str:
    return next(
        str(Requirement(line).specifier) for line in spec.requirements if package_name(line) == name
    )


def target(**keys: object) -> dict[str, object]:
    return {"ort": {"runtime": "onnxruntime"} | keys}


def test_rows_and_metrics_bring_their_packages() -> None:
    rows = {"data": "rows.parquet", "inputs": {"ids": "ids"}, "labels": "said"}
    text = {"text": {"symbols": ["-", "a", "b", "c"]}}
    output = {"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 4]}
    made = recipe(
        evaluate=rows | {"metric": "wer", "max_rise": 0.1}, outputs=[output | {"postprocess": text}]
    )
    verify = names(environment_spec(made, "verify", "ort", None))
    assert verify == ["jiwer", "numpy", "onnxruntime", "pyarrow", "scikit-learn"]
    reference = names(environment_spec(made, "reference", None, None))
    assert ("pyarrow" in reference, "jiwer" in reference) == (True, False)
    written = rows | {"metric": "wer", "max_rise": 0.1, "generate": 4}
    made = recipe(evaluate=written, outputs=[output])
    assert {"jiwer", "tokenizers"} <= set(names(environment_spec(made, "verify", "ort", None)))
    plain = recipe(evaluate=rows | {"data": "a.csv", "metric": "accuracy", "max_drop": 0.1})
    assert "pyarrow" not in names(environment_spec(plain, "reference", None, None))


def test_each_stage_takes_what_it_needs_and_no_more() -> None:
    plain = recipe()
    torch = ["numpy", "onnx", "onnx-ir", "onnxscript", "safetensors", "torch", "transformers"]
    assert names(environment_spec(plain, "export", None, None)) == torch
    assert names(environment_spec(plain, "reference", None, None)) == torch
    assert names(environment_spec(plain, "build", "ort", None)) == ["numpy", "onnxruntime"]
    assert names(environment_spec(plain, "verify", "ort", None)) == ["numpy", "onnxruntime"]
    assert names(inspection_spec(None)) == ["numpy", "onnx", "onnx-ir"]


def test_preprocessing_takes_what_the_originals_processor_imports() -> None:
    image = {
        "name": "image",
        "dtype": "float32",
        "shape": ["batch", 3, 8, 8],
        "preprocess": {"processor": {"file": "p.json"}, "image": {"scale": "1/255"}},
    }
    output = {"name": "y", "dtype": "float32", "shape": ["batch", "sequence"]}
    given = recipe(model=FACTORY, inputs=[image], outputs=[output])
    export = environment_spec(given, "export", None, None)
    assert export == environment_spec(given, "reference", None, None)
    assert {"pillow", "transformers"} <= set(names(export))
    adopted = recipe(model=ONNX, inputs=[image], outputs=[output])
    assert {"pillow", "transformers"} <= set(
        names(environment_spec(adopted, "reference", None, None))
    )
    assert "pillow" not in names(environment_spec(adopted, "export", None, None))
    own = image | {"preprocess": {"processor": {"call": "p.py:f"}, "image": {"scale": "1/255"}}}
    without = recipe(model=FACTORY, inputs=[own], outputs=[output])
    assert "transformers" not in names(environment_spec(without, "reference", None, None))


def test_optimum_takes_its_own_tools_and_its_own_choice_of_transformers() -> None:
    spec = environment_spec(recipe(export={"exporter": "optimum"}), "export", None, None)
    assert {"optimum-onnx", "onnxruntime", "transformers", "torch"} <= set(names(spec))
    assert specifier(spec, "transformers") == ""
    pinned = environment_spec(
        recipe(export={"exporter": "optimum"}, tools={"transformers": "==4.57.*"}),
        "export",
        None,
        None,
    )
    assert specifier(pinned, "transformers") == "==4.57.*"


@pytest.mark.parametrize("exporter", ["torch", "torchscript", "optimum"])
def test_export_and_reference_share_one_environment(exporter: str) -> None:
    """So the model is built by the same torch and transformers on both sides."""
    one = recipe(export={"exporter": exporter}, tools={"torch": "==2.12.*"})
    assert environment_spec(one, "export", None, None) == environment_spec(
        one, "reference", None, None
    )


def test_two_recipes_that_ask_for_the_same_share_one_environment_however_they_write_it() -> None:
    one = recipe(name="one", tools={"torch": ">=2.12,<2.14", "python": DEFAULT_PYTHON})
    other = recipe(
        name="other", tools={"Torch": "<2.14, >=2.12"}, model={"config": {"architecture": "gpt2"}}
    )
    specs = {environment_spec(each, "export", None, None) for each in (one, other)}
    assert len(specs) == (1 if stage_requirements.default_python() == DEFAULT_PYTHON else 2)


def test_an_onnx_source_needs_no_torch() -> None:
    given = recipe(model=ONNX)
    assert names(environment_spec(given, "export", None, None)) == ["numpy", "onnx", "onnx-ir"]
    assert names(environment_spec(given, "reference", None, None)) == [
        "numpy",
        "onnx",
        "onnxruntime",
    ]


def test_transformers_come_with_its_sources_or_when_named() -> None:
    assert "transformers" not in names(
        environment_spec(recipe(model=FACTORY), "export", None, None)
    )
    named = recipe(model=FACTORY, tools={"transformers": "==5.*"})
    assert specifier(environment_spec(named, "reference", None, None), "transformers") == "==5.*"
    assert "transformers" not in names(
        environment_spec(recipe(model=ONNX, tools={"transformers": "==5.*"}), "export", None, None)
    )


def test_packages_that_no_stage_knows_go_where_the_models_code_runs() -> None:
    given = recipe(
        model=FACTORY, tools={"timm": ">=1", "einops": "==0.8.*", "onnxruntime": "==1.30.*"}
    )
    for stage in ("export", "reference"):
        spec = environment_spec(given, stage, None, None)
        assert {"timm", "einops"} <= set(names(spec))
        assert "onnxruntime" not in names(spec)
    for stage in ("build", "verify"):
        assert names(environment_spec(given, stage, "ort", None)) == ["numpy", "onnxruntime"]


def test_a_targets_tools_hold_for_its_stages_and_never_for_the_reference() -> None:
    given = recipe(
        tools={"numpy": "<3", "torch": "==2.13.*"},
        targets=target(tools={"numpy": "<2", "onnxruntime": "==1.20.*", "python": "3.12"})
        | {
            "own": {
                "runtime": "onnxruntime",
                "tools": {"torch": "==2.12.*"},
                "export": {"exporter": "torchscript"},
            }
        },
    )
    build = environment_spec(given, "build", "ort", None)
    assert (specifier(build, "numpy"), specifier(build, "onnxruntime"), build.python) == (
        "<2",
        "==1.20.*",
        "3.12",
    )
    assert build.origin("numpy") == "targets.ort.tools.numpy"
    assert build.origin("python") == "targets.ort.tools.python"
    reference = environment_spec(given, "reference", None, None)
    assert (specifier(reference, "numpy"), specifier(reference, "torch")) == ("<3", "==2.13.*")
    # A target without its own export takes the recipe's.
    assert environment_spec(given, "export", "ort", None) == reference
    own = environment_spec(given, "export", "own", None)
    assert (specifier(own, "torch"), own.origin("torch")) == ("==2.12.*", "targets.own.tools.torch")


def test_a_verification_takes_the_release_it_is_for() -> None:
    given = recipe(targets=target(versions=["==1.21.*"], tools={"onnxruntime": "==1.31.*"}))
    assert specifier(environment_spec(given, "build", "ort", None), "onnxruntime") == "==1.31.*"
    verify = environment_spec(given, "verify", "ort", "==1.21.*")
    assert specifier(verify, "onnxruntime") == "==1.21.*"
    assert verify.origin("onnxruntime") == "targets.ort.versions"


def test_a_cuda_target_takes_the_package_built_for_it() -> None:
    given = recipe(
        tools={"onnxruntime": "==1.30.*"}, targets=target(device="cuda", versions=["==1.21.*"])
    )
    build = environment_spec(given, "build", "ort", None)
    assert (names(build), specifier(build, "onnxruntime-gpu")) == (
        ["numpy", "onnxruntime-gpu"],
        "==1.30.*",
    )
    assert build.origin("onnxruntime-gpu") == "tools.onnxruntime"
    assert (
        specifier(environment_spec(given, "verify", "ort", "==1.21.*"), "onnxruntime-gpu")
        == "==1.21.*"
    )
    named = recipe(
        tools={"onnxruntime-gpu[cuda]": "==1.29.*"},
        targets=target(device="cuda", versions=["==1.21.*"]),
    )
    assert (
        "onnxruntime-gpu[cuda]==1.29.*"
        in environment_spec(named, "build", "ort", None).requirements
    )
    assert (
        "onnxruntime-gpu[cuda]==1.21.*"
        in environment_spec(named, "verify", "ort", "==1.21.*").requirements
    )


def test_requirements_are_sorted_pep_508_lines_and_the_spec_is_hashable() -> None:
    spec = environment_spec(recipe(tools={"Zebra_Tool[all]": "~=1.0"}), "export", None, None)
    assert list(names(spec)) == sorted(names(spec))
    for line in spec.requirements:
        Requirement(line)
    assert "zebra-tool[all]~=1.0" in spec.requirements
    assert (
        len({spec, EnvironmentSpec(spec.python, spec.requirements)}) == 1
    )  # origins are for messages only


def test_python_comes_from_the_recipe_else_from_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert environment_spec(recipe(tools={"python": "3.13"}), "build", "ort", None).python == "3.13"
    monkeypatch.setattr(
        stage_requirements, "sys", type("Sys", (), {"version_info": _Version(3, 13)})
    )
    for found, expected in (
        (None, "3.13"),
        ("/usr/bin/python3.11", "3.11"),
        ("/home/me/.pyenv/shims/python3.11", "3.13"),
    ):
        stage_requirements.default_python.cache_clear()
        monkeypatch.setattr(stage_requirements.shutil, "which", lambda _name, found=found: found)
        assert stage_requirements.default_python() == expected
    stage_requirements.default_python.cache_clear()


class _Version:
    def __init__(self, major: int, minor: int) -> None:
        self.major, self.minor = major, minor


def test_every_exporter_and_runtime_has_its_packages_and_every_package_a_default() -> None:
    exporters = Export.model_fields["exporter"].annotation.__args__
    assert {key.removeprefix("export ") for key in NEEDS if key.startswith("export ")} == {
        *exporters,
        "onnx",
    }
    needed = {name for names in NEEDS.values() for name in names}
    for runtime, model in target_models().items():
        required = {"file": "theirs.tflite"} if model.model_fields.get("file") else {}
        written = model.model_validate({"runtime": runtime, **required})
        for stage in ("precision", "build", "verify"):
            for stand_in in (False, True):
                needed |= set(written.packages(stage, stand_in=stand_in))
    defaults = tool_defaults()
    assert needed <= set(defaults)
    for default in [
        *defaults.values(),
        *(row for rows in DEFAULTS_BY_EXPORTER.values() for row in rows.values()),
    ]:
        SpecifierSet(default.specifier)
        assert len(default.why) > 20
    assert tuple(map(int, DEFAULT_PYTHON.split("."))) >= OLDEST_PYTHON


def test_known_pairs_are_found_by_exact_versions() -> None:
    assert broken_pairs({"onnxruntime": "1.18.1", "numpy": "2.0.0"})
    assert broken_pairs({"onnxruntime": "1.19.0", "numpy": "2.0.0"}) == ()
    assert broken_pairs({"onnxruntime": "1.18.1", "numpy": "1.26.4"}) == ()
    assert broken_pairs({"onnxruntime": "1.18.1"}) == ()
    assert broken_pairs({"torch": "2.2.2+cpu", "numpy": "2.1.0"})
    converting = {"coremltools": "9.0", "numpy": "2.4.1"}
    assert broken_pairs(converting), "environments are built without the pair"
    assert broken_pairs(converting, for_all=True) == (), (
        "and one that is there is not refused for it"
    )
    assert broken_pairs(converting | {"numpy": "2.3.5"}) == ()
    for pair in KNOWN_PAIRS:
        SpecifierSet(pair.affected)
        SpecifierSet(pair.needs)
        assert len(pair.source) > 20
        assert broken_pairs({pair.package: "0.1", pair.partner: str(Version("99"))})


@pytest.mark.parametrize("stage", ["build", "verify"])
def test_a_low_precision_needs_the_graph_s_libraries_and_float32_does_not(stage: StageKind) -> None:
    low = recipe(
        targets=target(precision="float16", versions=["==1.21.*"]), tools={"onnx": "==1.20.*"}
    )
    spec = environment_spec(low, stage, "ort", "==1.21.*" if stage == "verify" else None)
    assert names(spec) == ["numpy", "onnx", "onnx-ir", "onnxruntime"]
    assert specifier(spec, "onnx") == "==1.20.*"
    assert stage == "build" or specifier(spec, "onnxruntime") == "==1.21.*"
    on_cuda = environment_spec(
        recipe(targets=target(precision="bfloat16", device="cuda")), stage, "ort", None
    )
    assert names(on_cuda) == ["numpy", "onnx", "onnx-ir", "onnxruntime-gpu"]


# What a runtime needs of another one's: onnxruntime runs graphs where the runtime itself cannot,
# and an absent TensorRT's parser is that of TensorRT-RTX.
LENT = {"tensorrt": {"tensorrt-rtx-cu12-libs", "tensorrt-rtx-cu12-bindings"}}


@pytest.mark.parametrize("name", sorted(set(runtimes()) - {"given"}))
def test_a_recipe_fetches_nothing_of_runtimes_that_it_does_not_use(name: str) -> None:
    made = recipe(model=FACTORY, targets={"own": {"runtime": name}})
    stages: tuple[StageKind, ...] = ("export", "reference", "precision", "build", "verify")
    fetched = {
        package
        for stage in stages
        for stand_in in (False, True)
        for package in names(environment_spec(made, stage, "own", None, stand_in=stand_in))
    }
    fetched |= set(names(diagnosis_spec(made, {}, "own")))
    own = runtimes()[name]
    assert fetched & set(own.tools), "its own packages are fetched"
    foreign = {tool for row in runtimes().values() for tool in row.tools} - set(own.tools)
    assert fetched & foreign <= {"onnxruntime"} | LENT.get(name, set())
