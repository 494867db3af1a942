import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.protocol.module_patterns import PatternError, matches, nearest_path


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("encoder", "encoder", True),
        ("encoder", "encoder.layer.0", True),
        ("encoder", "encoders", False),
        ("encoder", "bert.encoder", False),
        ("encoder.layer.*.attention", "encoder.layer.11.attention.self.query", True),
        ("encoder.layer.*.attention", "encoder.layer.attention", False),
        ("encoder.layer.*.attention", "encoder.layer.0.1.attention", False),
        ("encoder.layer.1*", "encoder.layer.10.output", True),
        ("encoder.layer.1*", "encoder.layer.2", False),
        ("**.LayerNorm", "LayerNorm", True),
        ("**.LayerNorm", "encoder.layer.0.output.LayerNorm", True),
        ("**.LayerNorm", "encoder.layer.0.output.LayerNorm2", False),
        ("encoder.**.dense", "encoder.dense", True),
        ("encoder.**.dense", "encoder.a.b.dense.c", True),
        ("encoder.**.dense", "pooler.dense", False),
        ("encoder.layer.*.attention.", "encoder.layer.0.attention", True),
        ("encoder.layer.*.attention.", "encoder.layer.0.attention.self", False),
        ("**.LayerNorm.", "a.LayerNorm", True),
        ("**.LayerNorm.", "a.LayerNorm.b", False),
        (".", "", True),
        (".", "a", False),
        ("**", "", True),
        ("*", "", False),
        ("a+b", "a+b.c", True),
        ("a.b", "aXb", False),
        ("Encoder", "encoder", False),
        (":Log", ":Log", True),
        (":Log", ":Exp", False),
        (":Log", "a.:Log", False),
        ("a.:Log", "a.:Log", True),
        ("a.:Log", "a.b.:Log", False),
        ("a.:Log", "a", False),
        ("**.:Log", "a.b.:Log", True),
        (".", ":Log", True),
        ("a", "a.:Log", True),
        ("a.", "a.:Log", True),
        ("a.*", "a.:Log", False),
        ("*", ":Log", False),
    ],
)
def test_a_pattern_names_a_module_and_everything_below_it(pattern, path, expected):
    assert matches(pattern, path) is expected


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a..", "..", "a**", "**b.c"])
def test_a_malformed_pattern_is_refused(pattern):
    with pytest.raises(PatternError):
        matches(pattern, "a")


segments = st.text(alphabet="ab1", min_size=1, max_size=2)
paths = st.lists(segments, max_size=5).map(tuple)
patterns = st.lists(
    st.one_of(segments, st.sampled_from(["*", "**", "a*", "*1"])), min_size=1, max_size=4
).map(tuple)


def _segment_matches(pattern: str, segment: str) -> bool:
    if not pattern:
        return not segment
    if pattern[0] == "*":
        return any(
            _segment_matches(pattern[1:], segment[start:]) for start in range(len(segment) + 1)
        )
    return bool(segment) and segment[0] == pattern[0] and _segment_matches(pattern[1:], segment[1:])


def _names_prefix(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Say whether the pattern matches some prefix of the path; written by the definition, without
    expressions.
    """
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_names_prefix(pattern[1:], path[start:]) for start in range(len(path) + 1))
    return (
        bool(path)
        and _segment_matches(pattern[0], path[0])
        and _names_prefix(pattern[1:], path[1:])
    )


@given(patterns, paths)
def test_matching_follows_its_definition(pattern, path):
    assert matches(".".join(pattern), ".".join(path)) is _names_prefix(pattern, path)


@given(patterns, paths, segments)
def test_what_is_below_a_match_matches(pattern, path, below):
    if matches(".".join(pattern), ".".join(path)):
        assert matches(".".join(pattern), ".".join((*path, below)))


@given(paths.filter(bool))
def test_every_path_matches_itself_and_its_parents(path):
    assert all(matches(".".join(path[:end]), ".".join(path)) for end in range(1, len(path) + 1))


def test_the_nearest_path_keeps_the_form_of_the_pattern():
    known = ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self", "pooler"]
    assert nearest_path("encoder.layers.*.attention", known) == "encoder.layer.*.attention"
    assert nearest_path("encoder.layer.0.atention", known) == "encoder.layer.0.attention"
    assert nearest_path("zzz", known) is None
