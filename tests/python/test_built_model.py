import dataclasses
import subprocess
import sys

import numpy as np
import onnx
import pytest
from small_graphs import CONTRACT, HEADER, graph, save, tensor

import convkit
from convkit.protocol.contract import Axis, Contract
from convkit.protocol.errors import FeedError, ModelFileError
from convkit.protocol.postprocessing_constants import LabelConstants, Postprocessing
from convkit.worker.original.contract_check import CONTRACT_KEY


def feeds(rows=2, columns=3):
    return {
        "types": np.zeros((rows, columns), np.int64),
        "ids": np.full((rows, columns), 7),
        "mask": np.ones((rows, columns), np.int64),
    }


@pytest.fixture
def session(tmp_path):
    return convkit.load(save(tmp_path, graph()))


def test_a_file_or_its_folder_opens_and_runs_by_name(tmp_path, session):
    for opened in (session, convkit.load(tmp_path), convkit.load(str(tmp_path / "model.onnx"))):
        assert opened.contract == CONTRACT
        for outputs in (opened(feeds()), opened.run(feeds()), opened(**feeds())):
            assert list(outputs) == ["score"]
            assert outputs["score"].tolist() == [[7.0] * 3] * 2
    assert opened({"ids": feeds()["ids"]}, mask=feeds()["mask"], types=feeds()["types"])[
        "score"
    ].shape == (2, 3)


def test_outputs_come_in_the_contracts_order(tmp_path):
    contract = Contract(
        (tensor("x", shape=("n",)),),
        (tensor("b", shape=("n",)), tensor("a", shape=("n",))),
        (Axis("n", 1, 2, 9),),
    )
    text = f"{HEADER}g (float[n] x) => (float[n] b, float[n] a) {{ a = Neg(x) b = Abs(x) }}"
    outputs = convkit.load(save(tmp_path, text, carries=contract))(x=np.array([-1.0], np.float32))
    assert {name: value.tolist() for name, value in outputs.items()} == {"b": [1.0], "a": [1.0]}
    assert list(outputs) == ["b", "a"]


def test_positions_are_refused(session):
    values = list(feeds().values())
    with pytest.raises(
        FeedError, match=r"by name, never by position: call session\(ids=\.\.\., mask=\.\.\., types"
    ):
        session(*values)
    with pytest.raises(FeedError, match="never by position"):
        session(values[0])
    with pytest.raises(FeedError, match="never by position"):
        session.run(values)
    with pytest.raises(FeedError, match="'ids' passed twice, in the mapping and by name"):
        session(feeds(), ids=feeds()["ids"])


def test_names_must_be_the_contracts(session):
    wrong = feeds()
    wrong["maks"] = wrong.pop("mask")
    with pytest.raises(
        FeedError, match=r"unknown input 'maks'; perhaps you meant 'mask'\?.*'mask' is missing"
    ):
        session(wrong)
    with pytest.raises(FeedError, match=r"'types' is missing \(inputs: ids, mask, types\)"):
        session(ids=feeds()["ids"], mask=feeds()["mask"])
    with pytest.raises(FeedError, match="unknown input 'position_ids'"):
        session(**feeds(), position_ids=feeds()["ids"])


def test_dtypes_are_not_cast_in_silence(session):
    with pytest.raises(
        FeedError, match=r"'ids' is int32; the model expects int64.*ids\.astype\(np\.int64\)"
    ):
        session(feeds() | {"ids": feeds()["ids"].astype(np.int32)})
    with pytest.raises(FeedError, match=r"'mask' is a list; pass a numpy array"):
        session(feeds() | {"mask": [[1]]})


def test_shapes_must_agree_and_lie_within_the_ranges(session):
    with pytest.raises(FeedError, match=r"'mask' has shape \[2\]"):
        session(feeds() | {"mask": np.ones(2, np.int64)})
    with pytest.raises(FeedError, match=r"axis 'sequence' has size 3 in 'ids' but 4 in 'mask'"):
        session(feeds() | {"mask": np.ones((2, 4), np.int64)})
    with pytest.raises(
        FeedError, match=r"axis 'sequence' has size 13; the model was verified from 2 to 12"
    ):
        session(feeds(columns=13))
    with pytest.raises(FeedError, match=r"axis 'batch' has size 0"):
        session(feeds(rows=0))


def test_fixed_sizes_and_arithmetic_are_checked(tmp_path):
    contract = Contract(
        (tensor("x", shape=("n", 2)), tensor("y", shape=("n + 1",))),
        (tensor("z", shape=("n", 2)),),
        (Axis("n", 1, 2, 9),),
    )
    text = (
        f"{HEADER}g (float[n,2] x, float[m] y) => (float[n,2] z) {{ s = ReduceSum<keepdims=0>(y) z"
        " = Add(x, s) }"
    )
    session = convkit.load(save(tmp_path, text, carries=contract))
    x, y = np.zeros((3, 2), np.float32), np.ones(4, np.float32)
    assert session(x=x, y=y)["z"].tolist() == [[4.0, 4.0]] * 3
    with pytest.raises(FeedError, match=r"'y' has shape \[3\]; expected 4 \(n \+ 1\)"):
        session(x=x, y=y[:3])
    with pytest.raises(FeedError, match=r"'x' has shape \[3, 1\]; expected 2"):
        session(x=x[:, :1], y=y)


def test_a_failing_run_is_a_feed_error(tmp_path):
    contract = Contract(
        (tensor("i", "int64", ("n",)),), (tensor("y", shape=("n",)),), (Axis("n", 1, 2, 9),)
    )
    text = (
        f"{HEADER}g (int64[n] i) => (float[n] y) <float[3] table = {{1, 2, 3}}> {{ y ="
        " Gather(table, i) }"
    )
    session = convkit.load(save(tmp_path, text, carries=contract))
    with pytest.raises(
        FeedError, match=r"the runtime failed on these inputs: .*out of data bounds"
    ):
        session(i=np.array([5]))


def test_files_that_convkit_did_not_build_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"C301 .*has no contract"):
        convkit.load(save(tmp_path, graph(), carries=None))
    with pytest.raises(ModelFileError, match=r"no such model"):
        convkit.load(tmp_path / "absent.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelFileError, match=r"broken\.onnx: onnxruntime"):
        convkit.load(tmp_path / "broken.onnx")
    model = onnx.load(save(tmp_path, graph()))
    next(
        entry for entry in model.metadata_props if entry.key == CONTRACT_KEY
    ).value = '{"inputs": 3}'
    onnx.save(model, tmp_path / "damaged.onnx")
    with pytest.raises(ModelFileError, match=r"C301 .*damaged contract"):
        convkit.load(tmp_path / "damaged.onnx")


def test_a_model_that_breaks_its_contract_is_refused(tmp_path):
    text = graph(
        "(int64[batch,sequence] ids, int64[batch,sequence] types, int64[batch,sequence] mask)"
    )
    with pytest.raises(ModelFileError, match=r"violates its own contract: C103"):
        convkit.load(save(tmp_path, text))


def test_repr_shows_the_contract(session):
    text = repr(session)
    assert "in   ids: int64[batch, sequence]" in text
    assert "out  score: float32[batch, sequence]" in text
    assert "axis sequence: 2 to 12" in text


def test_without_onnxruntime_the_message_says_what_to_install(tmp_path, monkeypatch):
    file = save(tmp_path, graph())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelFileError, match=r"pip install -e .*\[onnx\]"):
        convkit.load(file)


def test_the_module_loads_without_numpy_and_onnxruntime():
    code = (
        "import sys; sys.modules.update(numpy=None, onnxruntime=None); "
        "import convkit.python.built_model"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_results_follow_from_the_contract(tmp_path):
    made = Postprocessing(labels=LabelConstants(("cat", "dog")))
    scores = dataclasses.replace(tensor("y", shape=("n", 2)), postprocess=made)
    contract = Contract((tensor("x", shape=("n", 2)),), (scores,), (Axis("n", 1, 2, 9),))
    text = f"{HEADER}g (float[n,2] x) => (float[n,2] y) {{ y = Neg(x) }}"
    session = convkit.load(save(tmp_path, text, carries=contract))
    outputs = session(x=np.array([[1, 0], [0, 1]], np.float32))
    assert [[each.label for each in row] for row in session.results(outputs)["y"]] == [
        ["dog"],
        ["cat"],
    ]
    with pytest.raises(FeedError, match="results need the output 'y'"):
        session.results({})


def test_results_need_a_declaration(session):
    with pytest.raises(FeedError, match=r"declare outputs\.N\.postprocess in the recipe"):
        session.results(session(feeds()))
