import os
import subprocess
import sys

import pytest
from command_line import convkit
from tiny_models import save_bert

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD = """
import sys
from convkit.worker.job_context import StageFailedError
from convkit.protocol.messages import Source
from convkit.worker.original.loading import load_model
for revision in sys.argv[2:]:
    try:
        loaded = load_model(Source("hub", identifier=sys.argv[1], revision=revision))
        print(type(loaded.module).__name__, loaded.description)
    except StageFailedError as error:
        print("failed:", " ".join(str(error).split()))
"""
UNKNOWN = COMMIT[::-1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Lay out a local cache as huggingface_hub does."""
    home = tmp_path_factory.mktemp("hf")
    repository = home / "hub" / "models--someone--tiny-bert"
    save_bert(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return home


@pytest.fixture(scope="module")
def told(cache):
    """Return what loading a cached and an unknown commit gives."""
    # In its own process: huggingface_hub reads HF_HOME when it is imported.
    environment = os.environ | {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    arguments = [sys.executable, "-c", LOAD, "someone/tiny-bert", COMMIT, UNKNOWN]
    return subprocess.run(
        arguments, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.thorough
def test_a_pinned_commit_comes_from_the_local_cache_without_a_network(told):
    assert told[0] == f"BertModel someone/tiny-bert at {COMMIT}"


@pytest.mark.slow
def test_what_is_not_in_the_cache_is_an_error_that_names_the_keys(told):
    text = told[1]
    start = f"failed: model.hub: someone/tiny-bert at {UNKNOWN} could not be fetched"
    assert text.startswith(start)
    assert "model.hub.revision" in text
    assert "HF_HUB_OFFLINE" in text


@pytest.mark.slow
@pytest.mark.thorough
def test_a_hub_model_is_drafted_from_its_checkpoint(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(cache))  # for the workers
    options = ["--toolchain", "host", "--home", str(tmp_path)]
    done = convkit("init", f"someone/tiny-bert@{COMMIT}", *options)
    assert done.returncode == 0, done.stderr
    assert f"revision: {COMMIT}" in done.stdout or f'revision: "{COMMIT}"' in done.stdout
    assert "name: attention_mask" in done.stdout
    assert "TODO" not in done.stdout
    refused = convkit("init", f"someone/tiny-bert@{UNKNOWN}", *options)
    assert refused.returncode == 2
    assert "could not be fetched" in refused.stderr
    assert refused.stdout == ""
