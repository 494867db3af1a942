"""How long a search still takes: unknown at first, then by its pace, always said first."""

from convkit.host.processes.progress_events import SilentListener
from convkit.host.tune.search_time_left import Pace, further


class Heard(SilentListener):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        self.messages.append(message)


def pace() -> tuple[Pace, Heard]:
    heard = Heard()
    return Pace(heard, group=4, screening=4.0, final=40.0), heard


def test_before_anything_is_verified_nothing_is_promised():
    found, heard = pace()
    found.verifying(3, "precision", later=(0, 1, 1))
    assert found.left is None
    assert heard.messages == ["verifying 3 candidates"]


def test_verifications_that_ran_set_the_pace_and_cached_ones_do_not():
    found, _ = pace()
    found.verifying(3, "precision", later=(0, 0, 0))
    found.stage_finished("verify:a", "hit", 9.0)
    assert found.left is None
    found.stage_finished("build:b", "done", 9.0)
    assert found.left is None
    found.stage_finished("verify:b", "done", 1.0)
    assert found.left is not None
    assert found.left < 1.0  # one more, as quick as this test's


def test_benchmarks_are_known_beforehand():
    found, heard = pace()
    found.timing(5, "screening", later=(0, 1, 2))
    assert found.left == 3 * 4.0 + 2 * 40.0  # two groups now, one later, two long ones
    assert heard.messages[-1] == "at most about 2 min left: timing 5 candidates"
    found.timed()
    assert found.left < 92.0


def test_what_a_screening_leads_to_is_estimated_by_what_it_keeps():
    assert further(2, group=4) == (8, 3, 1)
    assert further(None, group=4) == further(3, group=4)
