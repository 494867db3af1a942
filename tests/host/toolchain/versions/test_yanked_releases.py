"""Releases that are yanked or gone, on an index that these tests serve."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from package_index import PackageIndex
from wheel_folder import write_wheel

from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    environments_folder,
)
from convkit.host.toolchain.environments.sealing import MARKER
from convkit.host.toolchain.versions.missing_releases import missing_releases
from convkit.host.toolchain.versions.stage_requirements import CONVKIT_DEFAULT, EnvironmentSpec
from convkit.host.toolchain.versions.uv_commands import Failure, failure_of, warnings_of
from convkit.host.toolchain.versions.version_findings import version_findings
from convkit.host.toolchain.versions.version_resolution import (
    Resolution,
    resolution_file,
    resolve,
    resolved,
)
from convkit.host.toolchain.versions.yanked_releases import yanked_in
from convkit.protocol.errors import ToolchainError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ORIGINS = (("alpha", "tools.alpha"), ("beta", "targets.ort.tools.beta"))


def spec(*requirements: str) -> EnvironmentSpec:
    return EnvironmentSpec(HERE, requirements, ORIGINS)


def quiet(_message: str) -> None:
    """Take no notice of progress."""


def test_a_yanked_release_is_found_remembered_and_reported_without_the_network(
    index: PackageIndex, tmp_path: Path, no_uv: Callable[[], None]
) -> None:
    index.yank("alpha", "1.1", "wrong <results>")
    wanted = spec("alpha==1.1")
    resolution = resolve(wanted, tmp_path)
    assert resolution.yanked == {"alpha": "wrong <results>"}
    text = resolution_file(wanted, tmp_path).read_text()
    assert text == f"{resolution.text}# yanked: alpha==1.1 wrong <results>\n"
    asked = len(index.requests)
    no_uv()
    remembered = resolved(wanted, tmp_path)
    assert remembered is not None
    (finding,) = version_findings(remembered, wanted)
    assert (finding.code, finding.severity, finding.is_error) == ("V105", "warning", False)
    assert finding.message == "alpha 1.1 was yanked from the index: wrong <results>"
    assert finding.evidence["origin"] == "tools.alpha"
    assert finding.remedy is not None
    assert "tools.alpha" in finding.remedy.text
    assert len(index.requests) == asked


def test_a_release_in_good_standing_gives_no_finding(index: PackageIndex, tmp_path: Path) -> None:
    index.yank("alpha", "1.0", "another one")
    resolution = resolve(spec("alpha==1.1"), tmp_path)
    assert resolution.yanked == {}
    assert version_findings(resolution, spec("alpha==1.1")) == []
    assert resolution_file(spec("alpha==1.1"), tmp_path).read_text() == resolution.text


def test_a_yank_is_no_part_of_an_environment_s_identity() -> None:
    one, other = (
        Resolution(HERE, {"alpha": "1.1"}),
        Resolution(HERE, {"alpha": "1.1"}, yanked={"alpha": "why"}),
    )
    assert one == other
    assert one.digest == other.digest
    assert one.text == other.text


@pytest.mark.thorough
def test_a_release_yanked_after_it_was_resolved_is_noticed_when_it_is_installed(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = spec("alpha==1.1")
    resolution = resolve(wanted, tmp_path)
    assert resolution.yanked == {}
    index.yank("alpha", "1.1", "")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another cache"))
    environment = ensure_environment(resolution, tmp_path, progress=quiet)
    assert environment.yanked == {"alpha": "no reason given"}
    again = resolved(wanted, tmp_path)
    assert again is not None
    assert again.yanked == environment.yanked
    assert "yanked" in (environments_folder(tmp_path) / resolution.digest / MARKER).read_text()
    shutil.rmtree(environments_folder(tmp_path) / resolution.digest)
    assert ensure_environment(again, tmp_path, progress=quiet).yanked == environment.yanked


def test_where_only_a_yanked_release_would_fit_the_key_and_the_way_out_are_named(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.yank("alpha", "1.1", "broken build")
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("alpha==1.1.*"), tmp_path)
    message = str(caught.value)
    assert "alpha 1.1 is yanked: its maintainers withdrew it, saying 'broken build'" in message
    assert "alpha==1.1.* comes from tools.alpha." in message
    assert 'alpha: "==1.1"' in message


@pytest.mark.thorough
def test_a_release_that_is_not_on_the_index_names_package_key_and_fix(
    index: PackageIndex, tmp_path: Path
) -> None:
    index.remove("alpha", "1.1")
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("alpha==1.1", "beta"), tmp_path)
    message = str(caught.value)
    assert "the index has no alpha 1.1 for Python" in message
    assert "it was removed, never released, or not built for it. alpha==1.1 comes from" in message
    assert "alpha==1.1 comes from tools.alpha. Write a release there that the index has" in message


@pytest.mark.thorough
def test_a_package_that_is_not_on_the_index_and_convkit_s_own_choice(
    index: PackageIndex, tmp_path: Path
) -> None:
    unknown = EnvironmentSpec(HERE, ("gamma==1.0",), (("gamma", CONVKIT_DEFAULT),))
    with pytest.raises(ToolchainError) as caught:
        resolve(unknown, tmp_path)
    assert (
        f"the index has no release of gamma for Python {HERE} on this platform. gamma==1.0 is"
        " convkit's default; tools.gamma in" in str(caught.value)
    )


@pytest.mark.thorough
def test_a_dependency_that_is_gone_is_left_to_uv_s_own_words(
    index: PackageIndex, tmp_path: Path
) -> None:
    write_wheel(index.folder, "delta", "1.0", requires=["alpha==7.7"])
    with pytest.raises(ToolchainError, match=r"no releases fit together(?s:.*)alpha==7\.7"):
        resolve(spec("delta"), tmp_path)


@pytest.mark.thorough
def test_all_missing_releases_are_named_at_once(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("alpha==7.*", "beta==9", "gamma"), tmp_path)
    message = str(caught.value)
    assert "the index has no release of alpha" in message
    assert "that meets ==7.*. alpha==7.* comes from tools.alpha" in message
    assert "the index has no beta 9 for Python" in message
    assert "the index has no release of gamma" in message


@pytest.mark.thorough
def test_what_is_missing_is_decided_by_uv_and_not_by_its_words(
    index: PackageIndex, tmp_path: Path
) -> None:
    """Words of another release of uv name nothing, or something that is there."""
    said = Failure("no_versions", None, "beta==1.0 was yanked, there is no version of beta==1.0")
    told = missing_releases(said, spec("alpha==7.7", "beta"))
    assert told is not None
    assert told.startswith("the index has no alpha 7.7 for Python")
    assert "beta" not in told
    assert missing_releases(said, spec("beta")) is None
    yanked = Failure("no_versions", None, "Because alpha==7.7 was yanked (reason: a guess)")
    told = missing_releases(yanked, spec("alpha==7.*"))
    assert told is not None
    assert "yanked" not in told


def test_where_several_of_the_recipe_s_packages_are_involved_all_their_keys_are_named(
    index: PackageIndex, tmp_path: Path
) -> None:
    """The yank is a link of the chain only: with another beta the recipe would do."""
    index.yank("alpha", "1.1", "broken build")
    with pytest.raises(ToolchainError) as caught:
        resolve(spec("alpha>1.0", "beta"), tmp_path)
    assert "alpha>1.0 comes from tools.alpha" in str(caught.value)
    assert "beta comes from targets.ort.tools.beta" in str(caught.value)


@pytest.mark.thorough
def test_a_remembered_release_that_is_gone_says_where_it_is_remembered(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = spec("alpha==1.1")
    resolution = resolve(wanted, tmp_path)
    index.remove("alpha", "1.1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another cache"))
    with pytest.raises(ToolchainError) as caught:
        ensure_environment(resolution, tmp_path, progress=quiet)
    message = str(caught.value)
    assert "the index has no alpha 1.1 for Python" in message
    assert str(resolution_file(wanted, tmp_path)) in message
    assert "tools.alpha" in message
    for source, told in (
        ("lock", "The recipe's lock pins it"),
        ("run", "A past run used it, and can be reproduced only with that release"),
    ):
        with pytest.raises(ToolchainError, match=told):
            ensure_environment(
                Resolution(HERE, {"alpha": "1.1"}, source=source), tmp_path, progress=quiet
            )


def test_whose_dependency_a_yanked_release_is() -> None:
    resolution = Resolution(
        HERE, {"alpha": "1.1", "zeta": "2"}, yanked={"alpha": "a", "zeta": "z", "gone": "g"}
    )
    wanted = EnvironmentSpec(HERE, ("alpha",), (("alpha", CONVKIT_DEFAULT),))
    first, second = version_findings(resolution, wanted)
    assert first.remedy is not None
    assert second.remedy is not None
    assert first.remedy.text.startswith("Pin a release that was not yanked under tools.alpha")
    assert second.remedy.text.startswith("zeta is a dependency of another tool")


PRINTED = """Resolved 2 packages in 5ms
warning: `alpha==1.1` is yanked (reason: "it says
  too much")
warning: `Beta_x==2` is yanked
warning: something else
error: No solution found
  cause: because
"""


def test_uv_s_warnings_are_parted_from_its_progress_and_its_errors() -> None:
    warnings = warnings_of(PRINTED)
    assert len(warnings) == 3
    assert yanked_in(warnings) == {"alpha": "it says too much", "beta-x": "no reason given"}
    assert failure_of(PRINTED).words == "  error: No solution found\n  because"
