"""A damaged file of a home costs one clear line; `make fuzz-store` tries all kinds of them."""

import errno
import json
from pathlib import Path

import pytest
from home_damage import COMMANDS, bugs, kinds
from past_runs import make_run

from convkit.cli import main as command_line
from convkit.host.store.process_locks import HeldLock
from convkit.host.toolchain.versions import version_resolution
from convkit.protocol.errors import is_of_environment, storage_error
from convkit.protocol.json_codec import parse_json


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and its home, which has a run, a nightly run and a resolution."""
    folder = tmp_path_factory.mktemp("home_damage")
    make_run(folder / "home")
    night = folder / "home" / "nights" / "20260101-000000-0000"
    night.mkdir(parents=True)
    (night / "nightly.json").write_text("{}")
    (folder / "home" / "resolutions").mkdir(exist_ok=True)
    return folder


def test_every_kind_of_a_home_is_damaged(clean: Path) -> None:
    found = kinds(clean / "home")
    for kind in ("store/stages/HEX.json", "store/use.lock", "results/small/ID/result.json"):
        assert kind in found
    assert len([kind for kind in found if kind.startswith("store/objects")]) == 1


QUICK = {
    ("home/store/use.lock", "folder"),
    ("home/store/stages/HEX.json", "link to itself"),
    ("home/nights/ID/nightly.json", "nested"),
    ("home/results/small/ID/result.json", "nested"),
}


def test_no_command_ends_as_a_bug(clean: Path, tmp_path: Path) -> None:
    assert (
        bugs(clean, tmp_path, lambda *each: each in QUICK, ("runs", COMMANDS[0], "history")) == []
    )


@pytest.mark.thorough
def test_no_command_ends_as_a_bug_whatever_is_damaged(clean: Path, tmp_path: Path) -> None:
    def chosen(kind: str, harm: str) -> bool:
        return "results" not in kind and harm in ("binary", "nested", "folder", "link to nowhere")

    assert bugs(clean, tmp_path, chosen, COMMANDS[:3]) == []


def test_a_bug_is_found(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reading of nested JSON mocked away, as it was."""
    monkeypatch.setattr("convkit.host.nightly.history_trend.parse_json", json.loads)
    nested = ("home/nights/ID/nightly.json", "nested")
    (found,) = bugs(clean, tmp_path, lambda *each: each == nested, ("history", "runs"))
    assert "history: 70" in found


def test_a_folder_in_the_way_ends_with_one_line(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "home" / "store" / "views.lock"
    lock.mkdir(parents=True)

    def app() -> None:
        HeldLock.shared(lock)

    monkeypatch.setattr(command_line, "app", app)
    monkeypatch.setattr("sys.argv", ["convkit", "runs"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {lock}: a folder is in the way of a file. Remove it, and run again."


def test_a_damaged_resolution_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "resolution.txt"
    monkeypatch.setattr(version_resolution, "resolution_file", lambda _spec, _home: file)
    for content in (b"\xff\xfe\x00", b"", b"torch==2.0", b"[" * 9000):
        file.write_bytes(content)
        assert version_resolution.resolved(_Spec(), tmp_path) is None  # type: ignore[arg-type]


class _Spec:
    python = "3.11"


def test_json_that_is_nested_too_deeply_is_none() -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * 9000)


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    folder, link, loop = tmp_path / "folder", tmp_path / "link", tmp_path / "loop"
    folder.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    loop.symlink_to(loop)
    for place, words in ((folder, "a folder is in the way"), (link, "nowhere"), (loop, "nowhere")):
        with pytest.raises(OSError, match=str(place)) as caught:
            place.read_text()
        assert is_of_environment(caught.value)
        assert words in str(storage_error(caught.value, place))
    with pytest.raises(FileNotFoundError) as absent:
        (tmp_path / "absent").read_text()
    assert not is_of_environment(absent.value), "a file that is missing is a bug"
    assert not is_of_environment(OSError(errno.EBADF, "bad", "x"))
