"""Nightly runs on another processor than the baseline's: synthetic run records of both kinds."""

import dataclasses
import json
from pathlib import Path

import pytest
from records import case_verdict, output_verdict
from synthetic import AVX2, AVX512, EARLIER_AVX2, LIMITS, Simulation

from convkit.cli.output.nightly_table import print_nightly
from convkit.host.nightly.baseline import is_edited, read_baseline
from convkit.host.nightly.junit_report import junit
from convkit.host.nightly.markdown_report import markdown
from convkit.host.record.run_record import TargetReport
from convkit.host.store.digests import digest_json
from convkit.protocol.json_codec import encode


@pytest.fixture
def simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Return a simulation with a baseline of a processor with AVX-512 and VNNI."""
    made = Simulation.install(tmp_path / "here", monkeypatch)
    made.night()
    made.accept()
    return made


def with_error(max_abs: float, precision: str = "float32"):
    """Return a change of a target: another error, and perhaps another precision."""

    def change(target: TargetReport) -> TargetReport:
        (verification,) = target.verifications
        verdict = dataclasses.replace(output_verdict(max_abs, output="y"), limits=LIMITS)
        cases = tuple(
            case_verdict(case.case, case.sizes["batch"], 4, verdict) for case in verification.cases
        )
        verification = dataclasses.replace(verification, cases=cases)
        return dataclasses.replace(target, precision=precision, verifications=(verification,))

    return change


def test_rounding_of_another_processor_is_neither_worse_nor_better(simulation: Simulation) -> None:
    simulation.host = dict(AVX2)
    simulation.changes["ort"] = with_error(1.6e-5)
    run = simulation.nightly()
    (result,) = run.recipes
    assert (result.status, result.faults, result.improvements) == ("green", (), ())
    expected = "ort y max_abs 1e-05 -> 1.6e-05 (+60 %): WITHIN_ROUNDING, recorded on another"
    assert any(line.startswith(expected) for line in result.elsewhere)
    assert "another processor: ort y max" in markdown(run).replace("\\", "")
    assert "WITHIN_ROUNDING" in junit(run)
    assert 'failures="0"' in junit(run)


def test_the_same_change_on_the_same_processor_is_worse(simulation: Simulation) -> None:
    simulation.changes["ort"] = with_error(1.6e-5)
    result = simulation.night()
    assert result.elsewhere == ()
    assert any("max_abs 1e-05 -> 1.6e-05" in fault.message for fault in result.faults)


def test_drift_on_another_processor_is_still_drift(simulation: Simulation) -> None:
    simulation.host = dict(AVX2)
    simulation.changes["ort"] = with_error(9e-5)
    result = simulation.night()
    assert result.status == "regressed"
    assert any("max_abs 1e-05 -> 9e-05 (+800 %)" in fault.message for fault in result.faults)


def test_another_name_with_the_same_features_stays_strict(simulation: Simulation) -> None:
    simulation.host = AVX512 | {"processor": "Another name"}
    simulation.changes["ort"] = with_error(1.6e-5)
    assert simulation.night().status == "regressed"


def test_sizes_are_compared_strictly_everywhere(simulation: Simulation) -> None:
    simulation.host = dict(AVX2)
    simulation.changes["ort"] = lambda target: dataclasses.replace(target, size_bytes=1_010_000)
    assert simulation.night().status == "regressed"


@pytest.fixture
def int8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Return a simulation whose baseline has an int8 target, of exact integer kernels."""
    made = Simulation.install(tmp_path / "here", monkeypatch)
    made.changes["ort"] = with_error(1e-5, "dynamic-int8")
    made.night()
    made.accept()
    return made


@pytest.mark.parametrize("error", [9e-5, 1e-9], ids=["larger", "smaller"])
def test_int8_figures_of_other_integer_kernels_are_neither_worse_nor_better(
    int8: Simulation, error: float
) -> None:
    int8.host = dict(AVX2)
    int8.changes["ort"] = with_error(error, "dynamic-int8")
    result = int8.night()
    assert (result.faults, result.improvements) == ((), ())
    (line,) = result.elsewhere
    assert line == (
        "ort: neither better nor worse: the baseline's figures are of exact integer kernels, and it"
        " has none of this processor's, which are saturating-pairs"
    )


def test_int8_drift_among_equal_integer_kernels_is_drift(int8: Simulation) -> None:
    int8.host = AVX512 | {"processor_features": "x86_64 sse4_1"}  # another processor, also exact
    int8.changes["ort"] = with_error(9e-5, "dynamic-int8")
    assert int8.night().status == "regressed"


def test_a_verdict_counts_whatever_the_integer_kernels_are(int8: Simulation) -> None:
    int8.host = dict(AVX2)
    int8.changes["ort"] = lambda target: dataclasses.replace(
        with_error(9e-5, "dynamic-int8")(target), status="failed", headline="0.4 off"
    )
    assert [fault.kind for fault in int8.night().faults] == ["verdict"]


def test_another_processor_owes_no_identical_artifact(simulation: Simulation) -> None:
    assert simulation.night().reproduction.worst == "BIT_IDENTICAL"
    simulation.host, simulation.likeness = dict(AVX2), "WITHIN_ROUNDING"
    run = simulation.nightly()
    (result,) = run.recipes
    assert result.faults == ()
    assert "ort reproduced as WITHIN_ROUNDING of another processor's" in result.elsewhere
    assert "| WITHIN_ROUNDING |" in markdown(run)
    # Further away than rounding is a loss there, too.
    simulation.likeness = "NUMERIC_OK"
    (fault, _) = simulation.night().faults
    assert fault.message == (
        "ort reproduced as NUMERIC_OK, was WITHIN_ROUNDING or better on another processor"
    )
    # Back on the processor that recorded it, the artifact must be identical again.
    simulation.host, simulation.likeness = dict(AVX512), "WITHIN_ROUNDING"
    assert "was BIT_IDENTICAL" in simulation.night().faults[0].message


def test_what_another_processor_reached_once_it_must_reach_again(simulation: Simulation) -> None:
    simulation.host = dict(AVX2)
    assert simulation.night().reproduction.worst == "BIT_IDENTICAL"
    simulation.likeness = "WITHIN_ROUNDING"
    assert "was BIT_IDENTICAL" in simulation.night().faults[0].message


def test_figures_of_other_integer_kernels_do_not_lower_a_class(simulation: Simulation) -> None:
    simulation.night()
    simulation.host, simulation.likeness = dict(AVX2), "NUMERIC_OK"
    simulation.incomparable = True
    result = simulation.night()
    assert result.faults == ()
    assert "ort reproduced as NUMERIC_OK: its figures are of other integer kernels" in "".join(
        result.elsewhere
    )


def as_of_an_earlier_release(simulation: Simulation) -> None:
    """Rewrite the baseline as a release before features wrote and sealed it."""
    content = json.loads(simulation.baseline_file.read_text())
    assert content.pop("features")
    content["processor"] = EARLIER_AVX2["processor"]
    for target in content["snapshot"]["targets"].values():
        for verification in target["verifications"].values():
            verification.pop("integer_kernels", None)
            for output in verification["outputs"].values():
                del output["largest"]
    del content["snapshot"]["waivers"], content["digest"]
    # Numbers as the codec writes them: 1 and 1.0 are one number in a digest.
    sealed = encode(content) | {"digest": ""}
    content["digest"] = digest_json(sealed)
    simulation.baseline_file.write_text(json.dumps(content))


def test_a_baseline_of_an_earlier_release_works(simulation: Simulation) -> None:
    as_of_an_earlier_release(simulation)
    baseline = read_baseline(simulation.baseline_file)
    assert not is_edited(baseline)
    assert baseline.ran_on.features == {"avx2"}
    simulation.changes["ort"] = with_error(1.6e-5)
    simulation.host = dict(AVX2)  # the same instruction sets as far as the old record knew
    assert any(fault.kind == "figure" for fault in simulation.night().faults)
    simulation.host = dict(AVX512)
    result = simulation.night()
    assert not any(fault.kind == "figure" for fault in result.faults)
    assert any("WITHIN_ROUNDING" in line for line in result.elsewhere)


def test_an_edit_of_the_features_shows(simulation: Simulation) -> None:
    text = simulation.baseline_file.read_text()
    simulation.baseline_file.write_text(text.replace("avx512_vnni", "avx512_bf16"))
    assert is_edited(read_baseline(simulation.baseline_file))


def test_accepting_on_another_processor_says_what_is_rounding(simulation: Simulation) -> None:
    simulation.host = dict(AVX2)
    simulation.changes["ort"] = with_error(1.6e-5)
    simulation.night()
    changes = simulation.accept("moved to other machines").changes
    assert changes.faults == ()
    assert any("WITHIN_ROUNDING" in line for line in changes.elsewhere)


def test_the_terminal_lists_what_another_processor_explains(
    simulation: Simulation, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.host = dict(AVX2)
    simulation.changes["ort"] = with_error(1.6e-5)
    print_nightly(simulation.nightly(), simulation.folder)
    shown = " ".join(capsys.readouterr().out.split())
    assert "small: another processor: ort y max_abs 1e-05 -> 1.6e-05 (+60 %)" in shown
