"""How far a run is, and how long it still takes."""

from convkit.cli.output.run_time_left import Overall, RemainingWork, overall


def work(kind="verify", *, running=False, ended=False, spent=0.0, expected=None) -> RemainingWork:
    return RemainingWork(kind, running, ended, spent, expected)


def test_past_runs_tell_how_long_it_takes():
    stages = [
        work("export", ended=True, spent=10.0, expected=12.0),
        work("reference", running=True, spent=4.0, expected=10.0),
        work("verify", expected=20.0),
    ]
    assert overall(stages) == Overall(1, 3, 14 / 40, 26.0)


def test_a_stage_that_never_ran_takes_as_long_as_others_of_its_kind():
    stages = [work(ended=True, spent=6.0), work(), work()]
    assert overall(stages).left == 12.0


def test_nothing_is_promised_about_an_unknown_kind():
    assert overall([work(ended=True, spent=6.0), work("build")]) == Overall(1, 2, None, None)


def test_stages_that_run_together_share_the_time():
    stages = [work(running=True, expected=10.0), work(running=True, expected=10.0)]
    assert overall(stages).left == 10.0


def test_a_stage_that_takes_longer_than_ever_has_nothing_left():
    assert overall([work(running=True, spent=30.0, expected=10.0)]) == Overall(0, 1, 1.0, 0.0)
