import pytest
from svg import description, parse, words

from convkit.host.report.cause_path_drawing import PathStep, flow, wrapped


def test_steps_follow_each_other_downward_and_nothing_leaves_the_picture():
    steps = [
        PathStep("cause", "module " + "x" * 90, "Cause: N202 " + "word " * 20),
        PathStep("step", "MatMul returns 4 elements that are not finite"),
        PathStep("gap", "... 12 more operators"),
        PathStep("output", "NaN: 3 here", "Symptom"),
    ]
    svg = flow(steps, "From cause to symptom").svg
    root = parse(svg)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    boxes = [each for each in root.iter("g") if each.attrib["class"].startswith("box ")]
    assert [box.attrib["class"] for box in boxes] == [
        "box cause",
        "box step",
        "box gap",
        "box output",
    ]
    end = 0.0
    for box in boxes:
        shape = box.find("rect")
        top = float(shape.attrib["y"])
        assert top > end
        end = top + float(shape.attrib["height"])
        for text in box.iter("text"):
            assert top < float(text.attrib["y"]) < end
            assert len(text.text) * 6.4 < width
    assert end < height
    assert len([each for each in root.iter("g") if "arrow" in each.attrib["class"]]) == 3
    told = description(svg)
    assert told.index("MatMul") < told.index("12 more") < told.index("NaN: 3 here")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three", ["one two", "three"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("日本語日本語", ["日本語日", "本語"]),
        ("a\u202eb", ["a\\u202eb"]),
    ],
)
def test_lines_are_no_wider_than_their_box(text, lines):
    assert wrapped(text, 8) == lines


def test_hostile_text_stays_text():
    svg = flow([PathStep("cause", "<script>x</script>")], "t").svg
    assert "<script>" not in svg
    assert "<script>x</script>" in words(svg)
