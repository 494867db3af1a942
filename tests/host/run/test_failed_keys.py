"""`convkit plan` knows which stages run again because their check failed."""

import dataclasses
from pathlib import Path

from records import build_record
from run_folders import write_run

from convkit.host.home import Home
from convkit.host.run.plan_command import failed_keys
from convkit.protocol.findings.finding import Finding


def test_keys_of_failed_checks_are_those_of_the_recipes_latest_runs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    record = build_record()
    error, warning = Finding("N202", "x overflows"), Finding("N215", "a mean adds up to more")
    broken = dataclasses.replace(record.stages[0], key="broken", status="broken")
    failed = dataclasses.replace(record.stages[0], key="failed", status="done", findings=(error,))
    passed = dataclasses.replace(failed, key="passed", findings=(warning,))
    record = dataclasses.replace(record, stages=(broken, failed, passed))
    assert failed_keys(home, record.recipe) == frozenset()
    write_run(home.root / "results", record)
    assert failed_keys(home, record.recipe) == {"failed"}
    assert failed_keys(home, "another") == frozenset()
    damaged = write_run(
        home.root / "results", dataclasses.replace(record, id="20991231-000000-abcd")
    )
    (damaged / "result.json").write_text("{")
    assert failed_keys(home, record.recipe) == {"failed"}
