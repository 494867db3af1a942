"""What several stages report alike is listed once by `convkit diagnose`."""

import dataclasses

from records import build_record, failed_target

from convkit.host.diagnosis.diagnose_command import diagnose_record
from convkit.protocol.findings.finding import Finding


def others_of(*findings):
    target = failed_target()
    verification = dataclasses.replace(target.verifications[0], findings=findings[:1])
    target = dataclasses.replace(target, verifications=(verification,), findings=findings[1:])
    (diagnosis,) = diagnose_record(build_record(targets=(target,)))
    assert diagnosis.cause == findings[0]
    return diagnosis.others


def failure(stage, error):
    return Finding("E204", f"{stage}: {error}", evidence={"stage": stage})


def test_a_failure_that_stages_share_is_listed_once():
    shared = (failure("export", "no config.json"), failure("reference", "no config.json"))
    assert others_of(*shared) == ()


def test_a_different_failure_and_a_different_code_stay():
    other = failure("reference", "out of range")
    same_words = Finding("E201", "export: no config.json")
    assert others_of(failure("export", "no config.json"), other, same_words) == (other, same_words)
