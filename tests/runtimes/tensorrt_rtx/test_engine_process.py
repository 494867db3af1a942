"""Engines built in processes of their own: the same bytes each time, and a crash is a finding."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from small_graphs import save
from stage_requests import build_request

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.runtimes.tensorrt_rtx import build
from convkit.runtimes.tensorrt_rtx.engine_process import Wish, build_apart
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.worker.job_context import Context

pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed")

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y)
 { a = Relu(x) b = Exp(a) y = Neg(b) }"""
CONTRACT = Contract(
    (TensorSpec("x", "float32", (2, 4)),), (TensorSpec("y", "float32", (2, 4)),), ()
)
# In the library's place: the process ends as in a crash if the graph has an Exp.
CRASHING = """import json, os, signal, sys
_, wish = json.load(open(sys.argv[1] + "/wish.json"))
if b"Exp" in open(wish["graph"], "rb").read():
    os.kill(os.getpid(), signal.SIGSEGV)
sys.path.remove(os.path.dirname(__file__))
del sys.modules[__name__]
import tensorrt_rtx_bindings
"""
# In the library's place: says where the process's memory lies, and on how many processors it runs.
TELLING = """import os
lines = open("/proc/self/maps").read().splitlines()
where = {line.split()[-1]: line.split("-")[0] for line in lines}
raise SystemExit(f"{where['[heap]']} {where['[stack]']} {len(os.sched_getaffinity(0))}")
"""


def graph(folder: Path) -> Path:
    file = save(folder, TEXT, carries=CONTRACT)
    model = onnx.load(file)
    for number, node in enumerate(model.graph.node):
        node.name = f"/net/{node.op_type}_{number}"
    onnx.save(model, file)
    return file


def test_engines_are_the_same_wherever_the_graph_lies(tmp_path: Path) -> None:
    one, two = (
        build_apart(Wish(str(graph(tmp_path / name)), [], ["SM89"], tf32=False))
        for name in ("here", "in a folder with a longer name")
    )
    assert (one.errors, two.errors) == ([], [])
    assert one.plan is not None
    assert one.plan == two.plan


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such switch")
def test_each_builder_has_its_memory_at_the_same_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines of large graphs are ordered by addresses; small ones are the same without this."""
    asking = "import ctypes; raise SystemExit(ctypes.CDLL(None).personality(0x0040000) == -1)"
    if subprocess.run([sys.executable, "-c", asking], check=False).returncode:
        pytest.skip("this container forbids it")
    (tmp_path / "tensorrt_rtx_bindings.py").write_text(TELLING)
    monkeypatch.syspath_prepend(str(tmp_path))
    wish = Wish(str(tmp_path / "model.onnx"), [], [], tf32=False)
    (one, how), (two, _) = (build_apart(wish).errors for _ in range(2))
    assert one.split()[-1] == "1"
    assert how == "the builder's process ended (exit code 1)"
    assert one == two


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, bindings: str) -> Finding:
    """Build with other bindings in the builder's process; return what that found."""
    file = graph(folder / "exported")
    (folder / "broken").mkdir()
    (folder / "broken" / "tensorrt_rtx_bindings.py").write_text(bindings)
    monkeypatch.syspath_prepend(str(folder / "broken"))
    options = RtxOptions(compute_capabilities=("sm89",))
    asked = build_request(
        file.parent, contract=CONTRACT, device="cpu", options=options, stand_in=True
    )
    (folder / "built").mkdir()
    _, findings = build.run(asked, Context(folder / "built"))
    assert not (folder / "built" / "model.engine").exists()
    (finding,) = findings
    return finding


@pytest.mark.thorough
def test_a_builder_that_crashes_is_a_finding_at_the_node_that_it_crashes_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash names no node: the graph's beginnings are built until one crashes."""
    finding = refused(tmp_path, monkeypatch, CRASHING)
    assert (finding.code, finding.severity) == ("E213", "error")
    assert finding.message.endswith("the builder's process ended (SIGSEGV)")
    assert finding.place.node == "/net/Exp_1"


@pytest.mark.thorough
def test_a_builder_that_crashes_at_any_graph_names_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = refused(tmp_path, monkeypatch, CRASHING.replace('b"Exp"', 'b""'))
    assert finding.message.endswith("the builder's process ended (SIGSEGV)")
    assert not str(finding.place)
