import math

import pytest

from convkit.host.record.safe_text import visible
from convkit.host.report.svg_elements import Svg, element


def test_children_are_text_unless_they_are_markup():
    assert element("g", "<a> & b", Svg("<i/>")) == "<g>&lt;a&gt; &amp; b<i/></g>"


def test_attributes_are_escaped_and_named_as_in_svg():
    drawn = element("rect", class_="a\" onload='x'", stroke_width=1.0, x=1.26)
    assert drawn == '<rect class="a&quot; onload=&#x27;x&#x27;" stroke-width="1" x="1.3"/>'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_is_drawn_at_a_position_that_is_no_number(value):
    with pytest.raises(ValueError, match="not a position"):
        element("circle", cx=value)


def test_an_element_reaches_a_template_as_it_is():
    from markupsafe import escape

    assert escape(element("g", "<")) == "<g>&lt;</g>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202egpj.exe", "a\\u202egpj.exe"),
        ("bell\x07 null\x00 c1\x9b", "bell\\x07 null\\x00 c1\\x9b"),
        ("lone\udcff", "lone\\udcff"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("line\r\nnext\ttab\rback", "line\nnext\ttab\\x0dback"),
        ("עברית 日本語 é 👍", "עברית 日本語 é 👍"),
    ],
)
def test_characters_that_hide_or_reorder_text_are_shown(text, shown):
    assert visible(text) == shown
