import numpy as np
import pytest

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Held
from convkit.worker.cases.values.held_numbers import hold, kept
from convkit.worker.job_context import StageFailedError

IDS = TensorSpec("ids", "int64", ("batch", "sequence"))
DRAWN = np.random.default_rng(0).integers(0, 10, size=(3, 8))


def test_a_counted_number_has_so_many_elements_in_even_parts_of_the_rows():
    found = hold(DRAWN, IDS, (0, 10), [Held(7, 5)])
    assert (found == 7).sum(1).tolist() == [2, 2, 1]
    assert ((found >= 0) & (found < 10)).all()


@pytest.mark.parametrize(("how_many", "count"), [("none", 0), ("one", 1), ("all", 24), ("some", 6)])
def test_a_number_that_is_not_counted_has_as_many_as_the_case_asks(how_many, count):
    assert (hold(DRAWN, IDS, (0, 10), [Held(7)], how_many) == 7).sum() == count


def test_a_single_element_has_no_number_with_a_meaning():
    assert hold(np.array([[7]]), IDS, (0, 10), [Held(7)])[0, 0] != 7


def test_more_than_there_is_room_for_cannot_be_drawn():
    with pytest.raises(StageFailedError, match="no room"):
        hold(DRAWN, IDS, (0, 10), [Held(7, 25)])


def test_other_values_leave_numbers_with_a_meaning_in_their_places():
    before = hold(DRAWN, IDS, (0, 10), [Held(7, 5)])
    after = kept(np.full_like(before, 7), before, (0, 10), [Held(7, 5)])
    assert np.array_equal(after == 7, before == 7)


def test_all_of_a_row_has_one_of_several_numbers():
    found = hold(DRAWN, IDS, (0, 10), [Held(7), Held(3)], "all")
    assert (found == 7).all()
    one = hold(DRAWN[:, :1], IDS, (0, 10), [Held(7), Held(3)], "one")
    assert ((one == 7).sum(), (one == 3).sum()) == (1, 0)
