"""Twenty random places of a home, damaged; `make test-all` does 50, `make fuzz-store` 500."""

import random
from pathlib import Path

import pytest
from fuzzing import Clean, FoundError, fuzz, make_clean
from past_runs import make_run

from convkit.host.home import Home
from convkit.host.store.store import Store


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """A home with one finished run."""
    folder = tmp_path_factory.mktemp("fuzz")
    return make_clean(folder, make_run(folder / "home"))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2, 3, 4))]
)
def test_no_green_comes_of_damaged_bytes(clean: Clean, seed: int) -> None:
    rounds = fuzz(clean, 10, seed)
    assert len(rounds) == 10
    assert {each.outcome for each in rounds} <= {"verified", "up to date"}


def test_the_fuzzer_notices_a_store_that_trusts_sizes(
    clean: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the store's own digesting mocked away, as it was before it digested anything."""
    monkeypatch.setattr("convkit.host.store.store.Store.has_object", lambda _self, _entry: True)
    monkeypatch.setattr("convkit.host.run.run_command.is_intact", lambda _folder, _digests: False)
    chance = random.Random(0)

    def of_a_built_object(home: Path) -> list[Path]:
        (run,) = Home(home).run_folders()[:1]
        wanted = {path.read_bytes() for path in (run / "models").rglob("*.onnx")}
        objects = (Store(home / "store").root / "objects").glob("*/*")
        return [path for path in objects if path.read_bytes() in wanted]

    monkeypatch.setattr("fuzzing.places", of_a_built_object)
    monkeypatch.setattr("fuzzing.HARMS", ("flip",))
    with pytest.raises(FoundError, match="objects"):
        fuzz(clean, 1, chance.randrange(100))
