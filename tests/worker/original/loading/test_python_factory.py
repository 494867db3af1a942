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
