"""A refused graph's finding comes with the smallest part that is refused, if there is one."""

from convkit.host.trials.experiment_findings import at_part
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import ReproduceResult

REFUSED = Finding("E205", "the runtime refused the model: no kernel", Place(case="typical"))


def test_the_part_that_is_refused_is_the_place() -> None:
    place = Place(node="node_conv", module="stem", source="m.py:12")
    part = ReproduceResult("refused", "", ("Relu", "Conv", "Relu"), place=place)
    found = at_part(REFUSED, part)
    assert (found.place.node, found.place.module, found.place.source) == (
        "node_conv",
        "stem",
        "m.py:12",
    )
    assert found.place.case == "typical"
    assert found.message.endswith(
        "the smallest part that it refuses is 2 Relu, Conv (node node_conv, m.py:12)"
    )
    assert found.evidence["smallest_part"] == ["Relu", "Conv", "Relu"]


def test_a_graph_without_such_a_part_keeps_its_finding() -> None:
    assert at_part(REFUSED, ReproduceResult(None, "it loads in a session of its own")) is REFUSED
