"""The first stages' environments are built while other versions are still being resolved."""

import threading
from pathlib import Path

import pytest
from small_recipe import recipe

from convkit.errors import ToolchainError
from convkit.execute import head_start
from convkit.execute.head_start import with_head_start
from convkit.home import Home
from convkit.plan.stages import plan_stages
from convkit.store.digests import digest_json
from convkit.store.records import StageRecord
from convkit.store.store import Store
from convkit.toolchain.requirements import EnvironmentSpec
from convkit.toolchain.resolution import Resolution

STAGES = plan_stages(recipe())
EXPORT = next(stage.environment for stage in STAGES if stage.id == "export")
BUILD = next(stage.environment for stage in STAGES if stage.id == "build:ort")


def versions(spec: EnvironmentSpec) -> Resolution:
    return Resolution(spec.python, {"package": str(len(spec.requirements))})


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Resolution]:
    """What is built; the building itself is mocked, and fails."""
    found: list[Resolution] = []

    def build(resolution: Resolution, home: Path, *, progress: object) -> None:
        found.append(resolution)
        raise ToolchainError("there is no index")

    monkeypatch.setattr(head_start, "ensure_environment", build)
    return found


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "head-start":
            thread.join()


def test_what_the_first_stages_need_is_built_at_once_and_nothing_else(
    tmp_path: Path, built: list[Resolution]
) -> None:
    assert EXPORT != BUILD
    tools = with_head_start(versions, STAGES, "small", Home(tmp_path), Store(tmp_path / "store"))
    assert [tools(spec) for spec in (EXPORT, BUILD)] == [versions(EXPORT), versions(BUILD)]
    settle()
    assert built == [versions(EXPORT)]


def test_nothing_is_built_for_stages_that_may_be_cached_or_are_unknown(
    tmp_path: Path, built: list[Resolution]
) -> None:
    store = Store(tmp_path / "store")
    (tmp_path / "output").mkdir()
    artifact = store.take_in(tmp_path / "output")
    for name in ("export", "reference"):
        kind = next(stage.kind for stage in STAGES if stage.id == name)
        key = digest_json(name)
        record = StageRecord(key, name, kind, {}, {}, artifact, None, (), {}, 1.0, 1, 0.0)
        store.put_record(record, "")
        store.set_latest("small", name, key)
    with_head_start(versions, STAGES, "small", Home(tmp_path), store)(EXPORT)
    with_head_start(lambda _: None, STAGES, "other", Home(tmp_path), store)(EXPORT)
    settle()
    assert built == []
