"""How long threads waited for a processor: one processor for two processes that compute."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from convkit.worker.bench.processor_waits import Waiting
from convkit.worker.bench.session_channel import timed_calls

_COMPUTE = "import os, time; os.sched_setaffinity(0, {%d}); print(flush=True)\nwhile True: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts it")
def test_a_shared_processor_shows():
    allowed = os.sched_getaffinity(0)
    processor = min(allowed)
    other = subprocess.Popen([sys.executable, "-c", _COMPUTE % processor], stdout=subprocess.PIPE)
    try:
        other.stdout.readline()
        os.sched_setaffinity(0, {processor})
        timing = timed_calls(lambda _: sum(range(2_000_000)), {}, 10)
    finally:
        os.sched_setaffinity(0, allowed)
        other.kill()
        other.communicate()
    assert timing.waited > 0.1


def test_a_system_that_does_not_count_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("convkit.worker.bench.processor_waits._THREADS", tmp_path / "nothing")
    assert Waiting().share() is None
