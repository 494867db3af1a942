import json
import socket

import pytest
import torch
from tiny_models import save_bert

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import load_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("saved") / "bert", tokenizer=True)


@pytest.fixture
def pickled(tmp_path, saved):
    folder = tmp_path / "pickled"
    folder.mkdir()
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (folder / name).write_bytes((saved / name).read_bytes())
    torch.save(
        load_model(Source("path", path=str(saved))).module.state_dict(),
        folder / "pytorch_model.bin",
    )
    return folder


@pytest.mark.parametrize("kind", ["path", "package"])
def test_a_folder_loads_without_a_network(saved, kind, monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    loaded = load_model(Source(kind, path=str(saved)))
    assert type(loaded.module).__name__ == "BertModel"
    assert loaded.unloaded == ()
    assert loaded.tokenizer is not None
    assert loaded.tokenizer()("word1 word2")["input_ids"] == [2, 6, 7, 3]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(None, torch.float32), ("stored", torch.bfloat16), ("float16", torch.float16)],
)
def test_dtype(tmp_path, saved, dtype, expected):
    folder = tmp_path / "bf16"
    load_model(Source("path", path=str(saved), dtype="bfloat16")).module.save_pretrained(folder)
    loaded = load_model(Source("path", path=str(folder), dtype=dtype))
    assert next(loaded.module.parameters()).dtype is expected


def test_pickled_weights_are_refused(pickled):
    with pytest.raises(
        StageFailedError, match=r"model\.path: .*pytorch_model\.bin.*model\.allow_pickle: true"
    ):
        load_model(Source("path", path=str(pickled)))


def test_allowed_pickled_weights_are_the_same_weights(pickled, saved):
    unpickled = load_model(Source("path", path=str(pickled), allow_pickle=True)).module.state_dict()
    expected = load_model(Source("path", path=str(saved))).module.state_dict()
    assert all(torch.equal(unpickled[name], expected[name]) for name in expected)


def test_safetensors_are_preferred_over_a_pickle_beside_them(saved, pickled):
    (pickled / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes())
    (pickled / "pytorch_model.bin").write_bytes(b"would not even load")
    loaded = load_model(Source("path", path=str(pickled), allow_pickle=True)).module.state_dict()
    expected = load_model(Source("path", path=str(saved))).module.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


class Exploding:
    def __reduce__(self):
        return print, ("code ran while unpickling",)


def test_only_an_allowed_pickle_can_run_code(pickled, capsys):
    state = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    torch.save({**state, "extra": Exploding()}, pickled / "pytorch_model.bin")
    with pytest.raises(StageFailedError, match=r"model\.path: .*allow_pickle"):
        load_model(Source("path", path=str(pickled)))
    assert "code ran" not in capsys.readouterr().out
    loaded = load_model(Source("path", path=str(pickled), allow_pickle=True))
    assert torch.equal(
        loaded.module.state_dict()["pooler.dense.weight"], state["pooler.dense.weight"]
    )
    assert "code ran" in capsys.readouterr().out


def test_a_plain_pickle_never_reaches_the_full_unpickler(pickled, monkeypatch):
    asked = []
    original = torch.load
    monkeypatch.setattr(
        torch, "load", lambda *a, **k: asked.append(k.get("weights_only")) or original(*a, **k)
    )
    load_model(Source("path", path=str(pickled), allow_pickle=True))
    assert asked
    assert all(asked)


def test_remote_code_is_refused_and_not_run(tmp_path, saved):
    folder = tmp_path / "remote"
    folder.mkdir()
    configuration = json.loads((saved / "config.json").read_text())
    configuration |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"},
    }
    (folder / "config.json").write_text(json.dumps(configuration))
    (folder / "mine.py").write_text("raise SystemExit('the remote code ran')")
    with pytest.raises(StageFailedError, match=r"mine\.Model.*model\.allow_remote_code: true"):
        load_model(Source("path", path=str(folder)))


def test_weights_that_the_checkpoint_lacks_are_named_and_the_same_each_time(saved):
    source = Source("path", path=str(saved), task="text-classification")
    loaded, again = load_model(source), load_model(source)
    assert loaded.unloaded == ("classifier.bias", "classifier.weight")
    assert torch.equal(loaded.module.classifier.weight, again.module.classifier.weight)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: folder.rmdir(), "is not a folder"),
        (lambda folder: (folder / "model.safetensors").touch(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "holds a list"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'),
            "holds no weights",
        ),
    ],
)
def test_a_folder_that_is_no_model(tmp_path, prepare, message):
    folder = tmp_path / "folder"
    folder.mkdir()
    prepare(folder)
    with pytest.raises(StageFailedError, match=rf"model\.path: .*{message}"):
        load_model(Source("path", path=str(folder)))


def test_truncated_weights(tmp_path, saved):
    folder = tmp_path / "truncated"
    folder.mkdir()
    (folder / "config.json").write_bytes((saved / "config.json").read_bytes())
    (folder / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(
        StageFailedError, match=r"model\.path: transformers could not load truncated"
    ):
        load_model(Source("path", path=str(folder)))


def test_weights_of_another_shape(tmp_path, saved):
    folder = tmp_path / "reshaped"
    folder.mkdir()
    configuration = json.loads((saved / "config.json").read_text()) | {"vocab_size": 90}
    (folder / "config.json").write_text(json.dumps(configuration))
    (folder / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes())
    with pytest.raises(
        StageFailedError, match=r"shapes differ from config\.json: .*word_embeddings"
    ):
        load_model(Source("path", path=str(folder)))
