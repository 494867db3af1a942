import dataclasses

import pytest
from small_recipe import recipe
from test_target_verdict import GOOD

from convkit.host.verdict.findings.device_and_simulation import simulation_findings
from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseMetrics, SimulatedCase, TensorMetrics, VerifyResult

BAD = dataclasses.replace(GOOD, max_abs=0.5)
NAN = dataclasses.replace(GOOD, nan_candidate=1)


def found(device: TensorMetrics, simulated: TensorMetrics | None) -> list[tuple[str, str]]:
    def case(metrics: TensorMetrics) -> CaseMetrics:
        return CaseMetrics("typical", 0.1, (metrics,))

    pairs = () if simulated is None else (SimulatedCase(case(simulated), case(GOOD)),)
    nothing = Contract((), (), ())
    measured = VerifyResult("device", nothing, ("CUDA",), (), (case(device),), (), (), pairs)
    chosen = recipe()
    findings = simulation_findings(chosen, chosen.targets["ort"], measured, None)
    return [(finding.code, finding.severity) for finding in findings]


@pytest.mark.parametrize("metrics", [GOOD, BAD, NAN])
def test_one_verdict_is_a_note(metrics: TensorMetrics) -> None:
    assert found(metrics, metrics) == [("N212", "note")]


@pytest.mark.parametrize(
    ("device", "simulated"), [(GOOD, BAD), (BAD, GOOD), (GOOD, NAN), (NAN, GOOD)]
)
def test_two_verdicts_are_a_warning(device: TensorMetrics, simulated: TensorMetrics) -> None:
    assert found(device, simulated) == [("N211", "warning")]


def test_without_a_simulation_there_is_nothing_to_say() -> None:
    assert found(GOOD, None) == []
