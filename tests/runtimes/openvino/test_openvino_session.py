"""OpenVINO's IR: the same bytes in any process, the contract inside, feeds by name and type."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from ir_models import DENSE, HEADER, built, dense
from small_graphs import save

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.python.built_model import load
from convkit.runtimes.openvino import session as openvino
from convkit.runtimes.openvino.ir import read_graph, save_ir
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.job_context import StageSkippedError
from convkit.worker.original.contract_check import CONTRACT_KEY, check_contract
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

ov = pytest.importorskip("openvino")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FEEDS = {
    "x": np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32),
    "z": np.random.default_rng(2).normal(size=(2, 64)).astype(np.float32),
}


@pytest.fixture
def ir(tmp_path: Path) -> Path:
    folder, _, findings = built(tmp_path, dense(tmp_path / "export"))
    assert findings == []
    return folder / "model.xml"


def test_a_session_states_its_contract_with_the_axes_names(ir):
    session = openvino.open(ir, "cpu", OpenVINOOptions())
    assert session.contract() == Contract(DENSE.inputs, DENSE.outputs, ())
    assert check_contract(DENSE, session.contract(), "session") == []
    assert CONTRACT_KEY in session.metadata()
    assert session.providers == ("CPU",)
    assert session.precision == "float32"


def test_axes_have_no_names_without_a_carried_contract(tmp_path):
    session = openvino.open(dense(tmp_path), "cpu", OpenVINOOptions())
    assert [spec.shape for spec in session.contract().inputs] == [("?", 64), ("?", 64)]


def test_convkit_load_opens_the_folder(ir):
    session = load(ir.parent)
    assert session.contract == DENSE.carried()
    assert session(**FEEDS)["y"].shape == (2, 64)


@pytest.mark.parametrize(
    "seeds", [("0", "1"), pytest.param(("7", "random"), marks=pytest.mark.thorough)]
)
@pytest.mark.thorough
def test_two_processes_write_the_same_bytes(tmp_path, seeds):
    model = dense(tmp_path / "export")
    code = (
        "import sys, pathlib; sys.path[:0] = sys.argv[3:]\n"
        "from ir_models import DENSE\n"
        "from convkit.runtimes.openvino.ir import read_graph, save_ir\n"
        "for again in range(int(sys.argv[2]) + 1): model = read_graph(sys.argv[1])\n"
        "save_ir(model, pathlib.Path(sys.argv[1]).parent / 'model.xml', DENSE, 'float32')\n"
    )
    digests = []
    for count, seed in enumerate(seeds):
        tests = Path(__file__).parents[2]
        paths = [Path(__file__).parent, tests / "example_models", tests / "tools"]
        subprocess.run(
            [sys.executable, "-c", code, str(model), str(count), *map(str, paths)],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        files = [model.with_name(name).read_bytes() for name in ("model.xml", "model.bin")]
        digests.append([hashlib.sha256(content).hexdigest() for content in files])
    assert digests[0] == digests[1]


def test_without_names_two_saves_differ(tmp_path):
    """What `name_nodes` is for: OpenVINO numbers unnamed nodes through the whole process."""
    text = f"{HEADER}g (float[n,3] x) => (float y) {{ y = ReduceSum<keepdims=0>(x) }}"
    model = save(tmp_path, text, carries=None)
    for name in ("one.xml", "two.xml"):
        ov.save_model(read_graph(model), tmp_path / name, compress_to_fp16=False)
    assert (tmp_path / "one.xml").read_bytes() != (tmp_path / "two.xml").read_bytes()
    for name in ("one.xml", "two.xml"):
        save_ir(read_graph(model), tmp_path / name, DENSE, "float32")
    assert (tmp_path / "one.xml").read_bytes() == (tmp_path / "two.xml").read_bytes()


def test_names_in_bodies_of_branches_are_stable_too(tmp_path):
    text = f"""{HEADER}g (bool c, float[n] x) => (float[n] y) {{
        y = If (c) <then_branch = g1 () => (float[n] t) {{ t = Neg(x) }},
                    else_branch = g2 () => (float[n] e) {{
                        k = ReduceSum<keepdims=1>(x) e = Add(x, k) }}>
    }}"""
    model = save(tmp_path, text, carries=None)
    for name in ("one.xml", "two.xml"):
        save_ir(read_graph(model), tmp_path / name, DENSE, "float32")
    assert (tmp_path / "one.xml").read_bytes() == (tmp_path / "two.xml").read_bytes()
    session = openvino.open(tmp_path / "one.xml", "cpu", OpenVINOOptions())
    x = np.array([1, 2], np.float32)
    assert session.run({"c": np.array(True), "x": x})["y"].tolist() == [-1, -2]
    assert session.run({"c": np.array(False), "x": x})["y"].tolist() == [4, 5]


def test_openvino_accepts_what_the_session_refuses(ir):
    plain = ov.Core().compile_model(str(ir), "CPU")
    plain([FEEDS["z"], FEEDS["x"]])  # exchanged, and accepted
    plain({name: values.astype(np.float64) for name, values in FEEDS.items()})
    session = openvino.open(ir, "cpu", OpenVINOOptions())
    with pytest.raises(RunFailedError, match=r"'x' is float64; the model's input is float32"):
        session.run(FEEDS | {"x": FEEDS["x"].astype(np.float64)})
    with pytest.raises(RunFailedError, match=r"missing: z; inputs: x, z"):
        session.run({"x": FEEDS["x"]})
    with pytest.raises(RunFailedError, match=r"unknown: w"):
        session.run(FEEDS | {"w": FEEDS["x"]})
    with pytest.raises(
        RunFailedError, match=r"'z' has the shape \[2, 3\]; the model's is \[\?,64\]"
    ):
        session.run(FEEDS | {"z": FEEDS["z"][:, :3]})
    with pytest.raises(RunFailedError, match=r"axis 'batch' has the size 2 in 'x' and 3 in 'z'"):
        session.run(FEEDS | {"z": np.ones((3, 64), np.float32)})
    assert session.run(dict(reversed(FEEDS.items())))["y"].shape == (2, 64)  # it lives on


@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_error_in_a_run_is_not_lost(tmp_path, monkeypatch, threads):
    """With one thread OpenVINO's own `infer` returns as if nothing had happened."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    text = f"""{HEADER}g (float[n] x) => (float[2,m] y) {{
        shape = Constant<value_ints=[2, -1]>() y = Reshape(x, shape) }}"""
    session = openvino.open(save(tmp_path, text, carries=None), "cpu", OpenVINOOptions())
    assert session.run({"x": np.ones(4, np.float32)})["y"].shape == (2, 2)
    with pytest.raises(RunFailedError, match="OpenVINO"):
        session.run({"x": np.ones(3, np.float32)})
    assert session.run({"x": np.ones(6, np.float32)})["y"].shape == (2, 3)


def test_outputs_outlive_the_next_run(ir):
    session = openvino.open(ir, "cpu", OpenVINOOptions())
    first = session.run(FEEDS)["y"]
    kept = first.copy()
    session.run({name: values * 5 for name, values in FEEDS.items()})
    assert np.array_equal(first, kept)


def test_a_float32_ir_computes_in_float32_under_any_setting(ir):
    """The marks do what they are for: this CPU's default would be bfloat16."""
    expected = openvino.open(ir, "cpu", OpenVINOOptions()).run(FEEDS)["y"]
    default = ov.Core().compile_model(str(ir), "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    assert np.array_equal(default(FEEDS)["y"], expected)


@pytest.mark.skipif(not openvino.can_compute("bfloat16"), reason="a CPU without bfloat16")
def test_without_the_marks_the_same_ir_is_lowered(ir):
    bare = ir.with_name("bare.xml")
    bare.write_text(ir.read_text().replace('<attribute name="precise" version="0" />', ""))
    bare.with_suffix(".bin").write_bytes(ir.with_suffix(".bin").read_bytes())
    expected = openvino.open(ir, "cpu", OpenVINOOptions()).run(FEEDS)["y"]
    lowered = ov.Core().compile_model(str(bare), "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    assert np.max(np.abs(lowered(FEEDS)["y"] - expected)) > 1e-3


def test_what_cannot_be_opened_says_why(tmp_path, ir):
    (tmp_path / "broken.xml").write_text("<net>")
    with pytest.raises(ModelRefusedError, match=f"OpenVINO {ov.__version__}"):
        openvino.open(tmp_path / "broken.xml", "cpu", OpenVINOOptions())
    with pytest.raises(ModelRefusedError, match="NO_SUCH_PROPERTY"):
        openvino.open(ir, "cpu", OpenVINOOptions({"NO_SUCH_PROPERTY": 1}))
    with pytest.raises(StageSkippedError, match="run on the cpu"):
        openvino.open(ir, "cuda", OpenVINOOptions())


def test_without_openvino_a_stage_is_skipped(ir, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(StageSkippedError, match="OpenVINO cannot be imported"):
        openvino.open(ir, "cpu", OpenVINOOptions())


def test_types_beside_float32_pass_through(tmp_path):
    text = f"""{HEADER}g (int64[n] i, int32[n] j, bool[n] b, float16[n] h)
        => (int64[n] oi, int32[n] oj, bool[n] ob, float16[n] oh) {{
        oi = Add(i, i) oj = Add(j, j) ob = Not(b) oh = Add(h, h) }}"""
    model = save(tmp_path, text, carries=None)
    types = (("i", "int64"), ("j", "int32"), ("b", "bool"), ("h", "float16"))
    specs = tuple(TensorSpec(name, dtype, ("n",)) for name, dtype in types)
    outputs = tuple(TensorSpec(f"o{name}", dtype, ("n",)) for name, dtype in types)
    contract = Contract(specs, outputs, (Axis("n", 1, 2, 3),))
    save_ir(read_graph(model), tmp_path / "model.xml", contract, "float32")
    session = openvino.open(tmp_path / "model.xml", "cpu", OpenVINOOptions())
    assert session.contract() == Contract(specs, outputs, ())
    feeds = {name: np.array([1, 0, 1], dtype) for name, dtype in types}
    found = session.run(feeds)
    assert {name: str(values.dtype) for name, values in found.items()} == {
        "oi": "int64", "oj": "int32", "ob": "bool", "oh": "float16",
    }  # fmt: skip
    assert found["oi"].tolist() == [2, 0, 2]
    assert found["ob"].tolist() == [False, True, False]


def test_a_tensor_with_several_names_has_the_wanted_one(tmp_path):
    model = read_graph(dense(tmp_path))
    model.outputs[0].get_tensor().add_names({"a first name"})
    save_ir(model, tmp_path / "model.xml", Contract((), (), ()), "float32")
    opened = openvino.open(tmp_path / "model.xml", "cpu", OpenVINOOptions(), ["y"])
    assert [spec.name for spec in opened.contract().outputs] == ["y"]
    otherwise = openvino.open(tmp_path / "model.xml", "cpu", OpenVINOOptions())
    assert [spec.name for spec in otherwise.contract().outputs] == ["a first name"]


def test_bfloat16_passes_through(tmp_path):
    """OpenVINO's own arrays show its bits as float16."""
    text = f"{HEADER}g (bfloat16[n] h, bfloat16 s) => (bfloat16[n] oh) {{ oh = Mul(h, s) }}"
    model = save(tmp_path, text, carries=None)
    specs = (TensorSpec("h", "bfloat16", ("n",)), TensorSpec("s", "bfloat16", ()))
    contract = Contract(specs, (TensorSpec("oh", "bfloat16", ("n",)),), (Axis("n", 1, 2, 3),))
    save_ir(read_graph(model), tmp_path / "model.xml", contract, "float32")
    session = openvino.open(tmp_path / "model.xml", "cpu", OpenVINOOptions())
    numbers, scale = np.array([1, 0.375, -3e38], BFLOAT16), np.array(0.5, BFLOAT16)
    for bits in (False, True):
        feeds = {"h": numbers, "s": scale}
        if bits:
            feeds = {name: np.atleast_1d(each).view("V2") for name, each in feeds.items()}
            feeds["s"] = feeds["s"].reshape(())
        found = session.run(feeds)["oh"]
        assert found.view(BFLOAT16).tolist() == (numbers * scale).tolist()
