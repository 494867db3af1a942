import os
from pathlib import Path

import pytest

from convkit.host.toolchain.versions.pip_configuration import configuration_files, pip_setting
from convkit.host.toolchain.versions.uv_commands import index_options, uv_environment


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine whose only pip configuration lies below `tmp_path`."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    files = configuration_files
    monkeypatch.setattr(
        "convkit.host.toolchain.versions.pip_configuration.configuration_files",
        lambda environment: [path for path in files(environment) if path.is_relative_to(tmp_path)],
    )
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": str(tmp_path / "machine"),
        "PATH": "/bin",
    }


def test_the_places_stand_in_pips_order(surroundings: dict[str, str], tmp_path: Path) -> None:
    """As `pip config debug` lists them; each comes before the ones above it here."""
    places = [
        tmp_path / "machine" / "pip" / "pip.conf",
        tmp_path / "home" / ".pip" / "pip.conf",
        tmp_path / "home" / ".config" / "pip" / "pip.conf",
        tmp_path / "prefix" / "pip.conf",
        tmp_path / "named.conf",
    ]
    environment = surroundings | {"PIP_CONFIG_FILE": str(tmp_path / "named.conf")}
    assert pip_setting("find-links", environment) is None
    for number, place in enumerate(places):
        write(place, f"[global]\nfind-links = /wheels/{number}\n")
        assert pip_setting("find-links", environment) == f"/wheels/{number}"
    assert pip_setting("find-links", environment | {"PIP_FIND_LINKS": " /variable "}) == "/variable"
    assert configuration_files({"PIP_CONFIG_FILE": os.devnull}) == ()


def test_the_section_of_install_comes_before_global_in_any_file(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "machine" / "pip" / "pip.conf", "[install]\nfind-links = /install\n")
    write(tmp_path / "prefix" / "pip.conf", "[global]\nfind-links = /global\n")
    assert pip_setting("find-links", surroundings) == "/install"


@pytest.mark.parametrize(
    "text",
    ["find-links = /no/section", "\x00\xff", "[global]\nno-value\n", "[global]\nindex = %(x\n"],
)
def test_a_damaged_file_says_nothing(
    surroundings: dict[str, str], tmp_path: Path, text: str
) -> None:
    write(tmp_path / "home" / ".pip" / "pip.conf", "[global]\nfind-links = /good\n")
    write(tmp_path / "prefix" / "pip.conf", text)
    assert pip_setting("find-links", surroundings) == "/good"


def test_several_places_are_handed_to_uv_by_commas_and_whole(
    surroundings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", surroundings["HOME"])
    write(
        tmp_path / "prefix" / "pip.conf",
        "[global]\nfind-links =\n  wheels\n  ~/more\n  https://wheels.example/x\n",
    )
    expected = f"{tmp_path}/wheels,{surroundings['HOME']}/more,https://wheels.example/x"
    assert uv_environment(surroundings)["UV_FIND_LINKS"] == expected


def test_uvs_own_variables_come_first(surroundings: dict[str, str], tmp_path: Path) -> None:
    write(
        tmp_path / "prefix" / "pip.conf",
        "[global]\nfind-links = /pip\nindex-url = https://pip.example/simple\nno-index = true\n",
    )
    child = uv_environment(surroundings)
    assert child["UV_FIND_LINKS"] == "/pip"
    assert child["UV_DEFAULT_INDEX"] == "https://pip.example/simple"
    assert index_options(surroundings) == ["--no-index"]
    own = surroundings | {"UV_FIND_LINKS": "/uv", "UV_INDEX_URL": "https://uv.example/simple"}
    child = uv_environment(own)
    assert child["UV_FIND_LINKS"] == "/uv"
    assert "UV_DEFAULT_INDEX" not in child
    assert index_options(own) == []
    write(tmp_path / "home" / ".config" / "uv" / "uv.toml", "")
    assert "UV_DEFAULT_INDEX" not in uv_environment(surroundings)


def test_what_would_change_a_result_does_not_reach_uv_and_our_environment_stays(
    surroundings: dict[str, str],
) -> None:
    before = dict(os.environ)
    given = surroundings | {
        "VIRTUAL_ENV": "/other",
        "PYTHONPATH": "/other",
        "UV_CONSTRAINT": "c.txt",
        "UV_LINK_MODE": "hardlink",
        "UV_CACHE_DIR": "/cache",
        "UV_OFFLINE": "1",
    }
    child = uv_environment(given)
    assert not {"VIRTUAL_ENV", "PYTHONPATH", "UV_CONSTRAINT", "UV_LINK_MODE"} & child.keys()
    assert (child["UV_CACHE_DIR"], child["UV_OFFLINE"], child["UV_PYTHON_DOWNLOADS"]) == (
        "/cache",
        "1",
        "never",
    )
    assert (
        uv_environment(given | {"UV_PYTHON_DOWNLOADS": "automatic"})["UV_PYTHON_DOWNLOADS"]
        == "automatic"
    )
    assert dict(os.environ) == before
