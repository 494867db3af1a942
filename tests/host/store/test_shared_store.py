"""The shared store: in a folder, in fsspec's memory, and in a bucket of a local S3 server."""

import builtins
import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from convkit.host.store.digests import DigestCache
from convkit.host.store.shared_store import SharedStore
from convkit.host.store.store import StageRecord, Store
from convkit.protocol.errors import FleetError, StoreError, StoreUnreachable


def record(artifact: str, key: str = "k1", seconds: float = 1.0) -> StageRecord:
    return StageRecord(
        key, "export", "export", {"a": "1"}, {}, artifact, None, (), {}, seconds, 0, 0.0
    )


@pytest.fixture(params=["file", "memory"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStore:
    return SharedStore(
        (tmp_path / "shared").as_uri() if request.param == "file" else f"memory://{tmp_path}"
    )


@pytest.fixture
def here(tmp_path: Path) -> Store:
    return Store(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Store:
    return Store(tmp_path / "there")


def take_in(store: Store, folder: Path, **files: str) -> str:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return store.take_in(folder)


def spoil(shared: SharedStore, part: str, content: bytes = b"other") -> str:
    fs, root = fsspec.core.url_to_fs(shared.url)
    (path,) = [path for path in fs.find(f"{root}/{part}") if not path.endswith(".part")]
    if fs.protocol != "memory":
        Path(path).unlink()
    fs.pipe_file(path, content)
    return path.rpartition("/")[2]


def test_what_is_pushed_comes_back_whole(
    shared: SharedStore, here: Store, there: Store, tmp_path: Path
) -> None:
    artifact = take_in(
        here, tmp_path / "in", model="weights", deep__er="text", twin="text", empty=""
    )
    assert not shared.holds(artifact)
    shared.push(artifact, here)
    shared.push(artifact, here)
    assert shared.holds(artifact)
    SharedStore(shared.url).pull(artifact, there)
    view = there.view(artifact)
    assert {
        path.relative_to(view).as_posix(): path.read_text()
        for path in view.rglob("*")
        if path.is_file()
    } == {"model": "weights", "deep/er": "text", "twin": "text", "empty": ""}
    assert there.files(artifact) == here.files(artifact)
    assert list(there.verify()) == []


def test_an_artifact_without_files_is_one_too(shared: SharedStore, there: Store) -> None:
    artifact = shared.push_files({}, there.digests)
    shared.pull(artifact, there)
    assert list(there.view(artifact).iterdir()) == []


def test_files_from_anywhere_are_an_artifact(
    shared: SharedStore, there: Store, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text("code")
    artifact = shared.push_files(
        {"recipes/model.py": tmp_path / "model.py"}, DigestCache(tmp_path / "digests")
    )
    shared.pull(artifact, there)
    assert (there.view(artifact) / "recipes" / "model.py").read_text() == "code"
    with pytest.raises(StoreError, match=r"gone\.py: cannot be read"):
        shared.push_files({"gone.py": tmp_path / "gone.py"}, DigestCache(tmp_path / "digests"))


def test_a_corrupted_object_is_refused_by_name(
    shared: SharedStore, here: Store, there: Store, tmp_path: Path
) -> None:
    artifact = take_in(here, tmp_path / "in", model="weights")
    shared.push(artifact, here)
    name = spoil(shared, "objects", b"weighty")
    with pytest.raises(
        StoreError, match=f"{name}: damaged: the bytes do not match.*Remove.*{artifact}"
    ):
        shared.pull(artifact, there)
    assert not there.holds(artifact)
    assert not list((there.root / "objects").glob("*/*"))


def test_the_advice_for_a_corrupted_object_mends_it(
    tmp_path: Path, here: Store, there: Store
) -> None:
    shared = SharedStore((tmp_path / "shared").as_uri())
    artifact = take_in(here, tmp_path / "in", model="weights")
    shared.push(artifact, here)
    name = spoil(shared, "objects", b"weighty")
    with pytest.raises(StoreError):
        shared.pull(artifact, there)
    (tmp_path / "shared" / "objects" / name[:2] / name).unlink()
    (tmp_path / "shared" / "artifacts" / f"{artifact}.json").unlink()
    shared.push(artifact, here)
    shared.pull(artifact, there)
    assert there.holds(artifact)


def test_a_missing_object_and_a_changed_list_are_refused(
    shared: SharedStore, here: Store, there: Store, tmp_path: Path
) -> None:
    artifact = take_in(here, tmp_path / "in", model="weights")
    with pytest.raises(StoreError, match="has no artifact"):
        shared.pull(artifact, there)
    shared.push(artifact, here)
    entry = here.files(artifact)["model"]
    fs, root = fsspec.core.url_to_fs(shared.url)
    fs.rm(f"{root}/objects/{entry.sha256[:2]}/{entry.sha256}")
    with pytest.raises(StoreError, match=f"{entry.sha256}: damaged: it is missing"):
        shared.pull(artifact, there)
    spoil(
        shared,
        "artifacts",
        json.dumps({"../../model": {"sha256": entry.sha256, "size": entry.size}}).encode(),
    )
    with pytest.raises(StoreError, match="the list of files does not match"):
        shared.pull(artifact, there)


def test_a_damaged_local_object_is_not_pushed(
    shared: SharedStore, here: Store, tmp_path: Path
) -> None:
    artifact = take_in(here, tmp_path / "in", model="weights")
    path = here.object(here.files(artifact)["model"].sha256)
    path.chmod(0o644)
    path.write_text("weighty")
    with pytest.raises(StoreError, match="convkit store verify"):
        shared.push(artifact, here)
    assert not shared.holds(artifact)


def test_of_two_records_under_a_key_the_first_stands(
    shared: SharedStore, here: Store, there: Store, tmp_path: Path
) -> None:
    first, second = (
        take_in(here, tmp_path / "a", model="one"),
        take_in(here, tmp_path / "b", model="two"),
    )
    for artifact in (first, second):
        shared.push(artifact, here)
    assert shared.record("k1") is None
    assert shared.push_record(record(first), "said one") == record(first)
    assert shared.push_record(record(second), "said two") == record(first)
    assert SharedStore(shared.url).adopt("k1", there) == record(first)
    assert (there.record("k1"), there.log("k1")) == (record(first), "said one")


def test_many_at_once_agree_on_one_record(tmp_path: Path, here: Store) -> None:
    url = (tmp_path / "shared").as_uri()
    artifacts = [take_in(here, tmp_path / f"in{i}", model=str(i)) for i in range(12)]
    for artifact in artifacts:
        SharedStore(url).push(artifact, here)
    standing: list[str] = []

    def push(artifact: str) -> None:
        standing.append(SharedStore(url).push_record(record(artifact), artifact).artifact)

    threads = [threading.Thread(target=push, args=(artifact,)) for artifact in artifacts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(standing) == 12
    assert len(set(standing)) == 1


def test_a_damaged_record_is_refused_and_one_without_its_artifact_is_none(
    shared: SharedStore, here: Store, tmp_path: Path
) -> None:
    artifact = take_in(here, tmp_path / "in", model="weights")
    shared.push(artifact, here)
    shared.push_record(record(artifact), "")
    fs, root = fsspec.core.url_to_fs(shared.url)
    text = json.loads(fs.cat_file(f"{root}/stages/k1.json"))
    text["content"]["record"]["seconds"] = 2.0
    spoil(shared, "stages", json.dumps(text).encode())
    with pytest.raises(StoreError, match=r"k1\.json: damaged: .*its contents do not match"):
        shared.record("k1")
    fs.rm(f"{root}/stages/k1.json")
    shared.push_record(record(artifact), "")
    fs.rm(f"{root}/artifacts/{artifact}.json")
    again = SharedStore(shared.url)
    assert again.record("k1") is None
    other = take_in(here, tmp_path / "other", model="others")
    again.push(other, here)
    assert again.push_record(record(other), "").artifact == other, (
        "a record that vouches for nothing makes room"
    )


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, here: Store) -> None:
    (tmp_path / "file").write_text("in the way")
    artifact = take_in(here, tmp_path / "in", model="weights")
    with pytest.raises(StoreUnreachable, match="cannot be used"):
        SharedStore((tmp_path / "file" / "shared").as_uri()).push(artifact, here)


def test_an_address_that_is_none_and_a_missing_extra_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(FleetError, match="nonsense"):
        SharedStore("nonsense://bucket")
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("fsspec"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FleetError, match=r"pip install -e .*\[fleet\]"):
        SharedStore("file:///tmp/shared")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server_of = pytest.importorskip("moto.server", reason="no local S3 server")
    pytest.importorskip("s3fs", reason="no s3fs")
    server = server_of.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    name = f"models-{secrets.token_hex(4)}"
    fs.mkdir(name)
    yield f"s3://{name}/convkit"
    server.stop()
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:botocore", "ignore::DeprecationWarning:moto"
)
def test_a_bucket_is_a_store(bucket: str, here: Store, there: Store, tmp_path: Path) -> None:
    shared = SharedStore(bucket)
    first, second = (
        take_in(here, tmp_path / "a", deep__model="one"),
        take_in(here, tmp_path / "b", model="two"),
    )
    for artifact in (first, second):
        shared.push(artifact, here)
    assert shared.record("k1") is None
    assert shared.push_record(record(first), "said").artifact == first
    assert shared.push_record(record(second), "said").artifact == first
    assert SharedStore(bucket).adopt("k1", there) == record(first)
    entry = here.files(second)["model"]
    fs, root = fsspec.core.url_to_fs(bucket)
    fs.pipe_file(f"{root}/objects/{entry.sha256[:2]}/{entry.sha256}", b"xxx")
    with pytest.raises(StoreError, match=rf"s3://.*{entry.sha256}: damaged"):
        shared.pull(second, there)
    with pytest.raises(StoreUnreachable, match="credentials"):
        SharedStore("s3://no-such-bucket/convkit").push(first, here)
