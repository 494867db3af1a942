"""Engines built twice: identical ones say nothing, others name what differs."""

from convkit.runtimes.tensorrt_rtx.repeated_builds import repeated

NAMES = {"log_assignment", "matmul_3", "scores"}
ONE = bytes(200) + b"log_assignment" + bytes(500) + b"matmul_3" + bytes(10) + b"\x01" + bytes(300)


def test_identical_engines_are_no_finding() -> None:
    assert repeated(ONE, bytes(ONE), NAMES) is None


def test_the_layer_next_to_a_changed_byte_is_named() -> None:
    finding = repeated(ONE, ONE.replace(b"\x01", b"\x02"), NAMES)
    assert finding is not None
    assert (finding.code, finding.severity, finding.place.tensor) == ("R103", "warning", "matmul_3")
    assert finding.evidence["different"] == 1
    assert finding.evidence["places"] == [[732, 732]]
    assert "1 of them different in 1 place, next to matmul_3" in finding.message


def test_names_in_another_order_are_named_with_their_neighbors() -> None:
    two = ONE.replace(b"log_assignment", b"scores" + bytes(8))
    finding = repeated(ONE, two, NAMES)
    assert finding is not None
    assert finding.message.endswith("one engine lists log_assignment where the other lists scores")


def test_engines_of_different_sizes_differ_even_if_one_begins_like_the_other() -> None:
    finding = repeated(ONE, ONE + b"\x00", NAMES)
    assert finding is not None
    assert finding.evidence["sizes"] == [len(ONE), len(ONE) + 1]
