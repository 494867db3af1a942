import numpy as np

from convkit.worker.metrics.open_order import open_order_findings, open_orders


def test_places_that_are_judged_as_equal_are_counted_once_for_each_output():
    expected = {"places": np.array([0, 1, 2, 3]), "y": np.array([1.0, 2.0])}
    found = {"places": np.array([1, 0, 2, 9]), "y": np.array([1.0, 2.5])}
    judged = {"places": np.array([0, 1, 2, 9]), "y": np.array([1.0, 2.5])}
    orders = list(open_orders("example", expected, found, judged))
    assert [(each.output, each.differing, each.elements) for each in orders] == [("places", 2, 4)]
    again = list(open_orders("largest", expected, found, judged))
    (finding,) = open_order_findings([*orders, *again])
    assert (finding.code, finding.place.case) == ("N516", "example")
    assert "2 of 4 elements" in finding.message


def test_what_is_compared_as_it_is_tells_nothing():
    values = {"y": np.array([3, 1])}
    assert list(open_orders("example", {"y": np.array([1, 3])}, values, values)) == []
