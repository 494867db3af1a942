import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from package_index import PackageIndex
from wheel_folder import write_wheel

from convkit.host.toolchain.versions import interpreters
from convkit.host.toolchain.versions.interpreters import find_interpreter, platform_name
from convkit.host.toolchain.versions.stage_requirements import CONVKIT_DEFAULT, EnvironmentSpec
from convkit.host.toolchain.versions.uv_commands import failure_of
from convkit.host.toolchain.versions.version_resolution import (
    Resolution,
    resolution_file,
    resolve,
    resolve_anew,
    resolved,
)
from convkit.protocol.errors import ToolchainError

HERE = f"{interpreters.sys.version_info.major}.{interpreters.sys.version_info.minor}"


def spec(
    *requirements: str, python: str = HERE, origins: tuple[tuple[str, str], ...] = ()
) -> EnvironmentSpec:
    return EnvironmentSpec(python, requirements, origins)


def test_the_newest_releases_that_fit_are_chosen_and_remembered(
    wheels: Path, tmp_path: Path, no_uv: Callable[[], None]
) -> None:
    wanted = spec("beta")
    assert resolved(wanted, tmp_path) is None
    resolution = resolve(wanted, tmp_path)
    assert resolution.packages == {"alpha": "1.1", "beta": "1.0"}
    assert (resolution.python, resolution.source) == (HERE, "index")
    pins = [line.partition(" --hash=sha256:")[0] for line in resolution.text.splitlines()]
    assert pins == ["alpha==1.1", "beta==1.0"]
    wheel = next(wheels.glob("alpha-1.1-*.whl"))
    assert resolution.hashes["alpha"] == (
        f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}",
    )
    # What is remembered holds pins only: no address of an index or a folder.
    assert resolution_file(wanted, tmp_path).read_text() == resolution.text
    no_uv()
    write_wheel(
        wheels, "alpha", "1.2"
    )  # newer, and not looked at: a recipe's tools stay as they were
    assert resolve(wanted, tmp_path) == resolved(wanted, tmp_path) == resolution


@pytest.mark.parametrize("missed", [(1,), (1, 2)])
def test_servers_that_disagree_about_a_new_release_are_asked_again(
    index: PackageIndex, tmp_path: Path, missed: tuple[int, ...]
) -> None:
    index.missed.update(missed)
    resolution = resolve(spec("alpha"), tmp_path)
    assert resolution.packages == {"alpha": "2.0"}
    assert resolution.hashes["alpha"]
    assert index.pages == 2 + len(missed)


@pytest.mark.thorough
def test_a_release_that_no_server_lists_any_more_is_reported(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.missed.update(range(1, 10))
    with pytest.raises(ToolchainError, match="finding the hashes of the tools failed"):
        resolve(spec("alpha"), tmp_path)
    assert index.pages == 4


def test_another_specifier_python_or_home_is_another_question(wheels: Path, tmp_path: Path) -> None:
    resolve(spec("alpha"), tmp_path)
    assert resolved(spec("alpha<2"), tmp_path) is None
    assert resolved(spec("alpha", python="3.99"), tmp_path) is None
    assert resolved(spec("alpha"), tmp_path / "other") is None
    assert resolve(spec("alpha<2"), tmp_path).packages == {"alpha": "1.1"}


def test_the_digest_tells_versions_python_and_platform_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Resolution("3.11", {"alpha": "1.0"}).digest
    assert one == Resolution("3.11", {"alpha": "1.0"}).digest
    others = {
        Resolution("3.12", {"alpha": "1.0"}).digest,
        Resolution("3.11", {"alpha": "1.1"}).digest,
    }
    monkeypatch.setattr(
        "convkit.host.toolchain.versions.version_resolution.platform_name", lambda: "elsewhere"
    )
    others.add(Resolution("3.11", {"alpha": "1.0"}).digest)
    assert one not in others
    assert len(others) == 3
    assert platform_name()


@pytest.mark.parametrize(
    "text",
    [
        *("", "alpha==1.0\ngarbage\n"),
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("alpha", "alpha>=1\n", "\0")),
    ],
)
def test_a_damaged_memory_is_made_anew(wheels: Path, tmp_path: Path, text: str) -> None:
    resolve(spec("alpha"), tmp_path)
    resolution_file(spec("alpha"), tmp_path).write_text(text)
    assert resolved(spec("alpha"), tmp_path) is None
    assert resolve(spec("alpha"), tmp_path).packages == {"alpha": "2.0"}


def test_releases_that_do_not_fit_are_reported_with_the_keys_that_chose_them(
    wheels: Path, tmp_path: Path
) -> None:
    origins = (("alpha", "targets.ort.tools.alpha"), ("beta", CONVKIT_DEFAULT))
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("alpha==2.*", "beta==1.*", origins=origins), tmp_path)
    message = str(caught.value)
    assert "no releases fit together" in message
    assert "alpha==2.* comes from targets.ort.tools.alpha" in message
    assert "beta==1.* is convkit's default" in message
    assert resolved(spec("alpha==2.*", "beta==1.*"), tmp_path) is None  # failures are never kept


@pytest.mark.thorough
def test_only_the_keys_that_matter_are_named(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "alpha-extra", "1.0")
    origins = (
        ("alpha", "tools.alpha"),
        ("alpha-extra", "tools.alpha-extra"),
        ("beta", "tools.beta"),
    )
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("alpha-extra==9.*", "alpha", "beta", origins=origins), tmp_path)
    assert "alpha-extra==9.* comes from tools.alpha-extra" in str(caught.value)
    assert "tools.alpha\n" not in str(caught.value)
    assert "tools.beta" not in str(caught.value)


@pytest.mark.thorough
def test_a_known_bad_pair_is_resolved_around(wheels: Path, tmp_path: Path) -> None:
    """Wheels that stand in for the real ones, whose metadata let NumPy 2 in."""
    for version in ("1.17.0", "1.19.0"):
        write_wheel(wheels, "onnxruntime", version, requires=["numpy>=1.24"])
    for version in ("1.26.4", "2.1.0"):
        write_wheel(wheels, "numpy", version)
    old = spec("numpy<3,>=1.24", "onnxruntime==1.17.*")
    assert resolve(old, tmp_path).packages == {"numpy": "1.26.4", "onnxruntime": "1.17.0"}
    new = spec("numpy<3,>=1.24", "onnxruntime==1.19.*")
    assert resolve(new, tmp_path).packages == {"numpy": "2.1.0", "onnxruntime": "1.19.0"}
    origins = (("numpy", "tools.numpy"), ("onnxruntime", "targets.ort.versions"))
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("numpy>=2", "onnxruntime==1.17.*", origins=origins), tmp_path)
    assert "known: onnxruntime<1.19 needs numpy<2" in str(caught.value)
    assert "numpy>=2 comes from tools.numpy" in str(caught.value)
    assert "onnxruntime==1.17.* comes from targets.ort.versions" in str(caught.value)


@pytest.mark.thorough
def test_the_project_around_does_not_matter(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.uv]\nconstraint-dependencies = ["alpha<2"]\n'
    )
    monkeypatch.chdir(project)
    assert resolve(spec("alpha"), project / "runs").packages == {"alpha": "2.0"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_FIND_LINKS", "wheels")  # from the folder convkit was called in
    assert resolve(spec("alpha==1.0"), tmp_path).packages == {"alpha": "1.0"}


def test_offline_with_nothing_cached_says_what_is_missing_and_what_to_do(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("idna==3.*"), tmp_path)
    assert "idna is not in uv's cache" in str(caught.value)
    assert "UV_FIND_LINKS" in str(caught.value)


def test_a_network_that_is_away_is_named_and_passwords_are_not(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://me:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("idna==3.*"), tmp_path)
    assert "idna could not be fetched: cannot reach the package index" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        (
            "error: Failed to install: x\n  cause: No space left on device (os error 28)",
            "disk_full",
        ),
        (
            (
                "error: Failed to fetch: http://i/simple/x/\n  cause: HTTP status client error (401"
                " Unauthorized)"
            ),
            "refused",
        ),
        ("error: Failed to fetch: http://i/simple/x/\n  cause: dns error", "unreachable"),
        ("error: No solution found when resolving dependencies", "no_versions"),
        ("error: Failed to download `x==1`\n  cause: Hash mismatch for `x==1`", "changed"),
        ("error: something new", "other"),
    ],
)
def test_ways_to_fail_are_told_apart(printed: str, kind: str) -> None:
    failure = failure_of(
        f"warning: Failed to inspect Python: timed out\n  cause: dns error\n{printed}"
    )
    assert failure.kind == kind
    assert failure.advice()
    assert "inspect" not in failure.words


def test_a_python_that_is_not_here_is_named_with_those_that_are(
    wheels: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ToolchainError, match=r"tools\.python: Python 3\.99 is not on this machine \(found: .*3\."
    ):
        resolve(spec("alpha", python="3.99", origins=(("python", "tools.python"),)), tmp_path)


def test_a_python_too_old_for_the_workers_is_refused(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"Python 3\.9 is too old"):
        resolve(spec("alpha", python="3.9"), tmp_path)


def test_our_own_python_is_found_without_uv(no_uv: Callable[[], None]) -> None:
    no_uv()
    assert find_interpreter(HERE, "tools.python").is_file()


def test_uv_that_is_not_there(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "convkit.host.toolchain.versions.uv_commands.uv_binary", lambda: "/nowhere/uv"
    )
    with pytest.raises(ToolchainError, match="pip install uv"):
        resolve(spec("alpha"), tmp_path)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.thorough
def test_the_real_index_gives_old_onnxruntime_an_old_numpy(tmp_path: Path) -> None:
    packages = resolve(spec("numpy<3,>=1.24", "onnxruntime==1.17.*"), tmp_path).packages
    assert packages["onnxruntime"].startswith("1.17.")
    assert packages["numpy"].startswith("1.")


@pytest.mark.thorough
def test_a_release_for_a_newer_macos_names_the_variable_that_helps(
    wheels: Path, tmp_path: Path
) -> None:
    write_wheel(wheels, "newer", "1.0")
    (wheels / "newer-1.0-py3-none-any.whl").rename(
        wheels / "newer-1.0-py3-none-macosx_26_0_arm64.whl"
    )
    with pytest.raises(ToolchainError, match=r"MACOSX_DEPLOYMENT_TARGET=15\.0"):
        resolve_anew(spec("newer"), "aarch64-apple-darwin")
    with pytest.raises(ToolchainError) as caught:
        resolve_anew(spec("alpha==7"), "aarch64-apple-darwin")
    assert "MACOSX" not in str(caught.value)
