"""A program that differs in float32: the place is found and proven."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted
from torch import nn

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion import missing_operators
from convkit.runtimes.coreml.conversion.module_conversion import Converted
from convkit.runtimes.coreml.float32_parity import (
    explain_float32,
    first_divergent_in_float32,
    too_fine_an_input,
    too_large_an_input,
)
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.mil.program import computes_in
from convkit.worker.original.contract_module import ContractModule

LIMITS = {"y": {"max_abs": 1e-5}}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(3 * self.dense(x), approximate="tanh")


GELU_LINE = '        return x + nn.functional.gelu(3 * self.dense(x), approximate="tanh")'


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Hashed(nn.Module):
    """A number that int64 holds and int32 does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.long() * 3_000_000_000 % 1000).float()


class Branching(nn.Module):
    """Python decides by a value, so that torch.jit.trace follows the example."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


def case_of(module: ContractModule, x: torch.Tensor) -> JudgedCase:
    with torch.no_grad():
        return JudgedCase({"x": x.numpy()}, {"y": module(x)[0].numpy()}, {})


def explained(model: nn.Module, x: torch.Tensor) -> tuple[Converted, JudgedCase, list[Finding]]:
    module = behind_contract(model, {"x": x}, ["y"])
    conversion = converted(module, {"x": x})
    case = case_of(module, x)
    _, findings = explain_float32(conversion, module.contract, "off", case.feeds, case.expected)
    return conversion, case, findings


X = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))


def test_a_healthy_program_is_within_the_limits() -> None:
    module = behind_contract(Net(), {"x": X}, ["y"])
    conversion = converted(module, {"x": X})
    assert first_divergent_in_float32(conversion, {"typical": case_of(module, X)}, LIMITS) is None


def test_a_wrong_translation_is_traced_to_its_module_and_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """coremltools' own gelu, which overlooks the approximation that is asked for."""
    from coremltools.converters.mil.frontend.torch import ops

    monkeypatch.setattr(missing_operators, "gelu", ops.gelu)
    conversion, case, (finding,) = explained(Net(), X)
    assert first_divergent_in_float32(conversion, {"off": case}, LIMITS) == "off"
    assert (finding.code, finding.place.module) == ("N408", "blocks.0")
    line = 1 + Path(__file__).read_text().splitlines().index(GELU_LINE)
    assert finding.place.source == f"{Path(__file__).name}:{line}"
    assert [each["module"] for each in finding.evidence["places"]] == ["blocks.0", "blocks.1"]
    assert finding.evidence["error"] > 1e-4
    assert finding.evidence["after"] < 1e-6, "with the original's values the outputs are right"
    assert finding.evidence["error_here"] > 0


def test_a_number_beyond_int32_is_the_cause() -> None:
    _, _, (finding,) = explained(Hashed(), torch.arange(16.0).reshape(2, 8))
    assert (finding.code, finding.evidence["value"]) == ("T108", 45_000_000_000)
    assert finding.place.source is not None
    assert finding.place.source.startswith("test_float32_parity.py:")


def test_what_was_followed_on_an_example_has_no_places() -> None:
    module = behind_contract(Branching(), {"x": X.abs()}, ["y"])
    conversion = converted(module, {"x": X.abs()})
    case = case_of(module, -X.abs())
    assert first_divergent_in_float32(conversion, {"other": case}, LIMITS) == "other"
    _, (finding,) = explain_float32(conversion, module.contract, "other", case.feeds, case.expected)
    assert finding.code == "N402"
    assert "followed" in finding.message


def test_a_program_that_keeps_everything_in_float32_computes_nothing_in_float16() -> None:
    module = behind_contract(Net(), {"x": X}, ["y"])
    kept = converted(module, {"x": X}, LowPrecision("float16", (".", "blocks")))
    assert not computes_in(kept.program, "fp16")
    some = converted(module, {"x": X}, LowPrecision("float16", ("blocks.0",)))
    assert computes_in(some.program, "fp16")


def test_cases_whose_original_is_not_finite_are_passed_over() -> None:
    module = behind_contract(Net(), {"x": X}, ["y"])
    conversion = converted(module, {"x": X})
    case = case_of(module, X)
    broken = JudgedCase(case.feeds, {"y": np.full((2, 8), np.nan, np.float32)}, {})
    assert first_divergent_in_float32(conversion, {"nan": broken}, LIMITS) is None


def test_an_input_that_int32_cannot_hold_is_named() -> None:
    class Rest(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x % 1000).float()

    inputs = {"x": torch.tensor([3, 4])}
    program = converted(behind_contract(Rest(), inputs, ["y"]), inputs)
    fits = {"x": np.array([2**31 - 1])}
    assert too_large_an_input(program, fits, "typical") is None
    found = too_large_an_input(program, {"x": np.array([2**31])}, "typical")
    assert found is not None
    assert (found.code, found.place.tensor) == ("T108", "x")
    assert "2147483648" in found.message


class Since(nn.Module):
    """Seconds since the first of some times, or since the zero of the clock."""

    def __init__(self, wave: Callable[[torch.Tensor], torch.Tensor], *, first: bool) -> None:
        super().__init__()
        self.wave, self.first = wave, first

    def forward(self, time: torch.Tensor) -> torch.Tensor:
        start = time[:, :1] if self.first else 1.7e9
        return self.wave(((time - start) / 60).float())


@pytest.mark.parametrize("first", [True, False])
def test_times_that_float32_cannot_tell_apart_are_named(*, first: bool) -> None:
    times = 1.7e9 + torch.arange(12.0, dtype=torch.float64).reshape(2, 6) * 7
    module = behind_contract(Since(torch.sin, first=first), {"time": times}, ["y"])
    program = converted(module, {"time": times})
    expected = {"y": module(times)[0].numpy()}
    found = too_fine_an_input(program, module, "typical", {"time": times.numpy()}, expected)
    assert found is not None
    assert (found.code, found.place.tensor) == ("N408", "time")
    assert found.remedy is not None
    assert found.remedy.proven == first
    # Nothing is said of an error that is somewhere else, nor of times that float32 holds.
    given = {"time": times.numpy()}
    other = behind_contract(Since(torch.cos, first=first), {"time": times}, ["y"])
    right = {"y": other(times)[0].numpy()}
    assert too_fine_an_input(program, other, "typical", given, right) is None
    whole = {"time": np.round(times.numpy() / 128) * 128}
    assert too_fine_an_input(program, module, "typical", whole, expected) is None
