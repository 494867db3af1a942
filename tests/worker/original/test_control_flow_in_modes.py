"""Models with torch.cond, while_loop, scan, map and flex_attention run under every mode."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.original.dispatch_mode import FunctionMode, OperationMode
from convkit.worker.original.float64_mode import run_in_float64
from convkit.worker.original.probing.value_branches import BranchLines
from convkit.worker.original.source_lines import source_line

ROOT = str(Path(__file__).parent)


class _Flow(torch.nn.Module):
    def __init__(self, run: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 4)
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self.layer, x)


def _cond(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: torch.tanh(layer(x)), lambda x: x - 1, (x,))


def _while(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    start = (torch.tensor(0), x)
    return while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, torch.tanh(layer(h))), start)[1]


def _scan(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    def step(held: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        held = torch.tanh(layer(held) + row)
        return held, held.clone()

    return scan(step, torch.zeros(4), x)[1]


def _map(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return mapped(lambda row: torch.tanh(layer(row)), x)


def _flex(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    values = torch.tanh(layer(x))[None, None]
    return flex_attention(values, values, values, score_mod=lambda s, *at: s + (at[2] - at[3]))


FLOWS = [_cond, _while, _scan, _map, _flex]
X = torch.linspace(0.1, 1.2, 12).reshape(3, 4)


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize("run", FLOWS)
@pytest.mark.sampled(2)
def test_modes_see_what_runs_inside(run: Callable[..., torch.Tensor]) -> None:
    module = _Flow(run)
    with torch.no_grad():
        recording = record(module, {"x": X}, ("y",), root=ROOT)
        exact = run_in_float64(module, {"x": X}, ("y",))["y"]
        plain = module(X)  # nothing was compiled in a mode that would fail here
    inside = [each for each in recording.operations if each.name.startswith("tanh")]
    assert inside
    assert all(str(each.source).startswith(Path(__file__).name) for each in inside)
    assert "layer" in {each.module for each in recording.operations}
    assert exact.dtype == "float64"
    assert torch.allclose(torch.from_numpy(exact).float(), plain, atol=1e-5)


def test_cond_is_a_branch_that_can_be_inverted() -> None:
    module = _Flow(_cond)
    lines = BranchLines(ROOT)
    with torch.no_grad(), lines:
        module(X)
    (line,) = lines.lines
    assert lines.lines[line] is True
    with torch.no_grad(), BranchLines(ROOT, inverted=line):
        assert torch.equal(module(X), X - 1)


@pytest.mark.parametrize("mode", [OperationMode, FunctionMode])
@pytest.mark.sampled(1)
def test_first_call_in_a_mode_leaves_later_ones_intact(mode: type) -> None:
    # In a process of its own: this one has imported torch's compiler.
    program = f"""
        import sys, torch
        from convkit.worker.original.dispatch_mode import {mode.__name__} as Mode

        def branch(x):
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

        class Mode(Mode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {{}}))

        assert "torch._dynamo" not in sys.modules
        compiler = torch.compile
        x = torch.ones(3)
        with torch.no_grad(), Mode():
            assert torch.equal(branch(x), x + 1)
        assert torch.compile is compiler
        with torch.no_grad():
            assert torch.equal(branch(-x), -x - 1)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_code_that_torch_writes_for_a_branch_is_no_line_of_the_model() -> None:
    trace = 'File "/home/me/net.py", line 3, in forward\nFile "<eval_with_key>.13", line 7, in f\n'
    assert source_line(trace, "/home/me") == "net.py:3"
