import io
import tarfile

import pytest
from wheel_folder import write_wheel

from convkit.host.draft.declared_releases import declared_releases
from convkit.host.draft.model_tools import find_model_tools
from convkit.host.draft.package_names import package_of
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import resolved
from convkit.protocol.errors import ToolchainError, UsageError

BUILD = "\ndef build(): ...\n"


@pytest.fixture
def tools(wheels, tmp_path):
    """Returns a function that finds the tools of a file, with torch in the role of alpha<2."""

    def find(code, *asked, toolchain="isolated", said=lambda _: None):
        file = tmp_path / "net.py"
        file.write_text(code + BUILD, encoding="utf-8")
        return find_model_tools([(file, "build")], asked, spec, tmp_path / "home", toolchain, said)

    return find


def spec(tools):
    lines = [f"{name}{tool.specifier}" for name, tool in tools.items()]
    return EnvironmentSpec("3.11", tuple(sorted(["alpha<2", *lines])))


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("PIL", "pillow"),
        ("yaml", "pyyaml"),
        ("cv2", "opencv-python-headless"),
        ("skimage", "scikit-image"),
        ("torch_geometric", "torch-geometric"),
        ("packaging", "packaging"),
    ],
)
def test_packages_are_named_as_the_index_names_them(module, package):
    assert package_of(module) == package


def test_an_import_becomes_a_tool_in_the_release_that_fits(tools, tmp_path):
    found = tools("import json\nimport torch\nimport beta")
    assert {name: tool.specifier for name, tool in found.items()} == {"beta": "==1.0"}
    assert found["beta"].why == "imported in net.py:3"
    # The environment of the recipe is known then, and nothing is asked again.
    assert resolved(spec(found), tmp_path / "home") is not None


@pytest.mark.thorough
def test_a_package_never_replaces_a_pinned_one(tools, wheels):
    write_wheel(wheels, "gamma", "2.0", requires=["alpha==2.0"])
    write_wheel(wheels, "gamma", "1.0", requires=["alpha==1.1"])
    assert tools("import gamma")["gamma"].specifier == "==1.0"
    with pytest.raises(ToolchainError, match=r"--with gamma==2.0 names a package: resolving"):
        tools("import gamma", "gamma==2.0")


def test_releases_that_were_found_are_not_looked_for_again(tools, no_uv):
    first = tools("import beta")
    no_uv()
    assert tools("import beta") == first


@pytest.mark.thorough
def test_with_names_further_packages_and_releases(tools):
    found = tools("import json", "beta", "alpha>=1.1")
    assert {name: tool.specifier for name, tool in found.items()} == {
        "beta": "==1.0",
        "alpha": "==1.1",
    }


def test_with_provides_an_import_that_has_another_name(tools):
    assert {*tools("import quite_unlike_its_package", "beta")} == {"beta"}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("\nimport nowhere_to_be_had", "net.py:2: imports nowhere_to_be_had, but the index has no"),
        ("import nowhere_to_be_had", "add --with NAME"),
        ("from utils.layers import Block", "net.py:1: imports utils.layers, which is neither"),
    ],
)
def test_what_cannot_be_had_is_said_with_its_line_and_the_fix(code, says, tools):
    with pytest.raises(UsageError) as caught:
        tools(code)
    assert says in str(caught.value)


@pytest.mark.thorough
def test_all_that_is_missing_is_said_at_once(tools):
    with pytest.raises(UsageError) as caught:
        tools("import nowhere_one\nimport beta\nimport nowhere_two")
    assert "nowhere_one" in str(caught.value)
    assert "nowhere_two" in str(caught.value)
    assert "beta" not in str(caught.value)


@pytest.mark.thorough
def test_a_conditional_import_is_installed_if_it_can_be(tools):
    code = "import torch\nif torch.x:\n    import nowhere_to_be_had\nelse:\n    import beta"
    assert {*tools(code)} == {"beta"}


def test_a_guessed_name_runs_no_code_of_a_source_distribution(tools, wheels, tmp_path):
    ran = tmp_path / "ran"
    setup = f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='delta')"
    with tarfile.open(wheels / "delta-1.0.tar.gz", "w:gz") as archive:
        for name, text in (("setup.py", setup), ("PKG-INFO", "Metadata-Version: 2.1\n")):
            entry = tarfile.TarInfo(f"delta-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    with pytest.raises(UsageError, match="imports delta"):
        tools("import delta")
    assert not ran.exists()


@pytest.mark.parametrize("asked", ["??", "beta @ https://x/y.whl", "beta; python_version>'3'"])
def test_with_takes_names_and_releases_only(asked, tools):
    with pytest.raises(UsageError, match="--with"):
        tools("", asked)


def test_an_index_that_cannot_be_reached_is_said_with_the_import(tools, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    with pytest.raises(ToolchainError, match=r"net.py:1: imports epsilon.*cannot be fetched"):
        tools("import epsilon")


def test_the_host_s_own_environment_must_have_them(tools, no_uv):
    no_uv()
    found = tools("import packaging", toolchain="host")
    assert found["packaging"].specifier.startswith("==")
    with pytest.raises(UsageError, match=r"net.py:1: imports beta.*pip install 'beta'"):
        tools("import beta", toolchain="host")


def test_a_package_that_drafts_choose_is_not_looked_for(tools, no_uv):
    no_uv()
    found = tools("import transformers, onnxruntime\nif something:\n    import coremltools")
    assert {name: tool.specifier for name, tool in found.items()} == {
        "transformers": "",
        "onnxruntime": "",
    }


@pytest.fixture
def gammas(wheels):
    """Puts three releases on the index, the newest of which no draft can have."""
    write_wheel(wheels, "gamma", "3.0", requires=["alpha==2.0"])
    for version in ("1.0", "1.1"):
        write_wheel(wheels, "gamma", version, requires=["alpha==1.1"])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "# what we run\n-r more.txt\ngamma == 1.0  # pinned\nbeta\n"),
        ("requirements.txt", "-r more.txt\n"),
        (
            "pyproject.toml",
            "[project]\nname = 'own'\ndependencies = ['gamma<1.1', 'beta; sys_platform==\"x\"']\n",
        ),
    ],
    ids=["pinned", "included", "project"],
)
@pytest.mark.sampled(2)
def test_the_projects_own_releases_are_taken(tools, gammas, tmp_path, file, text):
    assert tools("import gamma")["gamma"].specifier == "==1.1"
    (tmp_path / file).write_text(text, encoding="utf-8")
    if text.startswith("-r"):
        (tmp_path / "more.txt").write_text("gamma==1.0; python_version>'3'\n", encoding="utf-8")
    found = tools("import gamma")["gamma"]
    assert (found.specifier, found.why) == ("==1.0", f"imported in net.py:1, {file}")
    assert tools("import gamma", "gamma==1.1")["gamma"].specifier == "==1.1"


@pytest.mark.thorough
def test_a_project_release_that_does_not_fit_is_said_and_another_is_taken(tools, gammas, tmp_path):
    (tmp_path / "requirements.txt").write_text("gamma==3.0\n", encoding="utf-8")
    said = []
    assert tools("import gamma", said=said.append)["gamma"].specifier == "==1.1"
    assert any("requirements.txt do not fit the other tools" in line for line in said)


def test_no_release_of_another_project_is_read(tools, gammas, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "requirements.txt").write_text("gamma==1.0\n", encoding="utf-8")
    (tmp_path / "own" / ".git").mkdir()
    assert declared_releases(tmp_path / "own" / "net.py") == {}
    assert {*declared_releases(tmp_path / "net.py")} == {"gamma"}
