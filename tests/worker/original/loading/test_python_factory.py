import importlib.util
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import load_model
from convkit.worker.process.user_modules import tool_folders

LINEAR = (
    "def build(width=4):\n    return torch.nn.Sequential(torch.nn.Linear(width, 2),"
    " torch.nn.Dropout(0.5))\n"
)


def test_arguments_and_seed(tmp_path):
    first = load_model(factory_source(tmp_path, LINEAR, seed=3, overrides={"width": 6})).module
    torch.manual_seed(99)
    again = load_model(factory_source(tmp_path, LINEAR, seed=3, overrides={"width": 6})).module
    other = load_model(factory_source(tmp_path, LINEAR, seed=4, overrides={"width": 6})).module
    assert first[0].weight.shape == (2, 6)
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)
    assert not first.training


@pytest.mark.parametrize("threads", [1, 2])
def test_what_it_computes_does_not_depend_on_the_threads(tmp_path, threads):
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n"
        "class Counted(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.threads = torch.get_num_threads()\n"
        "def build():\n"
        "    return Counted()\n"
    )
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        loaded = load_model(Source("factory", path=str(file), identifier="build"))
        assert (loaded.module.threads, torch.get_num_threads()) == (1, threads)
    finally:
        torch.set_num_threads(usual)


def test_a_module_beside_the_file_can_be_imported(tmp_path):
    (tmp_path / "beside_the_factory.py").write_text("WIDTH = 5\n")
    code = (
        "import beside_the_factory\ndef build():\n    return"
        " torch.nn.Linear(beside_the_factory.WIDTH, 1)\n"
    )
    assert load_model(factory_source(tmp_path, code)).module.in_features == 5


def poison(source, cached):
    """Write bytecode that Python takes for the source's: its header fits, its code does not."""
    code = compile("WIDTH = 7\nbuild = None", str(source), "exec")
    status = source.stat()
    numbers = (0, int(status.st_mtime), status.st_size)
    header = b"".join(number.to_bytes(4, "little") for number in numbers)
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(importlib.util.MAGIC_NUMBER + header + marshal.dumps(code))


def test_bytecode_beside_a_user_s_modules_is_not_run(tmp_path):
    """Neither the factory's own nor that of modules it imports, from a package without __init__.py
    and a folder that it adds itself, too."""
    code = (
        "import sys\nsys.path.append(__file__.rpartition('/')[0] + '/added')\n"
        "import poisoned_beside, poisoned_namespace.inner, poisoned_added\n"
        "def build():\n    return torch.nn.Linear(poisoned_beside.WIDTH,"
        " poisoned_namespace.inner.WIDTH + poisoned_added.WIDTH)\n"
    )
    source = factory_source(tmp_path, code)
    modules = [
        tmp_path / "poisoned_beside.py",
        tmp_path / "poisoned_namespace" / "inner.py",
        tmp_path / "added" / "poisoned_added.py",
    ]
    for module in modules:
        module.parent.mkdir(exist_ok=True)
        module.write_text("WIDTH = 5\n")
    for module in (*modules, Path(source.path)):
        poison(module, Path(importlib.util.cache_from_source(str(module))))
    command = [sys.executable, "-c", "import poisoned_beside; print(poisoned_beside.WIDTH)"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert shown == "7\n", "or this test poisons nothing"
    linear = load_model(source).module
    assert (linear.in_features, linear.out_features) == (5, 10)


def test_no_bytecode_is_left_beside_a_user_s_modules(tmp_path):
    load_model(factory_source(tmp_path, LINEAR))
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_system_s_prefix_is_no_tool(monkeypatch):
    """Containers put models in /usr/src."""
    monkeypatch.setattr(sys, "prefix", "/usr")
    monkeypatch.setattr(sys, "exec_prefix", "/usr")
    assert "/usr" not in tool_folders()
    assert str(Path(os.__file__).parent) in tool_folders()
    monkeypatch.setattr(sys, "prefix", "/opt/conda")
    assert "/opt/conda" in tool_folders()


def test_two_files_of_one_name_do_not_meet(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    a = load_model(
        factory_source(tmp_path / "a", "def build():\n    return torch.nn.ReLU()\n")
    ).module
    b = load_model(
        factory_source(tmp_path / "b", "def build():\n    return torch.nn.GELU()\n")
    ).module
    assert (type(a), type(b)) == (torch.nn.ReLU, torch.nn.GELU)


def test_dtype_converts_the_module(tmp_path):
    assert (
        load_model(factory_source(tmp_path, LINEAR, dtype="bfloat16")).module[0].weight.dtype
        is torch.bfloat16
    )


@pytest.mark.parametrize(
    ("code", "changes", "message"),
    [
        (
            "def buidl():\n    pass\n",
            {},
            r"has no 'build'; perhaps you meant 'buidl'.*Callables there: buidl",
        ),
        ("build = 3\n", {}, r"factory\.py:build is a int, not a callable"),
        ("def build():\n    return 3\n", {}, r"returned a int; it must return a torch\.nn\.Module"),
        ("def build():\n    return 1 / 0\n", {}, r"raised ZeroDivisionError: .*\(line 3\)"),
        (
            LINEAR,
            {"overrides": {"widht": 3}},
            r"raised TypeError.*widht.*model\.factory\.arguments",
        ),
        (
            "import no_such_package\n",
            {},
            r"importing factory\.py raised ModuleNotFoundError.*\(line 2\).*tools:",
        ),
        ("def build(:\n", {}, r"importing factory\.py raised SyntaxError"),
    ],
)
def test_errors_name_the_key_and_the_line(tmp_path, code, changes, message):
    with pytest.raises(StageFailedError, match=rf"(?s)model\.factory\.call: .*{message}"):
        load_model(factory_source(tmp_path, code, **changes))


def test_a_missing_file(tmp_path):
    with pytest.raises(
        StageFailedError, match=r"model\.factory\.call: there is no file .*none\.py"
    ):
        load_model(Source("factory", path=str(tmp_path / "none.py"), identifier="build"))


@pytest.mark.parametrize(
    ("layout", "statement"),
    [
        ("src/packed_{}", "from .layers import WIDTH"),
        ("src/packed_{}", "from packed_{}.layers import WIDTH"),
        ("packed_{}", "from .layers import WIDTH"),
        ("packed_{}", "from packed_{}.layers import WIDTH"),
    ],
)
def test_a_file_of_a_package_imports_from_it(layout, statement, tmp_path, request):
    name = f"{abs(hash(request.node.name))}"
    (tmp_path / "pyproject.toml").touch()
    package = tmp_path / layout.format(name)
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .net import build\n")
    (package / "layers.py").write_text("WIDTH = 5\n")
    (package / "net.py").write_text(
        f"import torch\n{statement.format(name)}\n"
        f"LIB = torch.library.Library('lib_{name}', 'DEF')\n"
        "def build():\n    return torch.nn.Linear(WIDTH, 1)\n"
    )
    source = Source(kind="factory", path=str(package / "net.py"), identifier="build")
    assert load_model(source).module.in_features == 5


def test_relative_imports_work_in_a_folder_without_init(tmp_path):
    folder = tmp_path / "plain_folder_of_modules"
    folder.mkdir()
    (folder / "layers.py").write_text("WIDTH = 5\n")
    (folder / "net.py").write_text(
        "import torch\nfrom .layers import WIDTH\ndef build(): return torch.nn.Linear(WIDTH, 1)\n"
    )
    source = Source(kind="factory", path=str(folder / "net.py"), identifier="build")
    assert load_model(source).module.in_features == 5


def test_a_script_imports_the_package_of_its_project(tmp_path):
    script = (
        "import torch, package_of_the_script as p\n"
        "def build(): return torch.nn.Linear(p.WIDTH, 1)\n"
    )
    for name, text in (
        ("pyproject.toml", ""),
        ("src/package_of_the_script/__init__.py", "WIDTH = 5"),
        ("scripts/net.py", script),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = Source(kind="factory", path=str(tmp_path / "scripts/net.py"), identifier="build")
    assert load_model(source).module.in_features == 5


@pytest.mark.parametrize("where", ["import", "build"])
def test_a_package_without_its_compiled_operators_can_be_imported(where, tmp_path):
    """As torchvision's wheel for CUDA beside a torch for the CPU."""
    code = "".join(
        f"\ntorch.library.register_fake('absent_{where}::{name}')(lambda x: x)"
        for name in ("nms", "qnms")
    )
    (tmp_path / f"package_without_{where}.py").write_text("import torch" + code)
    line = f"import package_without_{where}"
    if where == "build":
        text = f"def build():\n    {line}\n    return torch.nn.Linear(5, torch.randint(3, 9, ()))"
    else:
        text = f"{line}\ndef build():\n    return torch.nn.Linear(5, torch.randint(3, 9, ()))"
    source = factory_source(tmp_path, text, seed=1)
    first, again = load_model(source).module, load_model(source).module
    assert torch.equal(first.weight, again.weight)
    with pytest.raises(NotImplementedError, match=f"absent_{where}::nms"):
        getattr(torch.ops, f"absent_{where}").nms(torch.ones(1))
