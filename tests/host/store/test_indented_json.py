"""The text of a value as JSON is that of the standard library, to the byte."""

import json

from hypothesis import given
from hypothesis import strategies as st

from convkit.host.store.digests import indented_json

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_indented_json_is_that_of_the_standard_library(value: object) -> None:
    assert indented_json(value) == json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
