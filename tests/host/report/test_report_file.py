import base64
import dataclasses
import hashlib
import html.parser
import re

import jinja2
import pytest
from records import build_record, failed_target, non_finite_record, tensor_metrics, verified_record

from convkit.host.recipe.editing.change_text import change_text
from convkit.host.report import report_file
from convkit.host.report.report_file import render_report, write_report
from convkit.protocol.errors import StoreError
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseMetrics, InvarianceMetrics, SimulatedCase

_VOID = {"meta", "br", "link", "img", "hr", "input"}


class _Page(html.parser.HTMLParser):
    """Collects tags, attributes and text, and insists on closed tags."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("style", "script"):
            self.text += data


def test_the_report_forbids_everything_but_its_own_style():
    page = _Page(source := render_report(build_record()))
    (policy,) = [
        value
        for (tag, name, value), (_, before, kind) in zip(
            page.attributes[1:], page.attributes, strict=False
        )
        if (tag, name, before) == ("meta", "content", "http-equiv")
        and kind == "Content-Security-Policy"
    ]
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert not {"script", "iframe", "object", "img"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name == "style" or name.startswith("on")]


def test_prepared_templates_are_all_that_a_report_needs(monkeypatch):
    report_file._environment.cache_clear()
    report_file.prepare_templates("code")

    def compiling(*given, **options):
        raise AssertionError("a template was compiled late")

    with monkeypatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", compiling)
        assert render_report(build_record())
        report_file._environment.cache_clear()
        with pytest.raises(AssertionError, match="compiled late"):
            render_report(build_record())


def words(record):
    return " ".join(_Page(render_report(record)).text.split())


def test_the_report_tells_the_whole_run():
    text = words(build_record())
    assert "1 of 3 targets failed verification: 'ort-optimized'; 1 was skipped" in text
    assert "First failing case: typical (batch=4, sequence=128; " in text
    for part in (
        "C110 inputs are swapped",
        "encoder.layer.0.attention",
        "bert.py:214",
        "max_abs 1.82e-05 <= 0.0001",
        "18 % of the limit",
        "384 NaN in the converted model, none in the original",
        "this machine has no CUDA device",
        "verify.budget of 30 s",
        "onnxruntime 1.21.0",
        "simulated",
        "int64",
        "sequence 2 to 512, typically 128",
        "build:ort-cuda was skipped",
        "convkit run recipes/bert.yaml",
        "overrides: {num_hidden_layers: 2}",
        "crossed:input_ids:attention_mask",
        "models/ort-cpu/model.onnx.data",
        "86.7 MiB",
    ):
        assert part in text, part


def test_every_case_of_every_target_stands_in_the_matrix():
    text = render_report(build_record())
    matrices = re.findall(r'<table class="matrix">.*?</table>', text, re.DOTALL)
    assert [len(re.findall("<tr>", matrix)) for matrix in matrices] == [1 + 3, 1 + 3, 1 + 3]


def test_a_remedys_change_is_yaml_as_it_stands_in_a_recipe():
    assert (
        "targets:\n  ort-optimized:\n    optimization: basic\n    tolerance: {max_abs: 0.5}\n"
        in render_report(build_record()).replace("&#39;", "'")
    )
    both = Remedy("x", {"precision": "float32", "precision.default": "float16"})
    assert change_text(both.change) == "precision: float32\nprecision.default: float16\n"


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs():
    page = _Page(render_report(build_record()))
    assert not {"script", "img", "image", "use", "link", "iframe", "object"} & set(page.tags)
    for _, name, _ in page.attributes:
        assert name not in ("src", "style", "xlink:href")
        assert not name.startswith("on")
    assert "url(" not in render_report(build_record())
    assert "@import" not in render_report(build_record())


def test_links_lead_to_anchors_of_the_page_and_files_of_the_run():
    page = _Page(render_report(build_record()))
    anchors = {value for _, name, value in page.attributes if name == "id"}
    links = {value for _, name, value in page.attributes if name == "href"}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    files = {link for link in links if not link.startswith("#")}
    assert {"./result.json", "./logs/export.log", "./models/ort-cpu/model.onnx"} <= files
    assert all(link.startswith("./") for link in files)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(anchors)


EVIL = "<script>alert('1')</script>\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def test_everything_is_escaped():
    target = failed_target()
    verification = target.verifications[0]
    case = verification.cases[1]
    output = dataclasses.replace(case.outputs[0], output=EVIL, failures=(EVIL,))
    broken = dataclasses.replace(
        case, case=EVIL, description=EVIL, error=EVIL, sizes={EVIL: 3}, outputs=(output,)
    )
    finding = Finding(
        EVIL, EVIL, Place(EVIL, EVIL, EVIL, EVIL, EVIL), {EVIL: EVIL}, Remedy(EVIL, {EVIL: EVIL})
    )
    verification = dataclasses.replace(
        verification,
        cases=(broken,),
        headline=EVIL,
        providers=(EVIL,),
        findings=(finding,),
        version=EVIL,
    )
    target = dataclasses.replace(
        target, name=EVIL, headline=EVIL, files=(EVIL,), verifications=(verification,)
    )
    record = build_record()
    stage = dataclasses.replace(
        record.stages[0], id=EVIL, reason=EVIL, error=EVIL, log=EVIL, versions={EVIL: EVIL}
    )
    tensor = dataclasses.replace(record.contract.inputs[0], name=EVIL, origin=EVIL)
    record = dataclasses.replace(
        record,
        targets=(target,),
        stages=(stage,),
        recipe=EVIL,
        recipe_text=EVIL,
        description=EVIL,
        command=(EVIL,),
        host={EVIL: EVIL},
        contract=dataclasses.replace(record.contract, inputs=(tensor,)),
    )
    page = _Page(render_report(record))
    assert not {"script", "img"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("{{ 7 * 7 }}") > 20
    assert "49" not in page.text.replace("1,049", "")


def test_a_verified_run_reads_as_one():
    record = verified_record()
    target = record.targets[0]
    kept = tuple(dataclasses.replace(v, omitted=(), findings=()) for v in target.verifications)
    record = dataclasses.replace(record, targets=(dataclasses.replace(target, verifications=kept),))
    text = words(record)
    assert "The target matches the original within the tolerance." in text
    assert "Nothing: every target was checked on every case that applies." in text
    assert "First failing case" not in text
    assert 'class="callout' not in render_report(record)
    assert "Not fully verified (0)" in text
    device = record.targets[0]
    simulated = tuple(dataclasses.replace(v, evidence="simulated") for v in device.verifications)
    text = words(
        dataclasses.replace(record, targets=(dataclasses.replace(device, verifications=simulated),))
    )
    assert "Not fully verified (1)" in text
    assert "Simulated, not run on the device: ort-cpu" in text
    assert "Nothing: " not in text
    assert "in float32, so" not in text
    low = dataclasses.replace(device, precision="float16, float32: head", verifications=simulated)
    text = words(dataclasses.replace(record, targets=(low,)))
    # On the card, with its verification, and among what is not fully verified.
    assert text.count("CPU's kernels compute float16 in float32, so its rounding is") >= 3


def test_figures_that_are_no_numbers_are_shown_as_they_are():
    text = words(non_finite_record())
    assert "max_abs nan > 0.0001" in text
    assert "max_abs inf > 0.0001" in text


def test_a_run_in_which_nothing_was_built_has_a_report_too():
    record = build_record()
    broken = dataclasses.replace(
        record.stages[0], status="broken", error="torch.export failed", artifact=None
    )
    target = dataclasses.replace(
        record.targets[0], status="broken", verifications=(), files=(), size_bytes=0
    )
    text = words(dataclasses.replace(record, stages=(broken,), targets=(target,), status="broken"))
    assert "torch.export failed" in text
    assert "The target 'ort-cpu' could not be built or verified." in text


def test_a_finding_of_an_unknown_code_is_shown():
    target = dataclasses.replace(
        failed_target(), findings=(Finding("X999", "from a later convkit", severity="note"),)
    )
    assert "X999" in words(build_record(targets=(target,)))


@pytest.mark.parametrize(
    ("growth", "plotted"), [([["norm", 1.2], ["fc", 0.012]], True), ("not measured", False)]
)
def test_the_growth_of_an_error_is_plotted_and_not_repeated_as_json(growth, plotted):
    finding = Finding("N405", "x", evidence={"growth": growth, "operation": "layer_norm"})
    target = dataclasses.replace(failed_target(), findings=(finding,))
    page = _Page(render_report(build_record(targets=(target,))))
    assert "growth" not in page.text
    assert ("Error along the depth" in page.text) is plotted
    assert "layer_norm" in page.text


def test_names_in_backticks_and_kept_modules_are_set_as_code():
    finding = Finding("N202", "`<b>` overflows", remedy=Remedy("Keep `attention.` in float32."))
    target = dataclasses.replace(
        failed_target(), findings=(finding,), precision="float16, float32: ., a.*.b"
    )
    text = render_report(build_record(targets=(target,)))
    assert "<code>&lt;b&gt;</code> overflows" in text
    assert "Keep <code>attention.</code> in float32." in text
    assert "float16 with <code>.</code>, <code>a.*.b</code> in float32" in text


def test_the_file_is_written_whole(tmp_path):
    path = write_report(build_record(), tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_is_not_there_is_an_error_with_its_place(tmp_path):
    with pytest.raises(StoreError, match=r"report\.html"):
        write_report(build_record(), tmp_path / "missing")


def test_characters_that_hide_or_reorder_text_are_shown():
    target = dataclasses.replace(
        failed_target(), name="ort\u202egpj\x07", headline="\x1b[31m\udcff"
    )
    page = render_report(build_record(targets=(target,)))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", page)
    assert "ort\\u202egpj\\x07" in page


def test_a_simulation_never_looks_like_a_device():
    device, simulated = verified_record(), build_record(targets=(failed_target(),))
    evidence = re.compile(r'class="(?:card [^"]*|evidence [^"]*|badge [^"]*)"')
    assert not [each for each in evidence.findall(render_report(device)) if "simulated" in each]
    found = evidence.findall(render_report(simulated))
    assert not [each for each in found if "device" in each]
    # The run's own badge is about all targets.
    assert [each for each in found if "simulated" not in each] == ['class="badge failed"'] + [
        each for each in found if each.startswith('class="badge ') and _is_stage(each)
    ]


def _is_stage(badge):
    return badge in {f'class="badge {status}"' for status in ("hit", "done", "skipped", "blocked")}


def test_a_target_beside_others_has_its_path_in_its_section_and_a_lone_one_on_its_card():
    leading = failed_target().verifications[0].findings[0]
    target = dataclasses.replace(failed_target(), leading=leading)
    for targets, inside in (
        ((target,), "card"),
        ((target, verified_record().targets[0]), "section"),
    ):
        page = render_report(build_record(targets=targets))
        assert page.count("From the cause to the symptom in ort-optimized</title>") == 1
        place = page.index("From the cause to the symptom in ort-optimized</title>")
        assert ("</article>" in page[:place]) is (inside == "section")


def test_a_large_run_stays_small_and_complete():
    from records import case_verdict, output_verdict

    cases = tuple(
        case_verdict(f"case-{i}", 1, 2, output_verdict(1e-6 * (i + 1))) for i in range(40)
    )
    verification = dataclasses.replace(
        failed_target().verifications[0], status="verified", cases=cases, findings=()
    )
    targets = tuple(
        dataclasses.replace(
            failed_target(), name=f"target-{i}", status="verified", verifications=(verification,)
        )
        for i in range(50)
    )
    page = render_report(build_record(targets=targets))
    assert len(page.encode()) < 2_000_000
    assert len(re.findall(r"<td><strong>case-", page)) == 50 * 40
    assert len(re.findall(r'class="dot"', page)) == 50 * 40


def _compared(max_abs, **metrics):
    return CaseMetrics("typical", 0.1, (tensor_metrics(max_abs, **metrics),))


def test_a_simulation_beside_its_device_and_the_invariances_are_in_tables():
    target = failed_target()
    checks = (
        InvarianceMetrics(
            "padding", "padded", "typical", (tensor_metrics(0.0),), (tensor_metrics(0.0625),)
        ),
        InvarianceMetrics("batch", "alone", "typical", (), (tensor_metrics(0.5, nan_candidate=3),)),
    )
    simulated = (
        SimulatedCase(_compared(0.125), _compared(0.25)),
        SimulatedCase(_compared(0.375), CaseMetrics("extreme", 0.1, (), "no such kernel")),
        SimulatedCase(CaseMetrics("odd", 0.1, (), "a refusal"), CaseMetrics("odd", 0.1, ())),
    )
    verification = dataclasses.replace(
        target.verifications[0], invariance=checks, simulated=simulated
    )
    page = render_report(
        build_record(targets=(dataclasses.replace(target, verifications=(verification,)),))
    )
    text = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert "The simulation beside the device (3 cases)" in text
    assert "typical last_hidden_state 0.125 0.25" in text
    assert "0.375 no such kernel" in text
    assert "odd a refusal" in text
    assert "padding padded typical last_hidden_state 0.0625 0" in text
    assert "batch alone typical last_hidden_state 0.5, 3 not finite not compared" in text


def test_a_broken_target_links_the_log_of_the_stage_that_broke():
    record = build_record()
    broken = dataclasses.replace(record.stages[0], status="broken", error="torch.export failed")
    target = dataclasses.replace(record.targets[0], status="broken", verifications=())
    page = render_report(
        dataclasses.replace(record, stages=(broken, *record.stages[1:]), targets=(target,))
    )
    card = page[page.index("<article") : page.index("</article>")]
    assert re.findall(r'href="(\./logs/[^"]*)"', card)[0] == "./logs/export.log"
