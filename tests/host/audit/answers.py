"""Audits a run and reads its answer, for several test modules."""

import json
from pathlib import Path

from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.audit_answer import AuditAnswer, audit
from convkit.host.audit.audit_policy import Policy
from convkit.host.audit.past_runs.run_search import LocatedRun, locate
from convkit.host.home import Home, home_around


def answer_for(subject: object, home: Path) -> AuditAnswer:
    return audit(locate(str(subject), Home(home)), Home(home))


def audit_folder(folder: Path) -> AuditAnswer:
    return answer_for(folder, home_around(folder))


def audited(folder: Path, policy: Policy | None) -> AuditAnswer:
    """Audit a run that is outside any home."""
    return audit(LocatedRun(folder), Home(folder.parent / "no home"), policy)


def problems(answer: AuditAnswer) -> dict[str, str]:
    return {problem.path: problem.problem for problem in answer.problems}


def command_line(*arguments: object, home: Path) -> tuple[int, str]:
    done = CliRunner().invoke(
        app, [*map(str, arguments), "--home", str(home)], env={"COLUMNS": "200"}
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def audit_record(folder: Path):
    return json.loads((folder / "result.json").read_text())
