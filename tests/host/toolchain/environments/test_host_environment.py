import importlib.metadata
import platform
import shutil
import sys
from pathlib import Path

import pytest

from convkit.host.toolchain.environments import host_environment as host
from convkit.host.toolchain.environments.host_environment import (
    check_host,
    host_environment,
    host_packages,
    host_python,
)
from convkit.host.toolchain.versions.stage_requirements import CONVKIT_DEFAULT, EnvironmentSpec
from convkit.protocol.errors import ToolchainError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def spec(
    *requirements: str, python: str = HERE, origins: tuple[tuple[str, str], ...] = ()
) -> EnvironmentSpec:
    return EnvironmentSpec(python, requirements, origins)


def test_what_is_installed_and_what_it_depends_on_is_told() -> None:
    packages = host_packages(spec("jinja2>=3", "filelock"))
    assert packages == {
        name: importlib.metadata.version(name) for name in ("filelock", "jinja2", "markupsafe")
    }
    environment = host_environment(spec("filelock"))
    assert environment.python == host_python()
    assert str(environment.python) == sys.executable


def test_extras_bring_their_dependencies_and_their_absence_does_not() -> None:
    plain, extra = host_packages(spec("jinja2")), host_packages(spec("mlflow[extras]"))
    assert "babel" not in plain
    assert set(plain) < set(extra)


def test_packages_installed_or_removed_meanwhile_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(version: str) -> None:
        folder = tmp_path / f"recently_installed-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: recently-installed\nVersion: {version}\n"
        )

    monkeypatch.syspath_prepend(tmp_path)
    wanted = spec("recently-installed")
    assert check_host(wanted) != []
    install("1.0")
    assert host_packages(wanted) == {"recently-installed": "1.0"}
    shutil.rmtree(tmp_path / "recently_installed-1.0.dist-info")
    install("2.0")
    assert host_packages(wanted) == {"recently-installed": "2.0"}


def test_packages_that_only_pythonpath_has_are_missing_for_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "beside-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: beside\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert check_host(spec("beside")) == []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (problem,) = check_host(spec("beside"))
    assert problem.startswith(f"beside is only in {tmp_path}, which stages do not see")


@pytest.mark.thorough
def test_another_build_of_a_package_stands_in_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(name: str, module: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-3.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.1\n")
        (folder / "top_level.txt").write_text(f"{module}\n")

    monkeypatch.syspath_prepend(tmp_path)
    wanted = spec("convlib>=3")
    install("convlib-tools", "convlib_tools")  # a name alone provides nothing
    assert len(check_host(wanted)) == 1
    install("convlib-gpu", "convlib")
    assert host_packages(wanted) == {"convlib-gpu": "3.1"}
    too_old = spec("convlib>=4", origins=(("convlib", "tools.convlib"),))
    assert check_host(too_old) == ["convlib is 3.1; tools.convlib says convlib>=4"]
    install("convlib-silicon", "convlib")  # nobody knows whose files are there
    assert len(check_host(wanted)) == 1


def test_everything_missing_or_of_another_release_is_listed_at_once() -> None:
    origins = (
        ("filelock", "tools.filelock"),
        ("no-such-package", "targets.ort.tools.no-such-package"),
    )
    wanted = spec("filelock==0.*", "jinja2", "no-such-package>=1", python="3.99", origins=origins)
    problems = check_host(wanted)
    assert len(problems) == 3
    with pytest.raises(ToolchainError) as caught:
        host_packages(wanted)
    message = str(caught.value)
    assert (
        f"filelock is {importlib.metadata.version('filelock')}; tools.filelock says filelock==0.*"
        in message
    )
    assert (
        "no-such-package is not installed; targets.ort.tools.no-such-package says"
        " no-such-package>=1" in message
    )
    assert f"Python is {platform.python_version()}; the recipe says 3.99" in message
    assert "--toolchain host" in message


def test_convkits_own_defaults_are_no_reason_to_refuse_but_absence_is() -> None:
    origins = (
        ("python", CONVKIT_DEFAULT),
        ("filelock", CONVKIT_DEFAULT),
        ("no-such-package", CONVKIT_DEFAULT),
    )
    assert check_host(spec("filelock==0.*", python="3.99", origins=origins)) == []
    assert len(check_host(spec("no-such-package", origins=origins))) == 1


@pytest.mark.parametrize(
    ("release", "fits"), [(HERE, True), (platform.python_version(), True), (f"{HERE}.99", False)]
)
def test_pythons_release_is_compared_by_its_parts(release: str, fits: bool) -> None:
    assert (check_host(spec("filelock", python=release)) == []) is fits
    assert check_host(spec("filelock", python=HERE[:-1])) != []  # 3.1 is not the beginning of 3.11


def test_a_known_bad_pair_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        host, "_installed", lambda _spec: {"onnxruntime": "1.17.0", "numpy": "2.1.0"}
    )
    assert any("onnxruntime<1.19 needs numpy<2" in problem for problem in check_host(spec("numpy")))
