import pytest

from convkit.host.draft.imported_modules import needed_modules

TOP = """
import json
import os.path as path
import torch, einops
from torch import nn
from timm.layers import DropPath as drop
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import typed_only
try:
    import flash_attn
except ImportError:
    flash_attn = None
try:
    import must_be_there
except ImportError as error:
    raise RuntimeError("install must_be_there") from error
try:
    from either.new import thing
except (ImportError, AttributeError):
    from either.old import thing
try:
    import opened
finally:
    pass
if is_apex_available():
    import apex
if torch.__version__ > "2":
    import on_a_condition
else:
    import on_the_other
class Net(nn.Module):
    def __init__(self):
        import in_a_method
        super().__init__()
        helper()
def helper():
    from in_a_helper import thing
    def inner():
        pass
def unused():
    import wandb
def build():
    return Net()
if __name__ == "__main__":
    import argparse_extra
"""


def found(tmp_path, code, name="build"):
    file = tmp_path / "net.py"
    file.write_text(code, encoding="utf-8")
    return needed_modules(file, [name])


def test_imports_count_if_the_callable_cannot_do_without_them(tmp_path):
    modules = {each.root: each.conditional for each in found(tmp_path, TOP)}
    assert modules == {
        "torch": False,
        "einops": False,
        "timm": False,
        "must_be_there": False,
        "either": False,
        "opened": False,
        "on_a_condition": True,
        "on_the_other": True,
        "in_a_method": False,
        "in_a_helper": False,
    }


def test_a_place_is_the_line_of_the_import(tmp_path):
    (each,) = found(tmp_path, "import json\n\nimport einops.layers.torch\ndef build(): ...")
    assert (each.module, each.file, each.line) == ("einops.layers.torch", tmp_path / "net.py", 3)


def test_other_callables_of_a_file_do_not_count(tmp_path):
    code = "def build():\n    import einops\ndef train():\n    import wandb"
    assert [each.root for each in found(tmp_path, code)] == ["einops"]
    assert [each.root for each in found(tmp_path, code, "train")] == ["wandb"]


@pytest.mark.parametrize("statement", ["from own import Block", "import own", "import own as o"])
def test_a_module_beside_the_file_is_followed_as_far_as_it_is_used(statement, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("from .inner import Block, helper\n")
    (tmp_path / "own" / "inner.py").write_text(
        "import einops\nclass Block:\n    def f(self):\n        import scipy\n"
        "def helper():\n    import wandb\n"
    )
    use = "Block()" if statement.startswith("from") else "own.Block() or o.Block()"
    code = f"{statement}\ndef build():\n    return {use}"
    modules = found(tmp_path, code)
    assert [(each.root, each.file.name) for each in modules] == [
        ("einops", "inner.py"),
        ("scipy", "inner.py"),
    ]


def test_circles_of_own_modules_end(tmp_path):
    (tmp_path / "first.py").write_text("import second\nimport einops")
    (tmp_path / "second.py").write_text("import first\nimport timm")
    modules = found(tmp_path, "import first\ndef build(): first.x")
    assert {each.root for each in modules} == {"einops", "timm"}


@pytest.mark.parametrize(
    ("layout", "statement"),
    [
        ("src/mypkg", "from .layers import Block"),
        ("src/mypkg", "from mypkg.layers import Block"),
        ("mypkg", "from mypkg.layers import Block"),
        ("python/mypkg", "from mypkg.layers import Block"),
    ],
)
def test_a_project_s_own_package_is_followed(layout, statement, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.setuptools.packages.find]\nwhere = ["python"]\n'
    )
    package = tmp_path / layout
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "layers.py").write_text("import einops\nclass Block: ...")
    (package / "model.py").write_text(f"{statement}\ndef build(): return Block()")
    assert [each.root for each in needed_modules(package / "model.py", ["build"])] == ["einops"]


def test_a_script_finds_its_project_s_package(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    for name, text in (
        ("src/mypkg/__init__.py", "import timm"),
        ("scripts/export.py", "import mypkg\ndef build(): ..."),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = tmp_path / "scripts/export.py"
    assert [each.root for each in needed_modules(script, ["build"])] == ["timm"]


def test_a_folder_without_python_is_no_module(tmp_path):
    """Such as one with data, or a clone of a repository, beside the file."""
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "setup.py").touch()
    modules = found(tmp_path, "import timm\ndef build(): ...")
    assert [each.root for each in modules] == ["timm"]
