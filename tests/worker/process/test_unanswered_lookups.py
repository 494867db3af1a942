"""What is recorded of a lookup whose answer is not: the clock, the network, a C extension."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convkit.protocol.lookups import UNKNOWN, answer, lookup_of

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


def found(tmp_path, body, kinds=("clock", "network", "unseen")):
    file = tmp_path / "factory.py"
    file.write_text(body)
    code = CODE.format(top=TOP, file=str(file), kinds=kinds)
    ran = subprocess.run(
        [sys.executable, "-c", code],
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


def test_a_c_extension_of_ones_own_is_recorded(tmp_path):
    known = importlib.util.find_spec("_lsprof")  # of Python's own: a copy of it is the user's
    if known is None or known.origin is None or not known.origin.endswith(".so"):
        pytest.skip("this Python has no such module as a file")
    copy = tmp_path / Path(known.origin).name
    shutil.copyfile(known.origin, copy)
    body = (
        f"import sys\ndef build():\n    sys.path.insert(0, {str(tmp_path)!r})\n    import _lsprof"
    )
    assert found(tmp_path, body) == [f"unseen:{copy}"]
    assert found(tmp_path, "def build(): import _lsprof") == []
    loaded = f"import ctypes\ndef build(): ctypes.CDLL({str(copy)!r})"
    assert found(tmp_path, loaded) == [f"unseen:{copy}"]


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
