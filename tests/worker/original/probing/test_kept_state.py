"""What a model keeps between calls is named if it matters, with the line that sets it."""

import os
import sys
from types import ModuleType

import pytest
import torch

from convkit.worker.original.probing.held_state import State
from convkit.worker.original.probing.kept_state import state_finding

ONE, OTHER = [torch.ones(1, 3)], [torch.full((2, 5), 2.0)]


def asked(forward, tmp_path, monkeypatch, before=()):
    """Return what is found of a model whose forward has these lines, and the model."""
    body = "\n        ".join(forward)
    code = f"""
import dataclasses, itertools, os, random, types, torch
CALLS = 0
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.calls, self.config = None, 0, Config()
        self.register_buffer("mean", torch.zeros(1))
    def forward(self, x):
        {body}
@dataclasses.dataclass  # compared by value, and without a hash
class Config:
    length: int = 0
"""
    file = tmp_path / "kept_model.py"
    file.write_text(code)
    module = ModuleType("kept_model")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "kept_model", module)
    exec(compile(code, str(file), "exec"), vars(module))
    model = module.Model()
    loaded = State(model)
    for inputs in before:
        model(*inputs)
    return state_finding(model, loaded, ONE, OTHER, str(tmp_path)), model


WRONG = {
    "a length": ["if self.kept is None: self.kept = x.shape[1]", "return x / self.kept"],
    "a tensor": [
        "if self.kept is None: self.kept = torch.ones(9) * x.shape[1]",
        "return x + self.kept[: x.shape[1]]",
    ],
    "a counter": ["self.calls += 1", "return x * self.calls"],
    "a warm-up": ["self.calls += 1", "return x * (1 if self.calls < 1000 else 2)"],
    "a running mean": ["self.mean.mul_(0.9).add_(x.mean())", "return x - self.mean"],
    "a list": ["self.kept = (self.kept or []) + [x.shape[1]]", "return x * self.kept[0]"],
    "an object": [
        "self.config.length = self.config.length or len(x)",
        "return x * self.config.length",
    ],
    "a variable of the file": ["global CALLS", "CALLS = CALLS or x.shape[1]", "return x + CALLS"],
}


@pytest.mark.parametrize("forward", WRONG.values(), ids=WRONG)
def test_what_is_kept_and_matters_is_named_with_its_line(forward, tmp_path, monkeypatch):
    finding, _ = asked(forward, tmp_path, monkeypatch)
    assert (finding.code, finding.severity) == ("N303", "error")
    assert finding.evidence["change"] == "state"
    line = next(number for number, text in enumerate(forward) if "=" in text or "_(" in text)
    assert finding.place.source == f"kept_model.py:{10 + line}"


def test_a_model_that_has_run_for_other_questions_is_asked_as_it_was_loaded(tmp_path, monkeypatch):
    finding, _ = asked(WRONG["a length"], tmp_path, monkeypatch, before=[OTHER])
    assert finding is not None


RIGHT = {
    "nothing": ["return x + 1"],
    "a table that grows": [
        "if self.kept is None or len(self.kept) < x.shape[1]: self.kept = torch.arange(x.shape[1])",
        "return x + self.kept[: x.shape[1]]",
    ],
    "a counter that nothing reads": ["self.calls += 1", "return x + 1"],
    "the last result": ["self.kept = x * 2", "return self.kept"],
    "an object": ["self.config.length = x.shape[1]", "return x * self.config.length"],
    "a variable of the file": ["global CALLS", "CALLS += 1", "return x"],
}


@pytest.mark.parametrize("forward", RIGHT.values(), ids=RIGHT)
def test_what_changes_no_output_is_left_alone(forward, tmp_path, monkeypatch):
    finding, _ = asked(forward, tmp_path, monkeypatch)
    assert finding is None


def test_a_model_is_left_as_it_was_loaded(tmp_path, monkeypatch):
    _, model = asked(WRONG["a running mean"], tmp_path, monkeypatch)
    assert model.mean.tolist() == [0.0]
    _, model = asked(WRONG["a warm-up"], tmp_path, monkeypatch)
    assert model.calls == 0


# Where else an author may keep a length: a whole file each, whose line with `# here` is named.
PLACES = {
    "a class": """
class Model(torch.nn.Module):
    L = None
    def forward(self, x):
        if Model.L is None: Model.L = x.shape[1]  # here
        return x / Model.L
""",
    "a context variable": """
import contextvars
N = contextvars.ContextVar("N", default=None)
class Model(torch.nn.Module):
    def forward(self, x):
        if N.get() is None: N.set(x.shape[1])
        return x / N.get()
""",
    "a count": """
import itertools
calls = itertools.count()
class Model(torch.nn.Module):
    def forward(self, x): return x * (1 if next(calls) < 1000 else 2)
""",
    "an iterator of a module": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = iter([1.0, 2.0])
    def forward(self, x): return x * next(self.scales, 3.0)
""",
    "another class": """
class Store: n = None
class Model(torch.nn.Module):
    def forward(self, x):
        Store.n = Store.n or x.shape[1]  # here
        return x / Store.n
""",
    "a closure": """
def made():
    n = None
    def of(x):
        nonlocal n
        n = n or x.shape[1]
        return n
    return of
of = made()
class Model(torch.nn.Module):
    def forward(self, x): return x / of(x)
""",
    "a default": """
class Model(torch.nn.Module):
    def forward(self, x, seen=[]):
        seen.append(x.shape[1])  # here
        return x / seen[0]
""",
    "a function": """
def of(x):
    of.n = getattr(of, "n", x.shape[1])
    return of.n
class Model(torch.nn.Module):
    def forward(self, x): return x / of(x)
""",
    "a cache": """
class Model(torch.nn.Module):
    @functools.cache
    def of(self): return self.n
    def forward(self, x):
        self.n = x.shape[1]
        return x / self.of()
""",
    "an array": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = np.zeros(1)
    def forward(self, x):
        if not self.n[0]: self.n[0] = x.shape[1]  # here
        return x / float(self.n[0])
""",
    "a dictionary in another": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = {"a": {}}
    def forward(self, x):
        return x / self.n["a"].setdefault("n", x.shape[1])
""",
    "a tensor in a dictionary": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = {"mean": torch.zeros(1)}
    def forward(self, x):
        self.n["mean"].mul_(0.9).add_(x.mean())  # here
        return x - self.n["mean"]
""",
    "an object in a list": """
class Item: n = None
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.items = [Item()]
    def forward(self, x):
        self.items[0].n = self.items[0].n or x.shape[1]
        return x / self.items[0].n
""",
    "a partial's arguments": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.of = functools.partial(lambda seen, x: (seen.append(x.shape[1]), x / seen[0])[1], [])
    def forward(self, x): return self.of(x)
""",
    "a hook": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        seen = []
        self.inner = torch.nn.Identity()
        self.inner.register_forward_hook(lambda m, a, y: (seen.append(y.shape[1]), y / seen[0])[1])
    def forward(self, x): return self.inner(x)
""",
    "a weight": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    def forward(self, x):
        if self.w == 0: self.w.fill_(x.shape[1])  # here
        return x / self.w
""",
    "a counter in a buffer": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.n += 1  # here
        return torch.where(self.n < 1000, x, 2 * x)
""",
}
FINE = {
    "a cache of what was asked": """
@functools.cache
def table(n): return torch.arange(n)
class Model(torch.nn.Module):
    def forward(self, x): return x + table(x.shape[1])
""",
    "a table of a class": """
class Model(torch.nn.Module):
    tables = {}
    def forward(self, x):
        n = x.shape[1]
        if n not in self.tables: self.tables[n] = torch.arange(n)
        return x + self.tables[n]
""",
    "a count that names calls": """
import itertools
calls = itertools.count()
class Model(torch.nn.Module):
    def forward(self, x):
        next(calls)
        return x
""",
    "a count of a class": """
class Model(torch.nn.Module):
    calls = 0
    def forward(self, x):
        Model.calls += 1
        return x
""",
}


def asked_of_file(code, tmp_path, monkeypatch):
    """Return what is found of a file's model that has run for other questions, and the file."""
    file = tmp_path / "kept_elsewhere.py"
    file.write_text("import functools\nimport numpy as np\nimport torch\n" + code)
    module = ModuleType("kept_elsewhere")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "kept_elsewhere", module)
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    model = module.Model()
    loaded = State(model)
    model(*OTHER)
    return state_finding(model, loaded, ONE, OTHER, str(tmp_path)), file


@pytest.mark.parametrize("code", PLACES.values(), ids=PLACES)
def test_what_is_kept_in_any_place_is_named(code, tmp_path, monkeypatch):
    finding, file = asked_of_file(code, tmp_path, monkeypatch)
    assert (finding.code, finding.evidence["change"]) == ("N303", "state")
    lines = [at for at, text in enumerate(file.read_text().splitlines(), 1) if "# here" in text]
    assert [f"{file.name}:{at}" for at in lines] in ([], [finding.place.source])


@pytest.mark.parametrize("code", FINE.values(), ids=FINE)
def test_what_is_kept_in_any_place_without_effect_is_left_alone(code, tmp_path, monkeypatch):
    assert asked_of_file(code, tmp_path, monkeypatch)[0] is None


MOVING = {
    "a generator": [
        "if self.kept is None: self.kept = (1 + (i > 90) for i in range(10**9))",
        "return x * next(self.kept)",
    ],
    "a cycle": [
        "if self.kept is None: self.kept = itertools.cycle([1] * 80 + [2])",
        "return x * next(self.kept)",
    ],
    "a list that grows": [
        "self.kept = self.kept if self.kept is not None else []",
        "self.kept.append(0)",
        "return x * (1 if len(self.kept) < 100 else 2)",
    ],
    "a count in a dictionary": [
        "self.kept = self.kept or {'n': 0}",
        "self.kept['n'] += 1",
        "return x * (1 if self.kept['n'] < 100 else 2)",
    ],
    "an own generator of random numbers": [
        "self.kept = self.kept or random.Random(1)",
        "return x * (2 if self.kept.random() < 0.05 else 1)",
    ],
    "a variable of the environment": [
        "os.environ['KEPT'] = str(int(os.environ.get('KEPT', 0)) + 1)",
        "return x * (1 if int(os.environ['KEPT']) < 100 else 2)",
    ],
}


@pytest.mark.parametrize("forward", MOVING.values(), ids=MOVING)
def test_what_moves_on_until_a_later_call_differs(forward, tmp_path, monkeypatch):
    monkeypatch.setenv("KEPT", "0")
    finding, _ = asked(forward, tmp_path, monkeypatch)
    assert (finding.code, finding.severity) == ("N303", "error")
    assert " calls than in its first" in finding.message
    assert os.environ["KEPT"] == "0"


def test_what_moves_on_without_an_end_in_sight_proves_nothing(tmp_path, monkeypatch):
    forward = [
        "if self.kept is None: self.kept = (1 + (i > 10**6) for i in range(10**9))",
        "return x * next(self.kept)",
    ]
    finding, _ = asked(forward, tmp_path, monkeypatch)
    assert (finding.code, finding.place.source) == ("N513", "kept_model.py:10")


@pytest.mark.parametrize("made", ["iter({1: 2})", "random.Random(0)", "itertools.cycle([1])"])
def test_what_is_there_and_does_not_move_is_no_concern(made, tmp_path, monkeypatch):
    forward = [f"self.kept = self.kept or {made}", "return x + 1"]
    assert asked(forward, tmp_path, monkeypatch)[0] is None
