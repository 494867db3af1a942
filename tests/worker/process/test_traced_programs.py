"""What programs and forked copies read that a model's code starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = str(Path(__file__).parents[3])
CODE = """
import json, sys
sys.path.insert(0, {top!r})
from importlib import util
from convkit.worker.process.opened_files import OpenedFiles
with OpenedFiles(None) as opened:
    spec = util.spec_from_file_location("factory", {file!r})
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value = module.build()
print(json.dumps([value, list(opened.found())]))
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of files; the factory is elsewhere, and mentions no path."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "w.txt").write_text("1")
    # Files in the folder of temporary files that are made while a stage runs are its own.
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("WHERE", str(folder))
    return folder


def found(folder: Path, body: str) -> tuple[object, list[str]]:
    file = folder.parent / "factory.py"
    file.write_text(body)
    ran = subprocess.run(
        [sys.executable, "-B", "-c", CODE.format(top=TOP, file=str(file))],
        check=True,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(os.__file__),  # noqa: PTH120 - a folder of no model
    )
    value, names = json.loads(ran.stdout.splitlines()[-1])
    return value, names


PROGRAMS = {
    "a shell": "subprocess.run(['sh', '-c', 'cat $WHERE/w.txt'], stdout=-1, text=True).stdout",
    "a line": "subprocess.getoutput('cd $WHERE; cat w.txt')",
    "os.system": "os.system('exit $(cat $WHERE/w.txt)') >> 8",
    "Python": "subprocess.run([sys.executable, '-c', READS], stdout=-1, text=True).stdout",
    "a pipe": "os.popen('cat < $WHERE/w.txt').read()",
}


@pytest.mark.parametrize("call", PROGRAMS.values(), ids=PROGRAMS)
def test_what_a_program_reads_is_recorded(data, call):
    reads = 'READS = \'import os; print(end=open(os.environ["WHERE"] + "/w.txt").read())\''
    body = f"import os, subprocess, sys\n{reads}\ndef build(): return {call}"
    value, names = found(data, body)
    assert str(value) == "1"
    assert str(data / "w.txt") in names


def test_what_a_program_looks_for_is_recorded(data):
    (data / "link").symlink_to("w.txt")
    lines = "test -e $WHERE/best; readlink $WHERE/link; ls $WHERE"
    _, names = found(
        data, f"import subprocess\ndef build(): return subprocess.getoutput('{lines}')"
    )
    assert {f"exists:{data}/best", f"link:{data}/link", f"listing:{data}"} <= {*names}


def test_what_a_program_writes_is_not_read(data):
    lines = "cp $WHERE/w.txt $WHERE/copy; mv $WHERE/copy $WHERE/moved; cat $WHERE/moved"
    value, names = found(
        data, f"import subprocess\ndef build(): return subprocess.getoutput('{lines}')"
    )
    assert value == "1"
    assert [name for name in names if name.startswith(str(data))] == [str(data / "w.txt")]


def test_what_a_forked_copy_reads_and_looks_for_is_recorded(data):
    body = """
import multiprocessing, os
WHERE = os.environ["WHERE"]
def read(queue):
    queue.put((os.path.exists(WHERE + "/best"), open(WHERE + "/w.txt").read()))
def build():
    forked = multiprocessing.get_context("fork")
    queue = forked.Queue()
    copy = forked.Process(target=read, args=(queue,))
    copy.start()
    value = queue.get()
    copy.join()
    return value
"""
    value, names = found(data, body)
    assert value == [False, "1"]
    assert {str(data / "w.txt"), f"exists:{data}/best"} <= {*names}


@pytest.mark.thorough
def test_a_program_ends_as_it_would(data):
    body = """
import os, signal, subprocess
def build():
    ends = [subprocess.call(["sh", "-c", line]) for line in ("exit 3", "kill -TERM $$")]
    try:
        subprocess.run(["there-is-none"])
    except FileNotFoundError:
        ends.append("none")
    sleeps = subprocess.Popen(["sleep", "60"])
    sleeps.send_signal(signal.SIGINT)
    ends.append(sleeps.wait(20))
    # A child that stops and goes on; nobody else's children.
    ends.append(subprocess.getoutput("sleep 0.1 & kill -STOP $!; kill -CONT $!; wait; echo done"))
    return ends
"""
    assert found(data, body)[0] == [3, -15, "none", -2, "done"]


def test_a_database_by_its_uri_and_one_beside_it_are_read(data):
    body = """
import os, sqlite3
WHERE = os.environ["WHERE"]
for name in ("one", "an other"):
    with sqlite3.connect(f"{WHERE}/{name}") as made:
        made.execute("create table t (x)")
    made.close()
def build():
    global held
    held = sqlite3.connect(f"file:{WHERE}/one?mode=ro", uri=True)
    held.execute(f"attach '{WHERE}/an other' as other")
    held.execute("select * from other.t")
"""
    script = data.parent / "made.py"
    script.write_text(body)
    subprocess.run([sys.executable, script], check=True)
    read = body.partition("for name")[0] + "def" + body.partition("def")[2]
    assert {str(data / "one"), str(data / "an other")} <= {*found(data, read)[1]}
    uri = (data / "an other").as_uri()
    alone = f"import sqlite3\ndef build(): sqlite3.connect('{uri}?immutable=1', uri=True).close()"
    assert str(data / "an other") in found(data, alone)[1]
