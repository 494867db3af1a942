"""A real run with a waiver: every view of it says so, and nobody can make one up."""

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from answers import answer_for
from past_runs import make_run
from resealing import seal_again

from convkit.cli.output.audit_text import audit_text
from convkit.cli.output.run_table import summary
from convkit.host.audit.audit_policy import Policy, Requirements, violations
from convkit.host.audit.signing.signatures import SignatureCheck
from convkit.host.nightly.junit_report import junit
from convkit.host.nightly.markdown_report import markdown
from convkit.host.nightly.nightly_record import FORMAT, NightlyRun, RecipeResult
from convkit.host.record.bill_of_materials import model_card
from convkit.host.record.provenance import read_provenance
from convkit.host.record.run_summary import waiver_lines
from convkit.host.run.rejudging import rejudge
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOutcome
from convkit.host.track.run_entries import parent_entry

STRICT = {"seed": 11, "tolerance": {"max_abs": 1e-12}}
REASON = "tanh differs in the last bit"
LINE = f"ort: N101 waived until 2099-01-31: {REASON}"


def waiver(**changes: str) -> dict[str, str]:
    return {"code": "N101", "target": "ort", "reason": REASON, "until": "2099-01-31"} | changes


@pytest.fixture(scope="module")
def waived(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    home = tmp_path_factory.mktemp("waived") / "home"
    return make_run(home, verify=STRICT, waive=[waiver()])


def text_of(renderable: Any) -> str:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_the_run_passes_and_every_view_says_that_it_is_waived(waived: RunOutcome) -> None:
    record, folder = waived.record, waived.folder
    assert (record.status, record.exit_code) == ("waived", 0)
    assert waiver_lines(record) == (LINE,)
    answer = answer_for(folder, folder.parents[2])
    assert (answer.integrity, answer.verdict, answer.contradictions) == ("intact", "waived", ())
    entry = parent_entry(record)
    assert entry.status == "FAILED"
    assert entry.tags["convkit.waivers"] == LINE
    views = {
        "result.json": (folder / "result.json").read_text(),
        "table": text_of(summary(record, up_to_date=False)),
        "report": (folder / "report.html").read_text(),
        "audit": text_of(audit_text(answer)),
        "card": model_card(record, read_provenance(folder)),
        "MLflow": entry.tags["mlflow.note.content"],
        **nightly_views(record.id),
    }
    for name, text in views.items():
        assert "waived" in text, name
        assert "2099" in text, name
        assert REASON in text, name
        assert "N101" in text, name


def nightly_views(run: str) -> dict[str, str]:
    result = RecipeResult(
        "small.yaml", "small", "green", 1.0, run=run, verdicts={"ort": "waived"}, waivers=(LINE,)
    )
    night = NightlyRun(FORMAT, "20260101-000000", 0.0, ("small.yaml",), 1.0, (result,))
    return {"markdown": markdown(night), "junit": junit(night)}


def test_when_it_expires_the_stored_run_fails(waived: RunOutcome) -> None:
    assert rejudge(waived.folder, None, dt.date(2099, 1, 31)).status == "waived"
    later = rejudge(waived.folder, None, dt.date(2099, 2, 1))
    assert (later.status, later.exit_code) == ("failed", 1)
    assert later.targets[0].headline.startswith("R110 ")


def test_an_expired_waiver_fails_the_run_though_every_stage_is_cached(
    waived: RunOutcome, tmp_path: Path
) -> None:
    home = waived.folder.parents[2]
    again = make_run(home, verify=STRICT, waive=[waiver()])
    assert again.up_to_date
    gone = make_run(home, verify=STRICT, waive=[waiver(until="2026-01-31")])
    assert {stage.status for stage in gone.record.stages} == {"hit"}
    assert (gone.record.status, gone.record.exit_code) == ("failed", 1)
    assert gone.record.targets[0].waivers[0].state == "expired"


@pytest.mark.parametrize(
    "forge",
    [
        lambda record: record["targets"][0].update(waivers=[]),
        lambda record: record["targets"][0]["waivers"][0].update(until="2100-01-31"),
        lambda record: record["targets"][0]["waivers"][0].update(state="unused"),
        lambda record: record.update(recipe_text=record["recipe_text"].partition("waive:")[0]),
        lambda record: (
            record["targets"][0].update(status="verified"),
            record["targets"][0]["verifications"][0].update(status="verified"),
            record.update(status="verified"),
        ),
    ],
    ids=["hidden", "longer", "unused", "not in the recipe", "verified"],
)
def test_a_forged_waiver_is_named(waived: RunOutcome, tmp_path: Path, forge: Any) -> None:
    folder = tmp_path / waived.folder.name
    shutil.copytree(waived.folder, folder)
    record = json.loads((folder / "result.json").read_text())
    forge(record)
    (folder / "result.json").write_text(json.dumps(record, indent=2))
    (folder / "recipe.yaml").write_text(record["recipe_text"])
    seal_again(folder)
    answer = answer_for(folder, tmp_path / "no home")
    assert answer.exit_code == 1
    assert answer.contradictions


def test_a_policy_can_refuse_waivers(waived: RunOutcome) -> None:
    record = read_record(waived.folder)
    for allowed, found in ((True, []), (False, ["ort: errors are waived"])):
        policy = Policy("policy.yaml", {}, Requirements(signed=(), waivers=allowed))
        said = violations(waived.folder, record, SignatureCheck(), policy, lost=None)
        assert list(said) == found
