import dataclasses
import json
import math
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convkit.host.record.run_record import RunRecord
from convkit.protocol.contract import TensorSpec
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.protocol.messages import Answer, CaseMetrics, Envelope, Sample, TensorMetrics
from convkit.protocol.runtimes.runtime_registry import runtimes

# Values of fields that hold any JSON. Non-finite floats become text there, for good: a type is what
# brings them back.
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
SCALARS = {
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(),
    str: st.text(max_size=5),
    type(None): st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return values of a type as the protocol's types are written."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return JSON
    if kind in SCALARS:
        return SCALARS[kind]
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(part) for part in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(st.text(max_size=3), values_of(arguments[1]), max_size=2)
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=2)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    generic = origin or kind  # BuildRequest[EngineOptions]
    assert dataclasses.is_dataclass(generic), kind
    filled = dict(zip(getattr(generic, "__parameters__", ()), arguments, strict=True))
    hints = {name: filled.get(hint, hint) for name, hint in typing.get_type_hints(generic).items()}
    return st.builds(
        generic,
        **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(generic)},
    )


MESSAGES = [
    *(job.request for job in JOBS.values() if not job.has_options),
    *(
        job.request_type(row)
        for job in JOBS.values()
        for row in runtimes().values()
        if job.has_options
    ),
    *(job.result for job in JOBS.values()),
    Envelope,
    Answer,
    RunRecord,
]


@pytest.mark.parametrize("kind", MESSAGES, ids=str)
@pytest.mark.sampled(2)
def test_every_message_survives_json(kind):
    @settings(max_examples=5)
    @given(values_of(kind))
    def survives(message):
        written = json.dumps(encode(message), allow_nan=False)
        read = decode(kind, json.loads(written))
        assert type(read) is (get_origin(kind) or kind)
        # repr tells tuples from lists, ints from floats and -0.0 from 0.0, and holds NaN equal to
        # itself.
        assert repr(read) == repr(message)

    survives()


@given(JSON, st.sampled_from(MESSAGES))
def test_any_json_decodes_or_is_refused_with_its_place(value, kind):
    with pytest.raises(CodecError, match=r"^\$"):
        decode(kind, value)


def metrics(**changes: Any) -> dict[str, Any]:
    names = (
        "max_abs",
        "max_rel",
        "mean_abs",
        "rms",
        "cosine",
        "worst_reference",
        "worst_candidate",
    )
    counts = (
        "elements",
        "nan_reference",
        "nan_candidate",
        "inf_reference",
        "inf_candidate",
        "inf_mismatched",
    )
    return {
        "output": "y",
        "worst_index": [0],
        **dict.fromkeys(names, 0.5),
        **dict.fromkeys(counts, 0),
        **changes,
    }


def test_numbers_that_are_not_finite_travel_as_text():
    read = decode(TensorMetrics, metrics(max_abs="inf", rms="nan", cosine="-inf"))
    assert read.max_abs == math.inf
    assert math.isnan(read.rms)
    assert read.cosine == -math.inf
    assert encode(read)["max_abs"] == "inf"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"elements": True}, r"\$\.elements: expected int, found True"),
        ({"elements": 1.0}, r"\$\.elements: expected int"),
        ({"rms": "0.5"}, r"\$\.rms: expected float, found '0.5'"),
        ({"rms": False}, r"\$\.rms: expected float"),
        ({"rms": 10**400}, r"\$\.rms: the number does not fit"),
        ({"worst_index": "0"}, r"\$\.worst_index: expected a list, found str"),
        ({"worst_index": [0, "1"]}, r"\$\.worst_index\[1\]: expected int"),
        ({"frontier": [[1, 2, 3]]}, r"\$\.frontier\[0\]: expected 2 items, found 3"),
        ({"mismatch": 5}, r"\$\.mismatch: fits no alternative"),
        ({"surprise": 1}, r"\$: unknown keys surprise"),
        ({"output": None}, r"\$\.output: expected str, found None"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(change, place):
    with pytest.raises(CodecError, match=place):
        decode(TensorMetrics, metrics(**change))


def test_a_place_leads_through_lists_and_mappings():
    case = {"case": "typical", "seconds": 1, "outputs": [metrics(), metrics(rms=None)]}
    with pytest.raises(CodecError, match=r"^\$\.outputs\[1\]\.rms: "):
        decode(CaseMetrics, case)


def test_a_missing_field_is_named_and_a_default_filled_in():
    with pytest.raises(CodecError, match=r"^\$: kind is missing$"):
        decode(Sample, {})
    assert decode(Sample, {"kind": "positions"}) == Sample("positions")
    assert decode(CaseMetrics, {"case": "c", "seconds": 1, "outputs": []}).error is None


@dataclasses.dataclass(frozen=True)
class Versioned:
    version: Literal[1, "one"]


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], {}])
def test_a_literal_is_held_to_its_type(value):
    with pytest.raises(CodecError, match="is none of 1, 'one'"):
        decode(Versioned, {"version": value})
    assert decode(Versioned, {"version": "one"}).version == "one"


def test_a_later_field_is_only_written_with_another_value_than_its_default():
    spec = TensorSpec("mask", "bool", ("batch", 4))
    assert "padding" not in encode(spec)
    marked = dataclasses.replace(spec, padding=1)
    assert encode(marked) == encode(spec) | {"padding": 1}
    assert [decode(TensorSpec, encode(each)) for each in (spec, marked)] == [spec, marked]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", Versioned])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(CodecError, match="as JSON"):
        encode([value])
