"""What a remedy is called beside the proof of its cause."""

from convkit.protocol.findings.finding import Finding, Remedy


def test_a_proven_cause_and_a_remedy_that_was_not_run_have_one_status() -> None:
    proven = Finding("C110", "swapped", evidence={"proven": True}, remedy=Remedy("Exchange them."))
    assert proven.advice is not None
    label, text = proven.advice
    assert label == "to do"
    assert text.startswith("Exchange them. Correcting the cause in memory proved it;")
    assert text.endswith("this remedy was not run.")


def test_every_other_remedy_keeps_its_label_and_text() -> None:
    for remedy, label in (
        (Remedy("Do it."), "untried"),
        (Remedy("Do it.", proven=True), "fix"),
        (Remedy("Do it.", tried=True), "tried"),
        (Remedy("Do it.", refers=True), "next"),
    ):
        for proven in (False, True):
            if proven and label == "untried":
                continue
            finding = Finding("C110", "x", evidence={"proven": proven}, remedy=remedy)
            assert finding.advice == (label, "Do it.")
    assert Finding("C110", "x").advice is None
