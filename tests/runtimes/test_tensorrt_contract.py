"""Every TensorRT name, enum member and keyword in use exists in TensorRT 10 and 11, by the real
bindings of both.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tensorrt_stubs import bindings
from tensorrt_stubs.bindings import RELEASES, Release, enum_values, names, stubs
from tensorrt_stubs.check import Finding, check, unchecked

import convkit

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        sys.platform != "linux",
        reason="TensorRT's bindings are loaded with libraries made for Linux",
    ),
]

CONVKIT = Path(convkit.__file__).parent
SAMPLE = Path(__file__).parents[1] / "tensorrt_stubs" / "sample.py"


def uses_tensorrt() -> Iterator[Path]:
    """Give convkit's modules of the TensorRT runtime, and those that import TensorRT elsewhere."""
    for path in sorted(CONVKIT.rglob("*.py")):
        imports = re.search(
            r"^\s*(import tensorrt|from tensorrt\b)", path.read_text(), re.MULTILINE
        )
        if imports or path.parent == CONVKIT / "worker" / "runtimes" / "tensorrt":
            yield path


MODULES = list(uses_tensorrt())


@pytest.fixture(params=RELEASES.values(), ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    return request.param


def told(findings: list[Finding]) -> str:
    return "\n".join(map(str, findings))


@pytest.mark.sampled(1)
def test_convkit_uses_what_the_release_has(release: Release) -> None:
    assert {path.name for path in MODULES} >= {"engine.py", "session.py", "timing.py"}
    found = check(release, MODULES)
    assert not found, told(found)


@pytest.mark.thorough
def test_no_use_in_convkit_is_lost_to_any() -> None:
    found = unchecked(MODULES)
    assert not found, f"misspelled here, no check would tell; annotate the value:\n{told(found)}"


def test_sample_uses_what_the_release_has(release: Release) -> None:
    found = check(release, [SAMPLE])
    assert not found, told(found)


def test_stubs_are_sound(release: Release) -> None:
    found = check(release, [stubs(release) / "tensorrt" / "__init__.pyi"])
    assert not found, told(found)


def test_use_that_is_lost_to_any_is_found(tmp_path: Path) -> None:
    source = tmp_path / "lost.py"
    source.write_text(
        "import numpy as np\nfrom typing import Any\ndef first(engine: Any) -> Any:\n    return"
        " np.INT8, engine.get_tensor_name(0)\nimport tensorrt as trt\ndef second(engine:"
        " trt.ICudaEngine) -> object:\n    name = engine.get_tensor_name(0)\n    return"
        " engine.get_tensor_shape(name), lost(name).num_io_tensors\ndef third(runtime: trt.Runtime,"
        " plan: bytes) -> object:\n    engine = runtime.deserialize_cuda_engine(plan)\n    return"
        " engine and engine.num_io_tensors\ndef lost(what: Any) -> Any:\n    return what\n"
    )
    assert [(use.line, use.message) for use in unchecked([source])] == [
        (4, "get_tensor_name may be anything"),
        (8, "num_io_tensors may be anything"),
    ]


@dataclass(frozen=True)
class Mutation:
    """A fault put into the sample: which releases must tell of it, and by what word."""

    old: str
    new: str
    majors: set[int]
    word: str


PARSE = "parser.parse_from_file(str(model))"
BOTH = {10, 11}
MUTATIONS = {
    "misspelled-method": Mutation(
        "builder.build_serialized", "builder.build_serialised", BOTH, "build_serialised_network"
    ),
    "misspelled-property": Mutation(
        "engine.num_io_tensors", "engine.num_io_tensor", BOTH, '"num_io_tensor"'
    ),
    "misspelled-class": Mutation("trt.Runtime(", "trt.RunTime(", BOTH, "RunTime"),
    "misspelled-member": Mutation(
        "MemoryPoolType.WORKSPACE", "MemoryPoolType.WORK_SPACE", BOTH, "WORK_SPACE"
    ),
    "misspelled-setting": Mutation(
        "config.profiling_verbosity =", "config.profile_verbosity =", BOTH, "profile_verbosity"
    ),
    "misspelled-constant": Mutation("trt.float16", "trt.fp16", BOTH, "fp16"),
    "wrong-keyword": Mutation("ignore_mismatch=", "ignore_mismatches=", BOTH, "ignore_mismatches"),
    "wrong-keyword-of-a-run": Mutation(
        "execute_async_v3(stream_handle", "execute_async_v3(stream", BOTH, '"stream"'
    ),
    "wrong-keyword-of-an-overload": Mutation(
        "_cuda_engine(plan)", "_cuda_engine(engine=plan)", BOTH, "cuda_engine"
    ),
    "turned-around-order": Mutation(
        "clear_flag(trt", "set_preview_feature(True, trt", BOTH, '"PreviewFeature"'
    ),
    "missing-argument": Mutation(
        "(cache, ignore_mismatch=False)", "(cache)", BOTH, "ignore_mismatch"
    ),
    "number-for-a-member": Mutation(
        "clear_flag(trt.BuilderFlag.TF32)", "clear_flag(7)", BOTH, '"BuilderFlag"'
    ),
    "member-of-another-enum": Mutation(
        "set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM",
        "set_flag(trt.BuilderFlag.TF32",
        BOTH,
        '"OnnxParserFlag"',
    ),
    "fraction-for-a-size": Mutation(
        "WORKSPACE, workspace)", "WORKSPACE, workspace / 2)", BOTH, '"float"'
    ),
    "behind-a-null": Mutation(
        "(index).desc() for index", "(index).text() for index", BOTH, '"text"'
    ),
    "callback": Mutation("def step_complete(", "def step_completed(", BOTH, "step_completed"),
    "callback-of-a-docstring": Mutation(
        "def notify_shape(", "def notify_shapes(", BOTH, "notify_shapes"
    ),
    "not-constructible": Mutation(
        "builder.create_builder_config()", "trt.IBuilderConfig()", BOTH, "IBuilderConfig"
    ),
    "flag-that-11-removed": Mutation("BuilderFlag.TF32", "BuilderFlag.FP16", {11}, '"FP16"'),
    "method-that-11-removed": Mutation(
        PARSE,
        "parser.parse_with_weight_descriptors(model.read_bytes())",
        {11},
        "parse_with_weight_descriptors",
    ),
    "query-that-11-removed": Mutation(
        PARSE, "parser.supports_model(model.read_bytes())[0]", {11}, '"supports_model"'
    ),
    "property-that-11-removed": Mutation(
        "context.infer_shapes()", "engine.device_memory_size", {11}, "device_memory_size"
    ),
    "setting-that-11-removed": Mutation(
        "config.progress_monitor = progress()", "config.int8_calibrator = None", {11}, "int8"
    ),
    "no-branch": Mutation(
        "    if not tensorrt_11:\n        flags",
        "    if workspace:\n        flags",
        {11},
        "EXPLICIT_BATCH",
    ),
    "branch-turned-around": Mutation(
        "if not tensorrt_11:\n        flags",
        "if tensorrt_11:\n        flags",
        {11},
        "EXPLICIT_BATCH",
    ),
    "only-in-11": Mutation(
        "runtime.engine_host_code_allowed = True",
        "runtime.dla_workspace_allocation_strategy = trt.DLAWorkspaceAllocationStrategy.DEFAULT",
        {10},
        "DLAWorkspaceAllocationStrategy",
    ),
}


@pytest.fixture(scope="module")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str]:
    """What each release's check tells of each fault; all faults are checked at once."""
    folder = tmp_path_factory.mktemp("mutants")
    text = SAMPLE.read_text()
    sources = {}
    for name, mutation in MUTATIONS.items():
        assert mutation.old in text, f"{name}: the sample has no {mutation.old!r}"
        sources[name] = folder / f"{name.replace('-', '_')}.py"
        sources[name].write_text(text.replace(mutation.old, mutation.new))
    found = {release.major: check(release, list(sources.values())) for release in RELEASES.values()}
    return {
        (name, major): told([finding for finding in findings if finding.source == source])
        for major, findings in found.items()
        for name, source in sources.items()
    }


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.sampled(1)
def test_fault_is_told_by_name(name: str, mutants: dict[tuple[str, int], str]) -> None:
    mutation = MUTATIONS[name]
    for major in RELEASES:
        if major in mutation.majors:
            assert mutation.word in mutants[name, major], (
                f"TensorRT {major} told: {mutants[name, major]!r}"
            )
        else:
            assert not mutants[name, major]


BRANCHES = {
    "else": "if TENSORRT_11:\n        pass\n    else:\n        {old}",
    "not": "if not TENSORRT_11:\n        {old}",
    "and": "if not tensorrt_11 and text:\n        {old}",
    "or": "if tensorrt_11 or not text:\n        return\n    else:\n        {old}",
    "return": "if tensorrt_11:\n        return\n    {old}",
    "field": "if release.tensorrt_11:\n        return\n    {old}",
}


@pytest.mark.thorough
def test_branch_is_read_only_for_its_release(tmp_path: Path) -> None:
    old = "NetworkDefinitionCreationFlag.EXPLICIT_BATCH"
    sources = []
    for name, branch in BRANCHES.items():
        text = (
            "from typing import NamedTuple\nimport tensorrt as trt\n"
            'TENSORRT_11: bool = int(trt.__version__.partition(".")[0]) >= 11\n'
            "class Release(NamedTuple):\n    tensorrt_11: bool\n"
            f"def show(release: Release, tensorrt_11: bool, text: str) -> None:\n    {branch}\n"
        )
        for kind, flag in (("right", old), ("wrong", f"{old}ES")):
            sources.append(tmp_path / f"{name}_{kind}.py")
            sources[-1].write_text(text.format(old=f"print(trt.{flag})"))
    found = check(RELEASES[10], sources)
    assert {finding.source.stem for finding in found} == {f"{name}_wrong" for name in BRANCHES}
    assert all("EXPLICIT_BATCHES" in finding.message for finding in found)
    assert not check(RELEASES[11], sources)


@pytest.mark.thorough
def test_code_that_no_release_reads_is_told(tmp_path: Path) -> None:
    source = tmp_path / "dead.py"
    source.write_text(
        "import tensorrt as trt\ndef flag() -> object:\n    return 0\n    return"
        " trt.BuilderFlag.FP17\n"
    )
    for release in RELEASES.values():
        assert [finding.code for finding in check(release, [source])] == ["unreachable"]


def test_missing_compiler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="needs a C compiler"):
        bindings.compile_library(tmp_path / "libnvinfer.so.11", bindings.SYMBOLS)


OWN_MUTATIONS = (
    ("engine.py", "builder.build_serialized_network(", "builder.build_serialised_network(", BOTH),
    ("engine.py", "trt.BuilderFlag.REFIT", "trt.BuilderFlag.FP16", {11}),
    (
        "engine.py",
        "parser.parse_from_file(str(graph))",
        "parser.supports_model(graph.read_bytes())[0]",
        {11},
    ),
    (
        "engine.py",
        "    if TENSORRT_11:\n        return 0",
        "    if graphless:\n        return 0",
        BOTH,
    ),
    (
        "session.py",
        "execute_async_v3(memory.stream)",
        "execute_async_v3(queue=memory.stream)",
        BOTH,
    ),
    ("session.py", "self._context.set_tensor_address(", "self._context.set_tensor_pointer(", BOTH),
    ("session.py", "def notify_shape(", "def notify_shapes(", BOTH),
    ("timing.py", "ignore_mismatch=False", "ignore_mismatches=False", BOTH),
)


@pytest.fixture(scope="module")
def told_of(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, int]]:
    """Put each fault into its own copy, and return which releases tell of which copy: by name
    and major.
    """
    folder = tmp_path_factory.mktemp("own")
    mutants = []
    for number, (module, old, new, _) in enumerate(OWN_MUTATIONS):
        (source,) = [path for path in MODULES if path.name == module and "tensorrt" in path.parts]
        text = source.read_text()
        assert old in text
        mutants.append(folder / f"mutant_{number}.py")
        mutants[-1].write_text(text.replace(old, new))
    return {
        (Path(finding.source).name, major)
        for major, release in RELEASES.items()
        for finding in check(release, mutants)
    }


@pytest.mark.parametrize(
    "number", range(len(OWN_MUTATIONS)), ids=[f"{m[0]}-{m[2][:30]}" for m in OWN_MUTATIONS]
)
@pytest.mark.sampled(1)
def test_a_fault_in_convkits_own_module_is_told(number: int, told_of: set[tuple[str, int]]) -> None:
    majors = OWN_MUTATIONS[number][3]
    assert {major for name, major in told_of if name == f"mutant_{number}.py"} == majors


def test_releases_differ_as_they_are_known_to() -> None:
    old, new = names(RELEASES[10]), names(RELEASES[11])
    removed = {
        *(
            f"BuilderFlag.{flag}"
            for flag in ("FP16", "BF16", "INT8", "FP8", "FP4", "INT4", "WEIGHTLESS")
        ),
        *(f"BuilderFlag.{flag}_PRECISION_CONSTRAINTS" for flag in ("OBEY", "PREFER")),
        "NetworkDefinitionCreationFlag.EXPLICIT_BATCH",
        "IBuilderConfig.int8_calibrator",
        "IBuilderConfig.set_quantization_flag",
        "IBuilderConfig.algorithm_selector",
        "ICudaEngine.device_memory_size",
        "ICudaEngine.has_implicit_batch_dimension",
        "OnnxParser.supports_model",
        "OnnxParser.parse_with_weight_descriptors",
    }
    kept = {
        "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
        "BuilderFlag.TF32",
        "BuilderFlag.VERSION_COMPATIBLE",
        "Builder.build_serialized_network",
        "IBuilderConfig.create_timing_cache",
        "ICudaEngine.num_io_tensors",
        *(
            f"ICudaEngine.get_tensor_{what}"
            for what in ("name", "mode", "dtype", "shape", "profile_shape")
        ),
        *(
            f"IExecutionContext.{call}"
            for call in ("set_input_shape", "set_tensor_address", "execute_async_v3")
        ),
        "IOutputAllocator.notify_shape",
        "EngineInspector.get_engine_information",
        "bool",
    }
    assert removed <= old
    assert not removed & new
    assert kept <= old & new


def test_a_flag_may_be_another_bit_in_another_release() -> None:
    flag = "NetworkDefinitionCreationFlag.STRONGLY_TYPED"
    assert {major: enum_values(release)[flag] for major, release in RELEASES.items()} == {
        10: 1,
        11: 0,
    }
    assert enum_values(RELEASES[11])["NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS"] == 1
