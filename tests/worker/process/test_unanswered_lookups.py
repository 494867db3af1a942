"""What is recorded of a lookup whose answer is not: the clock, the network, a C extension."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convkit.protocol.lookups.lookup_answers import UNKNOWN, answer, lookup_of

TOP = str(Path(__file__).parents[3])
CODE = """
import sys
sys.path.insert(0, {top!r})
from importlib import util
from convkit.worker.process.opened_files import OpenedFiles
with OpenedFiles(None) as opened:
    spec = util.spec_from_file_location("factory", {file!r})
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build()
print("\\n".join(name for name in opened.found() if name.split(":")[0] in {kinds!r}))
"""

FORKED = """
import os, sys
sys.path.insert(0, {top!r})
from importlib import util
from convkit.worker.process.opened_files import OpenedFiles
with OpenedFiles(None) as earlier:
    spec = util.spec_from_file_location("factory", {file!r})
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build()
child = os.fork()
if not child:
    with OpenedFiles(None, earlier) as opened:
        pass
    names = (name for name in opened.found() if name.split(":")[0] in {kinds!r})
    print("\\n".join(names), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture
def extension():
    """The file of a C extension of Python's own: a copy of it is the user's."""
    known = importlib.util.find_spec("_lsprof")
    if known is None or known.origin is None or not known.origin.endswith(".so"):
        pytest.skip("this Python has no such module as a file")
    return Path(known.origin)


def found(tmp_path, body, kinds=("clock", "network", "unseen"), code=CODE):
    file = tmp_path / "factory.py"
    file.write_text(body)
    code = code.format(top=TOP, file=str(file), kinds=kinds)
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(os.__file__),  # noqa: PTH120 - a folder of no model
    )
    return ran.stdout.split()


def test_the_clock_is_recorded_where_the_users_code_reads_it(tmp_path):
    assert found(tmp_path, "import time\ndef build(): return time.time()") == ["clock:time.time"]
    assert found(tmp_path, "from time import gmtime\ndef build(): gmtime()") == [
        "clock:time.gmtime"
    ]
    logged = "import logging\ndef build(): logging.warning('a library reads it')"
    assert found(tmp_path, logged) == []
    assert found(tmp_path, "import time\ndef build(): time.localtime(0.0)") == []


def test_a_host_is_recorded(tmp_path):
    body = "import socket\ndef build(): socket.getaddrinfo('127.0.0.1', 80)"
    assert found(tmp_path, body) == ["network:127.0.0.1"]


def test_a_c_extension_of_ones_own_is_recorded(tmp_path, extension):
    copy = tmp_path / extension.name
    shutil.copyfile(extension, copy)
    body = (
        f"import sys\ndef build():\n    sys.path.insert(0, {str(tmp_path)!r})\n    import _lsprof"
    )
    assert found(tmp_path, body) == [f"unseen:{copy}"]
    assert found(tmp_path, "def build(): import _lsprof") == []
    loaded = f"import ctypes\ndef build(): ctypes.CDLL({str(copy)!r})"
    assert found(tmp_path, loaded) == [f"unseen:{copy}"]
    assert found(tmp_path, f"import ctypes\ndef build(): pass\nctypes.CDLL({str(copy)!r})") == [
        f"unseen:{copy}"
    ]


def test_a_library_of_ones_own_that_the_system_finds_is_recorded(tmp_path, extension, monkeypatch):
    """By the file that is mapped; a fresh process loads one of the system, a forked one has it."""
    own = tmp_path / "libown.so.1"
    shutil.copyfile(extension, own)
    (tmp_path / "libown.so").symlink_to(own)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    body = "import ctypes\ndef build(): ctypes.CDLL('libown.so')"
    assert found(tmp_path, body) == [f"unseen:{own}"]
    assert found(tmp_path, "import ctypes\ndef build(): ctypes.CDLL('libc.so.6')") == []


def test_what_a_package_loads_while_it_is_imported_is_not_the_models(tmp_path, extension):
    copy = tmp_path / "libtool.so"
    shutil.copyfile(extension, copy)
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "loads_a_library.py").write_text(f"import ctypes\nctypes.CDLL({str(copy)!r})\n")
    body = f"import sys\ndef build():\n    sys.path.insert(0, {str(packages)!r})\n"
    assert found(tmp_path, f"{body}    import loads_a_library") == []


def test_a_fork_reports_the_libraries_that_were_loaded_before_it(tmp_path, extension):
    copy = tmp_path / "libown.so"
    shutil.copyfile(extension, copy)
    body = f"import ctypes\ndef build(): ctypes.CDLL({str(copy)!r})"
    assert found(tmp_path, body, code=FORKED) == [f"unseen:{copy}"]


def test_a_program_is_recorded_by_its_name_or_the_path_of_ones_own(tmp_path):
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    for program, name in ((sys.executable, Path(sys.executable).name), ("/bin/cat", "cat")):
        call = f"subprocess.run([{program!r}, '--version'], stdout=subprocess.DEVNULL)"
        body = f"import subprocess\ndef build(): {call}"
        assert found(tmp_path, body) == [f"unseen:{name}"]
    os.utime(own, (1e9, 1e9))
    body = f"import subprocess\ndef build(): subprocess.run(['./own', '1'], cwd={str(tmp_path)!r})"
    assert found(tmp_path, body) == [f"unseen:{own}"]


def test_a_program_is_recorded_and_files_among_its_arguments_are_read(tmp_path):
    file = tmp_path / "scale.txt"
    file.write_text("1")
    os.utime(file, (1e9, 1e9))
    for call in (
        f"subprocess.run(['cat', '-u', {str(file)!r}], capture_output=True)",
        f"subprocess.run('cat -u {file}', shell=True, capture_output=True)",
        f"os.system('cat -u {file} > /dev/null')",
    ):
        body = f"import os, subprocess\ndef build(): {call}"
        assert found(tmp_path, body) == ["unseen:cat"]
        assert str(file) in found(tmp_path, body, kinds=(str(file),))


def test_lookups_among_temporary_files_count_unless_they_are_the_stages_own(tmp_path):
    body = f"""
import os, tempfile
def build():
    os.path.exists({str(tmp_path / "best.pt")!r})
    with tempfile.TemporaryDirectory() as own:
        os.path.exists(os.path.join(own, "mine"))
        os.listdir(own)
    os.listdir(tempfile.gettempdir())
"""
    assert found(tmp_path, body, kinds=("exists", "listing", "modified")) == [
        f"exists:{tmp_path / 'best.pt'}"
    ]


@pytest.mark.parametrize("name", ["clock:time.time", "network:example.org", "unseen:/a/b.so"])
def test_the_answer_is_not_known(name):
    what, subject = lookup_of(name)
    assert answer(what, subject, {}, lambda _: False) == UNKNOWN
