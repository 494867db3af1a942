"""A model whose outputs depend on the day, or on rare random numbers, is named with its line."""

import importlib.util
import sys
import time

import pytest
import torch

from convkit.worker.original.probing.clock_and_chance import read_finding

HEAD = """
import datetime, random, time, uuid
import numpy as np, torch
from datetime import date, datetime as moment
from time import time as now
class Model(torch.nn.Module):
    def forward(self, x):
"""
X = [torch.ones(2, 3)]
WRONG = {
    "the day": "return x * datetime.date.today().day",
    "the year, imported": "return x * date.today().year",
    "the hour": "return x * (1 + datetime.datetime.now().hour)",
    "the weekday, imported": "return x * (1 + moment.now().weekday())",
    "days of the epoch": "return x * int(time.time() // 86400)",
    "days, imported": "return x * int(now() // 86400)",
    "a formatted day": "return x * float(time.strftime('%j'))",
    "a random factor": "return x * random.random()",
    "rarely": "return x * (2 if random.random() < 1e-6 else 1)",
    "rarely, by numpy": "return x * (2.0 if np.random.rand() < 1e-6 else 1.0)",
    "almost always, by numpy": "return x * (2.0 if np.random.random() > 1 - 1e-9 else 1.0)",
    "on a day of the week": "return x * (2 if date.today().isoweekday() == 3 else 1)",
    "on another": "return x * (2 if date.today().isoweekday() == 4 else 1)",
    "in a month": "return x * (2 if date.today().month == 3 else 1)",
    "in another": "return x * (2 if date.today().month == 9 else 1)",
    "from a year on": "return x * (2 if date.today().year > 2060 else 1)",
    "a stopwatch that is read": "return x * (2 if time.perf_counter() > 1e9 else 1)",
    "a random range": "return x * (2 if random.uniform(1, 2) < 1 + 1e-9 else 1)",
    "a random whole number": "return x * (2 if random.randint(0, 10**9) == 0 else 1)",
    "a random choice": "return x * random.choice([1] * 10**5 + [2])",
}
RIGHT = {
    "nothing": "return x + 1",
    "a stopwatch": "self.started = time.time()\n        return x + 1",
    "a number that nothing reads": "random.random(); np.random.rand()\n        return x + 1",
    "torch's own, unused": "torch.rand(1)\n        return x + 1",
}


def asked(tmp_path, monkeypatch, body):
    file = tmp_path / "timed.py"
    file.write_text(f"{HEAD}        {body}\n")
    spec = importlib.util.spec_from_file_location("timed", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "timed", module)
    spec.loader.exec_module(module)
    return read_finding(module.Model(), X, str(tmp_path))


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_what_the_moment_decides_is_named_with_its_line(tmp_path, monkeypatch, body):
    finding = asked(tmp_path, monkeypatch, body)
    assert (finding.code, finding.severity, finding.place.source) == ("N303", "error", "timed.py:8")
    chance = "random" in body
    assert finding.evidence["change"] == ("chance" if chance else "clock")


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_changes_no_output_is_left_alone(tmp_path, monkeypatch, body):
    assert asked(tmp_path, monkeypatch, body) is None


def test_the_clock_is_itself_again(tmp_path, monkeypatch):
    before = time.time
    asked(tmp_path, monkeypatch, WRONG["days of the epoch"])
    assert time.time is before


@pytest.mark.parametrize(
    "body",
    [
        "uuid.uuid4().int % 5000 == 0",
        "random.randint(0, 10**9) == 4711",
        "secrets.randbelow(9**9) == 5",
    ],
)
def test_random_bits_of_which_any_may_have_a_meaning_prove_nothing(tmp_path, monkeypatch, body):
    finding = asked(tmp_path, monkeypatch, f"import secrets; return x * (2 if {body} else 1)")
    assert (finding.code, finding.place.source) == ("N513", "timed.py:8")
