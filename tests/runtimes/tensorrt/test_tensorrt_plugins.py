"""Plugin libraries of TensorRT, declared as custom operators. The library itself is mocked."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import mocked_tensorrt
import pytest
from mocked_device_memory import HostMemory
from mocked_tensorrt import Faults
from small_graphs import graph, save
from stage_requests import build_request
from test_tensorrt_stages import name_nodes

from convkit.protocol.json_codec import encode
from convkit.protocol.messages import CustomOps, OperatorLibrary
from convkit.runtimes.tensorrt import bench, engine
from convkit.runtimes.tensorrt import build as tensorrt_build
from convkit.runtimes.tensorrt import session as engine_session
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.runtimes.tensorrt.parser_support import check_parser_support
from convkit.runtimes.tensorrt.session import EngineSession
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.runtime_interface.distinct_operators import Operator, Operators
from convkit.worker.runtime_interface.registered_operators import library_files, using
from convkit.worker.runtime_interface.sessions import ModelRefusedError


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "libplugin.so"
    path.write_text("a library")
    return path


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, plugin: Path) -> Faults:
    """Put a mock in TensorRT's place whose graphs and engines need the plugin."""
    made = Faults()
    made.needs_plugin = str(plugin)
    monkeypatch.setitem(sys.modules, "tensorrt", mocked_tensorrt.mocked_tensorrt(made))
    monkeypatch.setattr(engine_session, "open_memory", HostMemory)
    monkeypatch.setattr(engine, "_LOADED", set())
    return made


def declared(path: Path) -> CustomOps:
    return CustomOps((OperatorLibrary(str(path), runtime="tensorrt"),))


def build(folder: Path) -> tuple[Any, list[Any]]:
    exported = folder / "exported"
    if not exported.exists():
        name_nodes(save(exported, graph()))
    output = folder / "built"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    request = build_request(exported, device="cuda", options=EngineOptions())
    return tensorrt_build.run(request, Context(output))


def test_mocked_tensorrt_builds_and_opens_an_engine_with_its_plugin(
    tmp_path: Path, plugin: Path, faults: Faults
) -> None:
    with using(declared(plugin)):
        _, findings = build(tmp_path)
        assert [finding.code for finding in findings] == ["C302"]
        # Again in the same process: the registry refuses a plugin that it has.
        EngineSession(tmp_path / "built" / "model.engine", EngineOptions())


def test_mocked_tensorrt_opens_no_engine_before_its_plugin_in_a_new_process(
    tmp_path: Path, plugin: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    with using(declared(plugin)):
        build(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorrt", mocked_tensorrt.mocked_tensorrt(faults))
    monkeypatch.setattr(engine, "_LOADED", set())
    file = tmp_path / "built" / "model.engine"
    with pytest.raises(ModelRefusedError, match="no creator of the plugin"):
        EngineSession(file, EngineOptions())
    with using(declared(plugin)):
        request = _Timed(str(tmp_path / "built"))
        assert bench.open_built(request).contract().inputs  # type: ignore[arg-type]


class _Timed:
    """What `open_built` reads of a request."""

    options = EngineOptions()

    def __init__(self, built: str) -> None:
        self.built = built


def test_mocked_tensorrt_refuses_the_node_without_the_plugin(
    tmp_path: Path, faults: Faults
) -> None:
    _, findings = build(tmp_path)
    (refused,) = [finding for finding in findings if finding.code == "E213"]
    assert refused.remedy is not None
    assert "runtime: tensorrt" in refused.remedy.text


def test_mocked_tensorrt_s_refusal_of_a_library_is_e322(
    tmp_path: Path, plugin: Path, faults: Faults
) -> None:
    plugin.write_text("")
    with (
        using(declared(plugin)),
        pytest.raises(StageFailedError, match="not a plugin library") as error,
    ):
        build(tmp_path)
    (finding,) = error.value.findings
    assert (finding.code, finding.evidence["entry"]) == ("E322", str(plugin))


def test_a_plugin_is_never_given_to_onnxruntime(plugin: Path) -> None:
    with using(declared(plugin)):
        assert library_files() == []
        assert [file for file, _ in library_files("tensorrt")] == [plugin]
    with using(CustomOps((OperatorLibrary(str(plugin)),))):
        assert library_files("tensorrt") == []
    assert "tensorrt" in json.dumps(encode(declared(plugin)))  # part of every stage's key


def operators(name: str) -> Operators:
    used = Operator(name, "float32 -> float32", 1, "/net/odd", "", "", None)
    return Operators("", 8, {"": 17}, (used,))


def test_without_a_device_a_declared_plugin_may_have_the_operators_of_custom_domains(
    plugin: Path,
) -> None:
    (missing,) = check_parser_support(operators("mylib.Scale"))
    assert missing.code == "T105"
    assert missing.remedy is not None
    assert "runtime: tensorrt" in missing.remedy.text
    with using(declared(plugin)):
        assert check_parser_support(operators("mylib.Scale")) == []
        (unknown,) = check_parser_support(operators("Multinomial"))
    assert unknown.code == "T105"
    assert unknown.remedy is not None
    assert "runtime: tensorrt" not in unknown.remedy.text
