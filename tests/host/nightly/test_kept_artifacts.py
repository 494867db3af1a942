"""`convkit store gc`: what it keeps and frees, and what happens if it is killed or disturbed."""

import json
import multiprocessing
import os
import shutil
import time
from pathlib import Path

import pytest
from answers import command_line
from past_runs import RECIPE, make_run

from convkit.host.audit.past_runs.later_records import Acceptance, beside, write_acceptance
from convkit.host.audit.signing.signatures import SIGNATURES
from convkit.host.home import Home
from convkit.host.nightly.kept_artifacts import collect_garbage
from convkit.host.run.run_folder import read_record
from convkit.host.store import garbage_collection
from convkit.host.store.digests import DigestCache
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.store import Store
from convkit.protocol.errors import StoreError, UsageError

SEEDS = (3, 4, 5)


def model(seed: int) -> dict[str, object]:
    return {"factory": {"call": "model.py:build", "seed": seed}}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three runs that built something each, and one whose folder was deleted."""
    home = tmp_path_factory.mktemp("retention") / "home"
    for seed in SEEDS:
        make_run(home, model=model(seed))
    gone = make_run(home, export=RECIPE["export"] | {"opset": 18})
    shutil.rmtree(gone.folder)
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Home:
    shutil.copytree(template, tmp_path / "home")
    shutil.copytree(template.parent / "recipes", tmp_path / "recipes")
    return Home(tmp_path / "home")


def content(home: Home) -> dict[str, int]:
    return {
        path.relative_to(home.store).as_posix(): path.stat().st_size
        for kind in ("objects", "artifacts", "stages", "runs", "views")
        for path in sorted((home.store / kind).rglob("*"))
        if path.is_file()
    }


def needed_by_runs(home: Home) -> set[str]:
    """Search every run by brute force: the files that must survive."""
    store, names = Store(home.store), set()
    for folder in home.run_folders():
        for stage in read_record(folder).stages:
            assert stage.artifact is not None
            names |= {f"stages/{stage.key}.json", f"artifacts/{stage.artifact}.json"}
            names |= {
                store.object(entry.sha256).relative_to(home.store).as_posix()
                for entry in store.files(stage.artifact).values()
            }
    return names


def age(folder: Path, days: float) -> None:
    """Make a run older; only what retention reads of it."""
    record = json.loads((folder / "result.json").read_text())
    record["started"] = time.time() - days * 86400.0
    (folder / "result.json").write_text(json.dumps(record))


@pytest.mark.thorough
def test_it_frees_exactly_what_no_run_needs_and_says_how_much(home: Home) -> None:
    # Nothing of the deleted run is anybody's latest.
    shutil.rmtree(home.store / "latest")
    needed, before = needed_by_runs(home), content(home)
    planned = collect_garbage(home, dry_run=True)
    assert content(home) == before, "a dry run removes nothing"
    done = collect_garbage(home)
    after = content(home)
    assert {name for name in after if not name.startswith("runs/")} == needed
    assert done == planned
    removed = {name: size for name, size in before.items() if name not in after}
    assert removed
    assert sum(each.bytes for each in done.freed) == sum(removed.values())
    assert sum(each.files for each in done.freed) == len(removed)
    assert list(Store(home.store).verify()) == []
    assert all(each.files == 0 for each in collect_garbage(home).freed), "nothing is left to free"


def test_every_run_is_still_up_to_date(home: Home) -> None:
    collect_garbage(home)
    for seed in SEEDS:
        again = make_run(home.root, model=model(seed))
        assert again.up_to_date


def test_the_last_stages_of_a_recipe_stay_so_that_changes_can_be_explained(home: Home) -> None:
    collect_garbage(home)
    assert Store(home.store).latest("small", "export") is not None


@pytest.mark.parametrize("why", ["latest", "accepted", "signed", "waiver", "young"])
def test_an_old_run_keeps_its_artifacts_if_something_protects_it(home: Home, why: str) -> None:
    newest, middle, oldest = home.run_folders()
    shutil.rmtree(home.store / "latest")
    for folder in (newest, middle, oldest):
        age(folder, 40)
    subject, said = middle, why
    if why == "latest":
        subject, said = newest, "the latest run"
    elif why == "accepted":
        write_acceptance(middle, Acceptance(middle.name, time.time()))
    elif why == "signed":
        beside(middle, SIGNATURES).mkdir()
    elif why == "waiver":
        record = json.loads((middle / "result.json").read_text())
        waiver = {"code": "N101", "reason": "r", "until": "2099-01-01", "state": "active"}
        record["targets"][0]["waivers"] = [waiver]
        (middle / "result.json").write_text(json.dumps(record))
        said = "has a waiver"
    else:
        age(middle, 20)
    found = collect_garbage(home, older_than=30)
    store = Store(home.store)
    names = {folder: f"small/{folder.name}" for folder in (newest, middle, oldest)}
    if why != "young":
        assert said in found.protected[names[subject]]
    for folder in (newest, middle, oldest):
        artifacts = [stage.artifact for stage in read_record(folder).stages]
        whole = all(store.holds(artifact) for artifact in artifacts if artifact)
        expected = folder in (subject, newest)
        assert whole == expected
        assert (names[folder] in found.given_up) == (not expected)
        assert (folder / "models" / "ort" / "model.onnx").is_file(), (
            "a run's folder is never touched"
        )


def test_it_never_runs_beside_a_run(home: Home) -> None:
    before = content(home)
    with in_use(home.store), pytest.raises(StoreError, match="another process uses the store"):
        collect_garbage(home)
    assert content(home) == before
    collect_garbage(home)


def test_a_run_holds_the_lock(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def sweep(self: Store) -> int:
        with pytest.raises(StoreError, match="another process") as caught:
            collect_garbage(home)
        refused.append(str(caught.value))
        return 0

    monkeypatch.setattr(Store, "sweep", sweep)
    make_run(home.root, verify={"seed": 12, "tolerance": {"max_abs": 1e-5}})
    assert refused


def _collect_and_die(root: Path, after: int) -> None:
    removed = 0
    real = garbage_collection._remove

    def remove(path: Path, digests: DigestCache) -> None:
        nonlocal removed
        if removed == after:
            os._exit(9)
        removed += 1
        real(path, digests)

    garbage_collection._remove = remove
    collect_garbage(Home(root))


@pytest.mark.parametrize("after", [0, 2, 5])
@pytest.mark.sampled(2)
def test_a_killed_collection_leaves_a_whole_store(home: Home, after: int) -> None:
    shutil.rmtree(home.store / "latest")
    needed = needed_by_runs(home)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_collect_and_die, args=(home.root, after))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert list(Store(home.store).verify()) == []
    # A record never promises an artifact that is gone.
    for path in (home.store / "stages").glob("*.json"):
        assert Store(home.store).record(path.stem) is not None
    collect_garbage(home)
    assert {name for name in content(home) if not name.startswith("runs/")} == needed


def test_a_run_that_cannot_be_read_stops_it(home: Home) -> None:
    before = content(home)
    (home.run_folders()[0] / "result.json").write_text("{")
    with pytest.raises(UsageError, match="nothing was removed"):
        collect_garbage(home)
    assert content(home) == before


def test_a_home_without_a_store_has_nothing_to_free(tmp_path: Path) -> None:
    found = collect_garbage(Home(tmp_path / "nothing"))
    assert (found.freed, found.runs) == ((), 0)
    assert not (tmp_path / "nothing").exists()


def test_the_command_prints_what_it_frees_by_kind(home: Home) -> None:
    code, text = command_line("store", "gc", "--dry-run", home=home.root)
    assert code == 0
    assert "objects: " in text
    assert "MB would be freed; 3 runs keep theirs" in text
    code, text = command_line("store", "gc", "--json", home=home.root)
    found = json.loads(text)
    assert found["bytes"] == sum(each["bytes"] for each in found["freed"])
    assert {each["kind"] for each in found["freed"]} >= {"objects", "stage records"}
