"""A cause's growth is evidence: the chain as numbers, which the report plots."""

import json
import math

from convkit.host.report.run_plots import growth_plot
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode, encode
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of


def finding_of(*growth: tuple[str, float]) -> Finding:
    cause = Cause("attribute", "epsilon is off", node="n", before=1.0, after=1e-7, growth=growth)
    (finding,) = findings_of(Diagnosis(1.0, 1e-7, (cause,)), "smallest")
    return finding


def test_each_step_of_the_chain_has_its_error() -> None:
    finding = finding_of(("norm layer_norm", 1.25), ("fc addmm", math.inf))
    assert finding.evidence["growth"] == [["norm layer_norm", 1.25], ["fc addmm", "inf"]]
    assert len(finding.chain) == 2


def test_the_report_plots_it_from_the_record() -> None:
    kept = decode(Finding, json.loads(json.dumps(encode(finding_of(("norm", 1.25), ("fc", 0.5))))))
    figure = growth_plot(kept)
    assert figure is not None
    assert "norm: off by 1.2 of its rms" in figure.svg


def test_without_a_growth_there_is_no_evidence_of_one() -> None:
    assert "growth" not in finding_of().evidence
