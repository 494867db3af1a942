"""Lookups that no common call makes: entries of a folder, failed imports, descriptors, files opened
to be read and written.
"""

import pytest
from test_unanswered_lookups import found

READING = {
    "entries' times": (
        "import os\ndef build(): max(os.scandir({data!r}), key=lambda each: each.stat().st_mtime)",
        ["listing:{data}", "modified:{data}/a.bin"],
    ),
    "entries' names": (
        "import os\ndef build(): [each.name for each in os.scandir({data!r})]",
        ["listing:{data}"],
    ),
    "pathlib's listing": (
        "from pathlib import Path\ndef build(): list(Path({data!r}).iterdir())",
        ["listing:{data}"],
    ),
    "a pattern in a folder": (
        "import glob\ndef build(): glob.glob('*.bin', root_dir={data!r})",
        ["matches:{data}/*.bin"],
    ),
    "a folder that is open": (
        (
            "import os\ndef build():\n    folder = os.open({data!r}, os.O_RDONLY)\n"
            "    os.listdir(folder)\n    os.close(folder)"
        ),
        ["listing:{data}"],
    ),
    "a path below a folder that is open": (
        (
            "import os\ndef build():\n    folder = os.open({data!r}, os.O_RDONLY)\n"
            "    for ask in (os.stat, lambda p, **k: os.open(p, os.O_RDONLY, **k)):\n"
            "        try:\n            ask(ask.__name__[:1] + '.bin', dir_fd=folder)\n"
            "        except OSError:\n            pass\n    os.close(folder)"
        ),
        ["exists:{data}/<.bin", "modified:{data}/s.bin"],
    ),
    "a module that is not there": (
        (
            "import sys\ndef build():\n    sys.path.insert(0, {data!r})\n"
            "    try:\n        import faster_code\n    except ImportError:\n        pass\n"
            "    sys.path.remove({data!r})"
        ),
        ["exists:{data}/faster_code", "exists:{data}/faster_code.py"],
    ),
    "whether a module is there": (
        (
            "import sys\nfrom importlib.util import find_spec\ndef build():\n"
            "    sys.path.insert(0, {data!r})\n    find_spec('faster_code')\n"
            "    sys.path.remove({data!r})"
        ),
        ["exists:{data}/faster_code", "exists:{data}/faster_code.py"],
    ),
    "bytes of a variable": (
        "import os\ndef build(): os.environb.get(b'HF_SCALE')",
        ["variable:HF_SCALE"],
    ),
    "C's own functions": ("import ctypes\ndef build(): ctypes.CDLL(None)", ["unseen:libc"]),
    "a fork": (
        (
            "import os\ndef build():\n    child = os.fork()\n    if not child: os._exit(0)\n"
            "    os.waitpid(child, 0)"
        ),
        ["unseen:os.fork"],
    ),
}
KINDS = ("listing", "modified", "matches", "exists", "variable", "unseen")


@pytest.mark.parametrize(("body", "expected"), READING.values(), ids=READING)
def test_what_is_asked_in_other_ways_is_recorded(tmp_path, data, body, expected):
    names = [name.format(data=data) for name in expected]
    asked = found(tmp_path, body.format(data=str(data)), KINDS)
    # Modules are looked for in the folders of these tests, too.
    assert [name for name in asked if str(data) in name or "/" not in name] == names


def test_a_file_below_a_folder_that_is_open_is_read(tmp_path, data):
    reading = (
        f"import os\ndef build():\n    folder = os.open({str(data)!r}, os.O_RDONLY)\n"
        "    os.read(os.open('a.bin', os.O_RDONLY, dir_fd=folder), 1)\n    os.close(folder)"
    )
    assert found(tmp_path, reading, (str(data / "a.bin"),)) == [str(data / "a.bin")]


@pytest.mark.parametrize("mode", ["r+b", "a+b"])
def test_a_file_opened_for_both_counts_as_read_unless_it_is_written_to(tmp_path, data, mode):
    file = str(data / "a.bin")
    reading = f"def build(): open({file!r}, {mode!r}).read()"
    assert found(tmp_path, reading, (file,)) == [file]
    writing = f"def build(): open({file!r}, {mode!r}).write(b'more')"
    assert found(tmp_path, writing, (file,)) == []


@pytest.fixture
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "a.bin").write_bytes(b"weights")
    return folder
