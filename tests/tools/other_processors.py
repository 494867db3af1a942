"""Runs a script that prints JSON on another kind of processor, by qemu's user mode."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EMULATOR = shutil.which("qemu-x86_64")
# AVX2 and FMA without VNNI, and SSE alone; `make` may ask for one of them.
PROCESSORS = tuple(os.environ.get("PROCESSORS", "Haswell Nehalem").split())


def emulated(test: Any) -> Any:
    """Mark a test that starts an emulator: `make test-processors` runs it."""
    absent = pytest.mark.skipif(EMULATOR is None, reason="needs qemu-x86_64 (Debian: qemu-user)")
    return pytest.mark.emulated(absent(test))


def printed_on(processor: str, script: Path) -> Any:
    """Return what a script prints, read as JSON. Its own child processes are not emulated."""
    assert EMULATOR is not None
    command = [EMULATOR, "-cpu", processor, sys.executable, "-W", "ignore", str(script)]
    # Threads of the emulated process only compete.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
