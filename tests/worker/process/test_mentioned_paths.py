"""Files that commands, scripts and code mention may be read by what nothing sees."""

import os
import subprocess
import sys

import pytest

from convkit.worker.process.mentioned_paths import files_in, mentioned_files

LOADS = {
    "code": "subprocess.run([sys.executable, '-c', 'print(open(\"{top}/w.txt\").read())'])",
    "a line of the shell": "os.system('cd {top} && cat *.txt > /dev/null')",
    "a folder": "subprocess.run(['cat', 'w.txt'], cwd='{top}', stdout=subprocess.DEVNULL)",
    "a script": "subprocess.run(['sh', '{top}/run.sh'], stdout=subprocess.DEVNULL)",
    "a C function": "ctypes.CDLL(None).puts; READ = b'{top}/w.txt'",
    "a library in C++": "import pyarrow; pyarrow.OSFile('{top}/w.txt').read()",
    "a process of its own": "READ = '{top}/w.txt'; os.waitpid(os.fork() or os._exit(0), 0)",
}
PROBE = """
import sys
from pathlib import Path
from convkit.worker.process.opened_files import OpenedFiles
import ctypes, os, subprocess
sys.path.insert(0, "{code}")
with OpenedFiles(Path("{code}")) as opened:
    import model
print(*opened.found(), sep="\\n")
"""


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_what_something_unseen_may_read_counts(load, tmp_path):
    code, top = tmp_path / "code", tmp_path / "data"
    code.mkdir()
    top.mkdir()
    (top / "w.txt").write_text("2")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "w.txt").write_text("2")
    (top / "run.sh").write_text(f"cat {tmp_path}/other/w.txt\n")
    body = load.format(top=top)
    (code / "model.py").write_text(f"import ctypes, os, subprocess, sys\n{body}\n")
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(code=code)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": "/var/empty"},
    )
    expected = tmp_path / "other" / "w.txt" if "run.sh" in load else top / "w.txt"
    assert str(expected) in done.stdout.splitlines()


def test_what_is_only_mentioned_does_not_count_where_all_is_heard(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (tmp_path / "w.txt").write_text("2")
    (code / "model.py").write_text(f"import json, numpy\nLATER = '{tmp_path}/w.txt'\n")
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(code=code)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": "/var/empty"},
    )
    assert str(tmp_path / "w.txt") not in done.stdout.splitlines()


def test_paths_of_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "w.bin").write_text("")
    (tmp_path / "many").mkdir()
    for number in range(201):
        (tmp_path / "many" / f"{number}").write_text("")
    for text in ("~/w.bin", "cat $HOME/w.bin;", 'f("${HOME}/w.bin")', f"x={tmp_path}/w.bin,"):
        assert mentioned_files([text]) == {str(tmp_path / "w.bin")}
    assert mentioned_files([f"{tmp_path}/many", "a/b", "1/2", "/", "/etc", "//"]) == set()
    assert files_in(str(tmp_path)) == {str(tmp_path / "w.bin")}
