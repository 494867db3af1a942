import dataclasses

from records import build_record

from convkit.host.report.report_file import render_report
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision, ModulePrecision, PrecisionResult


def test_a_plan_is_shown_by_module_and_a_chain_in_its_order() -> None:
    record = build_record()
    rows = (
        ModulePrecision(
            "encoder.attention",
            3,
            1,
            100,
            0,
            ("pattern encoder.attention.",),
            0.5,
            1310.0,
            "t",
            "extreme",
        ),
        ModulePrecision("", 1, 0, 0, 0),
    )
    chained = Finding("N202", "overflows", chain=("first step", "second step"))
    target = dataclasses.replace(
        record.targets[0], plan=PrecisionResult(LowPrecision("float16"), rows), findings=(chained,)
    )
    html = render_report(dataclasses.replace(record, targets=(target,)))
    assert "<code>encoder.attention</code>" in html
    assert "<code>(root)</code>" in html
    assert "in extreme" in html
    assert "pattern encoder.attention." in html
    assert "Headroom to the limit of float16" in html
    assert html.index("first step") < html.index("second step")
