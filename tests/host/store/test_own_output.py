"""What convkit prints, and its home, are no part of a model's folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from convkit.host.store.digests import digest_tree
from convkit.worker.process.folder_watch import FolderWatch

# As `convkit run` does: it digests the model's folder, and asks for its listing, while it prints.
PROGRAM = """
import sys
from pathlib import Path
from convkit.host.facts.observed_files import digests_of
from convkit.host.store.digests import DigestCache, digest_tree
folder = Path(sys.argv[1])
print("a line", flush=True)
print("an error", file=sys.stderr, flush=True)
found = digests_of(["listing:.", "matches:*.txt"], folder, DigestCache(folder.parent / "digests"))
answer = digest_tree(folder), sorted(found.items())
(folder.parent / "answer").write_text(repr(answer))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.txt").write_text("1")
    return folder


def answered(folder: Path, redirection: str) -> str:
    program = [sys.executable, "-c", PROGRAM, str(folder)]
    script = f'"$0" "$@" {redirection}'
    subprocess.run(["/bin/sh", "-c", script, *program], cwd=folder, check=True, timeout=60)
    return (folder.parent / "answer").read_text()


@pytest.mark.parametrize(
    "redirection",
    [
        "> log.txt",
        pytest.param("2> log.txt", marks=pytest.mark.thorough),
        pytest.param("> log.txt 2>&1", marks=pytest.mark.thorough),
        pytest.param(">> log.txt", marks=pytest.mark.thorough),
        pytest.param(
            "| tee log.txt",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc"),
        ),
    ],
)
def test_a_log_in_the_model_s_folder_is_none_of_its_files(folder: Path, redirection: str) -> None:
    quiet = answered(folder, "> /dev/null 2>&1")
    assert answered(folder, redirection) == quiet
    assert (folder / "log.txt").stat().st_size > 0
    assert answered(folder, redirection) == quiet


@pytest.mark.thorough
def test_another_file_is_one_of_them(folder: Path) -> None:
    quiet = answered(folder, "> /dev/null 2>&1")
    (folder / "more.txt").write_text("1")
    assert answered(folder, "> log.txt") != quiet


def test_a_home_in_the_model_s_folder_is_none_of_its_files(folder: Path) -> None:
    before = digest_tree(folder)
    (folder / "runs" / "store" / "stages").mkdir(parents=True)
    (folder / "runs" / "store" / "stages" / "1.json").write_text("{}")
    assert digest_tree(folder) == before
    (folder / "store").mkdir()
    (folder / "store" / "weights").write_text("2")
    assert digest_tree(folder) != before


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
def test_a_file_that_another_program_writes_is_not_read(folder: Path) -> None:
    watch = FolderWatch(folder)
    with (folder / "log.txt").open("a") as log:
        log.write("a line\n")
    weights = folder / "weights.txt"
    weights.read_text()
    with (folder / "open.txt").open("w+"), weights.open() as held:
        (folder / "both.txt").write_text("1")
        (folder / "both.txt").read_text()
        held.read()
        assert watch.close() >= {str(weights), str(folder / "both.txt")}
    assert str(folder / "log.txt") not in watch.close()
