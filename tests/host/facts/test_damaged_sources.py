"""Damaged ML packages, safetensors headers, tokenizers and texts; `make fuzz-files` does 500 of
each.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import damaged_sources
import pytest
from damaged_sources import KINDS, FoundError, Kind, fuzz

from convkit.host.facts.planning_facts import read_texts
from convkit.protocol.errors import UsageError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Sound sources by kind."""
    folders: dict[object, Path] = {}

    def make(name: str) -> Path:
        kind = KINDS[name]
        if kind.make not in folders:
            folders[kind.make] = tmp_path_factory.mktemp("sources") / "sound"
            folders[kind.make].mkdir()
            kind.make(folders[kind.make])
        return folders[kind.make]

    return make


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.sampled(2)
def test_a_damaged_source_is_refused_in_words_or_told_from_the_sound_one(
    made: Callable[[str], Path], name: str
) -> None:
    counts = fuzz(name, made(name), 20, seed=3)
    assert counts["refused"] > 5


def test_the_fuzzer_notices_a_reader_that_ends_in_a_traceback(
    made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(folder: Path) -> dict[str, bytes]:  # as texts were read before
        return {"texts": (folder / "sentences.txt").read_text(encoding="utf-8").encode()}

    monkeypatch.setitem(KINDS, "texts", dataclasses.replace(KINDS["texts"], read=read))
    with pytest.raises(FoundError, match=r"seed 3: sentences\.txt: .*(UnicodeDecode|FileNotFound)"):
        fuzz("texts", made("texts"), 30, seed=3)


def test_the_fuzzer_notices_a_digest_that_does_not_see_the_damage(
    made: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lax(folder: Path) -> dict[str, bytes]:
        path = folder / "sentences.txt"
        return {"texts": path.read_bytes() if path.exists() else b""}

    blind: Kind = dataclasses.replace(KINDS["texts"], read=lax, digest=lambda _folder: "the same")
    monkeypatch.setitem(damaged_sources.KINDS, "texts", blind)
    with pytest.raises(FoundError, match="other values, with the digest of the sound one"):
        fuzz("texts", made("texts"), 30, seed=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntwo \xff\n", "line 2 is not UTF-8 .*; save it as UTF-8"),
        (b" \n\n", "holds no text; write one text per line"),
        (b"", "holds no text"),
        (b"one\n\0\0\0\n", "line 2 holds NUL characters"),
    ],
    ids=["not UTF-8", "blank", "empty", "zeros"],
)
def test_texts_that_are_none_are_refused_by_their_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "sentences.txt").write_bytes(content)
    with pytest.raises(UsageError, match=rf"verify\.texts: .*sentences\.txt: {message}"):
        read_texts(tmp_path / "sentences.txt")
