from typing import Any

import pytest
from pydantic import ValidationError
from small_recipe import recipe

from convkit.host.plan.step_requests import steps_of
from convkit.host.plan.tensor_requests import contract_of, samples_of
from convkit.host.recipe.keys.all_targets import faults_between_parts
from convkit.host.recipe.keys.call_steps import lengths_of, resolve_feeds
from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.messages import Sample

AXES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "sequence": {"min": 1, "typical": 8, "max": 32},
    "past": {"min": 0, "typical": 8, "max": 20},
}
NAMES = ("0.key", "0.value", "10.key", "10.value")


def cache(name: str, length: str) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": ["batch", 2, length, 4]}


INPUTS: list[dict[str, Any]] = [
    {"name": "ids", "dtype": "int64", "shape": ["batch", "sequence"], "sample": "token_ids"},
    {
        "name": "mask",
        "dtype": "int64",
        "shape": ["batch", "past + sequence"],
        "sample": "padding_mask",
    },
    {"name": "positions", "dtype": "int64", "shape": ["batch", "sequence"], "sample": "positions"},
    *(cache(f"past.{name}", "past") for name in NAMES),
]
OUTPUTS: list[dict[str, Any]] = [
    {"name": "logits", "dtype": "float32", "shape": ["batch", "sequence", 100]},
    *(cache(f"present.{name}", "past + sequence") for name in NAMES),
]
STEPS: dict[str, Any] = {"feeds": {"present.*": "past.*"}, "axis": "sequence"}


def decoder(steps: dict[str, Any], **changes: Any) -> Recipe:
    parts = {"axes": AXES, "inputs": INPUTS, "outputs": OUTPUTS, "steps": steps}
    return recipe(**parts | changes)


def test_a_decoder_s_steps_follow_from_its_contract() -> None:
    steps = steps_of(decoder(STEPS | {"greedy": "logits"}))
    assert steps is not None
    assert [(feed.output, feed.input) for feed in steps.feeds] == [
        (f"present.{name}", f"past.{name}") for name in NAMES
    ]
    assert [(feed.layer, feed.part) for feed in steps.feeds[1:3]] == [(0, ".value"), (10, ".key")]
    assert (steps.axis, steps.grows, steps.stride) == ("sequence", ("past",), 1)
    assert (steps.prefill, steps.count) == (16, 5)  # past reaches its max of 20 before the last
    assert (steps.mask, steps.positions) == ("mask", ("positions",))
    assert (steps.tokens, steps.scores) == ("ids", "logits")


def test_a_mask_with_1_at_padding_covers_the_steps_too() -> None:
    inputs = [
        each | ({"sample": "key_padding_mask"} if each["name"] == "mask" else {}) for each in INPUTS
    ]
    given = decoder(STEPS, inputs=inputs)
    steps = steps_of(given)
    assert steps is not None
    assert steps.mask == "mask"
    specs = {spec.name: spec.padding for spec in contract_of(given).inputs}
    assert specs == {spec["name"]: int(spec["name"] == "mask") for spec in inputs}
    assert samples_of(given, str)["mask"] == Sample("padding_mask")


def test_a_recipe_without_steps_is_called_once() -> None:
    assert steps_of(recipe()) is None


def test_states_by_explicit_pairs_without_an_axis() -> None:
    state = {"dtype": "float32", "shape": ["batch", 4]}
    steps = steps_of(
        recipe(
            axes={"batch": AXES["batch"]},
            inputs=[{"name": "x", "dtype": "float32", "shape": ["batch", 3]}]
            + [{"name": name, **state} for name in ("h", "c")],
            outputs=[{"name": name, **state} for name in ("y", "h_out", "c_out")],
            steps={"feeds": {"h_out": "h", "c_out": "c"}, "count": 3},
        )
    )
    assert steps is not None
    assert [(feed.layer, feed.part) for feed in steps.feeds] == [(None, "h_out"), (None, "c_out")]
    assert (steps.axis, steps.grows, steps.count, steps.mask) == (None, (), 3, None)


@pytest.mark.parametrize(
    ("steps", "path", "message"),
    [
        ({"feeds": {"presnt.*": "past.*"}}, "feeds", "no output is called that"),
        ({"feeds": {"present.*": "past"}}, "feeds", r"one \* on both sides"),
        ({"feeds": {"present.*": "last.*"}}, "feeds", r"'last.0.key', which is not an input"),
        (
            {"feeds": {"present.*": "past.*", "present.0.key": "past.0.key"}},
            "feeds",
            "in another pair already",
        ),
        ({"feeds": {"logits": "past.0.key"}}, "feeds", "cannot feed 'past.0.key'"),
        ({"axis": "sequences"}, "axis", "not one of the axes; perhaps you meant 'sequence'"),
        ({"axis": "batch"}, "feeds", "must grow by the axis under steps.axis"),
        ({"greedy": "logit"}, "greedy", "is not an output; perhaps you meant 'logits'"),
        ({"greedy": "present.0.key"}, "greedy", r"must have the shape \[rows, sequence, tokens\]"),
        ({"prefill": 33}, "steps", "a first call of 33 positions is outside the axis"),
        ({"prefill": 16, "count": 6}, "steps", "room for 20 positions before the last call"),
    ],
)
def test_what_does_not_fit_is_named(steps: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        decoder(STEPS | steps)
    faults = faults_between_parts(decoder(STEPS).dump() | {"steps": STEPS | steps})
    assert path in faults[0].path


def test_an_axis_whose_size_the_data_decide_cannot_be_cut() -> None:
    axes = AXES | {"found": {"from": "data", "max": 5}}
    faults = faults_between_parts(
        {"axes": axes, "inputs": INPUTS, "outputs": OUTPUTS, "steps": STEPS | {"axis": "found"}}
    )
    (message,) = [fault.message for fault in faults if fault.path == ("steps", "axis")]
    assert "data decide" in message


def test_greedy_generation_advances_by_one_token() -> None:
    axes = AXES | {"sequence": {"min": 2, "typical": 8, "max": 32}}
    with pytest.raises(ValidationError, match=r"axes\.sequence\.min is 2; write 1"):
        decoder(STEPS | {"greedy": "logits"}, axes=axes)
    inputs = [tensor | {"sample": {"integers": [0, 2]}} for tensor in INPUTS[:1]] + INPUTS[1:]
    with pytest.raises(ValidationError, match="needs an input with sample: token_ids"):
        decoder(STEPS | {"greedy": "logits"}, inputs=inputs)


def test_dtypes_must_agree() -> None:
    inputs = [*INPUTS[:3], INPUTS[3] | {"dtype": "float16"}, *INPUTS[4:]]
    with pytest.raises(ValidationError, match=r"'present\.0\.key' and .* have different dtypes"):
        decoder(STEPS, inputs=inputs)


def test_an_input_of_a_cache_s_length_must_be_fed() -> None:
    extra = {"name": "old", "dtype": "float32", "shape": ["past"]}
    with pytest.raises(ValidationError, match="'old' has the size 'past' of a cache, and nothing"):
        decoder(STEPS, inputs=[*INPUTS, extra])


@pytest.mark.parametrize("broken", [None, 3, {"feeds": None}, {"feeds": {"a": 3}}, {"axis": 4}])
def test_malformed_steps_are_left_to_the_types(broken: Any) -> None:
    parts = decoder(STEPS).dump()
    assert faults_between_parts(parts | {"steps": broken}) == []
    assert faults_between_parts(parts | {"steps": STEPS, "axes": None}) is not None


def test_patterns_pair_the_same_text() -> None:
    feeds, wrong = resolve_feeds({"a*b": "x*y"}, ["a1b", "ab", "a2c"], ["x1y"])
    assert [(feed.output, feed.input, feed.layer) for feed in feeds] == [("a1b", "x1y", 1)]
    assert wrong == {}


def test_lengths_fit_the_axes() -> None:
    axis, cache_axis = {"min": 4, "max": 8}, {"min": 0, "max": 16}
    lengths = lengths_of(None, None, axis, [cache_axis])
    assert not isinstance(lengths, str)
    assert (lengths.prefill, lengths.stride, lengths.count) == (8, 4, 3)
    assert isinstance(lengths_of(None, None, axis, [{"min": 0, "max": 2}]), str)


PACKAGE = {"ort": {"runtime": "onnxruntime", "package": "genai"}}
GREEDY = STEPS | {"greedy": "logits"}
CACHES = [f"{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
PACKAGED_INPUTS = [*INPUTS[:3], *(cache(f"past.{name}", "past") for name in CACHES)]
PACKAGED_OUTPUTS = [
    OUTPUTS[0], *(cache(f"present.{name}", "past + sequence") for name in CACHES)
]  # fmt: skip
PACKAGED: dict[str, Any] = {"inputs": PACKAGED_INPUTS, "outputs": PACKAGED_OUTPUTS}


@pytest.mark.parametrize(
    ("past", "targets", "tokens"),
    [(90, {}, 0), (20, {"targets": PACKAGE}, 6), (90, {"targets": PACKAGE}, 64)],
)
def test_a_package_makes_the_original_generate_as_many_tokens_as_the_cache_holds(
    past: int, targets: dict[str, Any], tokens: int
) -> None:
    axes = AXES | {"past": {"min": 0, "typical": 8, "max": past}}
    steps = steps_of(decoder(GREEDY, axes=axes, **PACKAGED, **targets))
    assert steps is not None
    assert steps.generate == tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": STEPS}, "genai generates text: it needs steps: with greedy:"),
        ({"inputs": INPUTS, "outputs": OUTPUTS}, "numbered by layer from 0"),
        (
            {
                "inputs": [
                    *PACKAGED_INPUTS,
                    INPUTS[0] | {"name": "types", "sample": {"integers": [0, 2]}},
                ]
            },
            "'types' is none of them",
        ),
        (
            {
                "inputs": [
                    each | ({"sample": "key_padding_mask"} if each["name"] == "mask" else {})
                    for each in PACKAGED_INPUTS
                ]
            },
            "marks padding by 0; 'mask' marks it by 1",
        ),
    ],
)
def test_a_model_that_genai_cannot_run_is_told(changes: dict[str, Any], message: str) -> None:
    parts = {"axes": AXES, "steps": GREEDY, "targets": PACKAGE, **PACKAGED}
    with pytest.raises(ValidationError) as caught:
        recipe(**parts | changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("device", "cuda", "is verified on the CPU"),
        ("artifact", "optimized", "has the exported graph"),
        ("versions", ["==1.31.*"], "decides which onnxruntime it loads"),
    ],
)
def test_what_a_package_excludes_is_told(key: str, value: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        decoder(GREEDY, **PACKAGED, targets={"ort": PACKAGE["ort"] | {key: value}})
    assert message in str(caught.value)
