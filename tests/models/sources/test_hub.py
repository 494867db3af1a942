import os
import subprocess
import sys

import pytest
from tiny_models import save_bert

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD = """
import sys
from convkit.worker.context import StageFailedError
from convkit.worker.protocol import Source
from convkit.models.sources import load_model
try:
    loaded = load_model(Source("hub", identifier=sys.argv[1], revision=sys.argv[2]))
    print(type(loaded.module).__name__, loaded.description)
except StageFailedError as error:
    print("failed:", error)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Lay out a local cache as huggingface_hub does."""
    home = tmp_path_factory.mktemp("hf")
    repository = home / "hub" / "models--someone--tiny-bert"
    save_bert(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return home


def load(cache, identifier, revision):
    # A process of its own: huggingface_hub reads HF_HOME when it is imported.
    environment = os.environ | {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    arguments = [sys.executable, "-c", LOAD, identifier, revision]
    return subprocess.run(
        arguments, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow
def test_a_pinned_commit_comes_from_the_local_cache_without_a_network(cache):
    assert load(cache, "someone/tiny-bert", COMMIT) == f"BertModel someone/tiny-bert at {COMMIT}"


@pytest.mark.slow
def test_what_is_not_in_the_cache_is_an_error_that_names_the_keys(cache):
    other = COMMIT[::-1]
    text = load(cache, "someone/tiny-bert", other)
    assert text.startswith(f"failed: model.hub: someone/tiny-bert at {other} could not be fetched")
    assert "model.hub.revision" in text
    assert "HF_HUB_OFFLINE" in text


@pytest.mark.slow
def test_a_hub_model_is_drafted_from_its_checkpoint(cache, tmp_path):
    environment = os.environ | {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "convkit", "init", f"someone/tiny-bert@{COMMIT}"]
    options = ["--toolchain", "host", "--home", str(tmp_path)]
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"revision: {COMMIT}" in done.stdout or f'revision: "{COMMIT}"' in done.stdout
    assert "name: attention_mask" in done.stdout
    assert "TODO" not in done.stdout
    unknown = [*command[:-1], f"someone/tiny-bert@{COMMIT[::-1]}", *options]
    refused = subprocess.run(unknown, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "could not be fetched" in refused.stderr
    assert refused.stdout == ""
