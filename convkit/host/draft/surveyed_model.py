"""What a survey of a model puts into a draft."""

import math
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from convkit.host.draft.cached_decoder_draft import STEPS
from convkit.host.draft.transformers_families import (
    DraftInput,
    DraftOutput,
    DraftSample,
    DraftSignature,
    Drawn,
)
from convkit.host.recipe.checks.names_axes_and_sizes import SOME
from convkit.host.recipe.checks.padding_samples import ADDITIVE, CAUSAL_VALUES, PADDING_VALUES
from convkit.host.recipe.reading.yaml_scalars import yaml_scalar
from convkit.protocol.contract import Contract, DataAxis, Dimension, TensorSpec, is_whole
from convkit.protocol.errors import UsageError
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import MOST_EXAMPLE_BYTES, Rounding, Sample, SurveyResult
from convkit.protocol.metrics.metric_registry import DEFAULTS

# Of an output's largest magnitude, as the default limit is of values around 1.
_ERROR_SHARE = 1e-4
_COSINE = 0.99999
# How many times a rounding of the inputs adds up in a graph's own roundings: up to 15 times was
# measured in a spectrogram's logarithm, between two orders of the same sums.
_ROUNDINGS = 32
# float32 holds whole numbers to 6e-8 of their own.
_LEAST_SHARE = 1e-6
# The same of a file that rounds activations to 8 bits: sums in another order move some by a step.
_QUANTIZED = (2e-2, 0.999)
# How many times what rounding was seen to do to such a file may be exceeded on other inputs.
_QUANTIZED_ROUNDINGS = 3
# What is stored in a low type may be a few of its units in the last place away, relative to the
# largest value: correct sums in another order round to either neighbor.
_STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_STEPS = 2
# The largest part of an output's values that a sum of roundings may excuse.
_MOST_SHARE = 0.1
_FAINT_SHARE = 0.1  # of the largest value: a limit that other cases can still exceed
_NEAR_ZERO = 1e-6
# Times the share of labels that rounding alone changes, and the least that must agree; the largest
# error of what is in the order of such choices.
_FLIPS, _LEAST_AGREEMENT, _MOST_MOVED = 4, 0.5, 0.5
_WIDTH = 98  # of a comment, without its `# `


def signature_of_survey(survey: SurveyResult, example: Path | None = None) -> DraftSignature:
    """Return what a survey found as a draft. Axes become identifiers: other tools allow
    `batch-size`. `example` is the file beside the recipe that has an example's values. Raises
    UsageError without one if the model runs with no other values.
    """
    contract = survey.contract
    names = {
        axis.name: re.sub(r"^(?=[0-9])|[^A-Za-z0-9_]", "_", axis.name) for axis in contract.axes
    }
    inputs = tuple(
        DraftInput(
            spec.name,
            spec.dtype,
            _named(spec.shape, names),
            _sample(survey.samples.get(spec.name), spec, example),
            spec.origin,
        )
        for spec in contract.inputs
    )
    called = _output_names(contract)
    outputs = tuple(
        DraftOutput(
            called[spec.name],
            _named(spec.shape, names),
            spec.dtype,
            spec.origin or (spec.name if called[spec.name] != spec.name else None),
            spec.mask,
        )
        for spec in contract.outputs
    )
    axes = {names[axis.name]: (axis.min, axis.typical, axis.max) for axis in contract.axes}
    data_axes = {axis.name: _data_axis(axis, called) for axis in contract.data_axes}
    return DraftSignature(
        survey.task or "",
        inputs,
        outputs,
        axes,
        STEPS if survey.loops else (),
        data_axes,
        survey.libraries,
        {called[name]: labels for name, labels in survey.labels.items() if name in called},
        survey.skip,
        survey.exporter,
        {names[axis]: note for axis, note in survey.axis_notes.items() if axis in names},
    )


def _output_names(contract: Contract) -> dict[str, str]:
    """Return what a recipe calls each output: a model may return an input's name, as in
    `return {"features": ...}`, but a contract has each name once.
    """
    taken = {spec.name for spec in (*contract.inputs, *contract.outputs)}
    inputs = {spec.name for spec in contract.inputs}
    called: dict[str, str] = {}
    for spec in contract.outputs:
        name = spec.name
        if name in inputs:
            while name in taken:
                name += "_out"
            taken.add(name)
        called[spec.name] = name
    return called


def _data_axis(axis: DataAxis, called: Mapping[str, str]) -> dict[str, Json]:
    named = {"boxes": axis.boxes, "scores": axis.scores}
    match: dict[str, Json] = {
        key: called.get(output, output) for key, output in named.items() if output is not None
    }
    return {"from": "data", "max": axis.max} | ({"match": match} if match else {})


_DRAFT_AGAIN = ", so draft again with the inputs of a real call: --example FILE.py:FUNCTION"


def comments_of(survey: SurveyResult) -> tuple[str, ...] | None:
    """Return a survey's remarks for the reader of a draft, as comments; None if there are none."""
    guesses = guesses_of(survey)
    lines = [
        line
        for note in (*([f"{guesses}{_DRAFT_AGAIN}"] if guesses is not None else []), *survey.notes)
        for line in textwrap.wrap(f"{note[0].upper()}{note[1:]}.", _WIDTH)
    ]
    return tuple(f"# {line}" for line in lines) or None


def guesses_of(survey: SurveyResult) -> str | None:
    """Return which sizes and values of a draft are guesses, as a sentence; None if none are."""
    if not survey.guessed:
        return None
    typical = survey.contract.typical_sizes()
    inputs = [
        f"{spec.name} {[*spec.concrete_shape(typical)]} ({_values(survey.samples.get(spec.name))})"
        for spec in survey.contract.inputs
    ]
    return (
        f"The sizes and values of {', '.join(inputs)} are guesses. Some faults exist at one size or"
        " for some values only"
    )


def _values(sample: Sample | None) -> str:
    if sample is None:
        return "normal numbers"
    if sample.kind == "columns":
        return "columns with ranges of their own"
    kind = sample.kind.replace("_", " ")
    numbers = " to ".join(f"{number:g}" for number in sample.numbers)
    return f"{kind} {numbers}".strip() if sample.kind != "normal" else "normal numbers"


def example_lines(survey: SurveyResult, example: Path | None) -> tuple[str, ...]:
    """Return the lines under `verify` on the values of an example: the file that has them, or why
    none does; none without an example.
    """
    if not survey.example_bytes:
        return ()
    if example is not None:
        return (
            f"  example: {yaml_scalar(example.name)} # your example's values, a case of their own",
        )
    if survey.example_bytes > MOST_EXAMPLE_BYTES:
        size, most = survey.example_bytes / 2**20, MOST_EXAMPLE_BYTES >> 20
        why = f"they are {size:.0f} MiB, more than {most} MiB"
    else:
        why = "`convkit init --output` writes them beside the recipe"
    return (
        f"  # The example's values are not kept: {why}.",
        "  # example: FILE.npz # as numpy.savez writes it, with one array for each input",
    )


def tolerances_of(survey: SurveyResult) -> dict[str, dict[str, Json]]:
    """Return tolerances by output, for outputs that the default does not suit.

    Errors of float32 grow with the values, so the limit is a share of the largest; a model that
    multiplies the rounding of its inputs has a larger one. Where a file rounds activations to whole
    numbers, they are steps. A cosine over a single number, or noise around zero, says nothing; nor
    does one of a case whose largest value is an error that the limit allows, if others are above.
    Labels may differ where rounding alone decides between two, and so may what is in their order;
    what is counted may be off by one, and by a share of itself.
    """
    found: dict[str, dict[str, Json]] = {}
    called = _output_names(survey.contract)
    for spec in survey.contract.outputs:
        if (flips := survey.flips.get(spec.name, 0.0)) > 0:
            if not is_whole(spec.dtype):  # a row here and there is another one
                found[called[spec.name]] = {"nrmse": _one_digit(min(_FLIPS * flips, _MOST_MOVED))}
                continue
            agreement = math.floor(100 * (1 - _FLIPS * flips)) / 100
            found[called[spec.name]] = {"agreement": max(_LEAST_AGREEMENT, agreement)}
            continue
        if (share := survey.counted.get(spec.name)) is not None:
            allowed = max(_ROUNDINGS * share, _LEAST_SHARE)
            found[called[spec.name]] = {"atol": 1.0, "rtol": _one_digit(allowed)}
            continue
        largest = survey.magnitudes.get(spec.name)
        if largest is None:
            continue
        share, cosine = _QUANTIZED if survey.quantized else (_ERROR_SHARE, _COSINE)
        # A file may compute in half precision and return float32.
        step = max(_STEP.get(each, 0.0) for each in (spec.dtype, *survey.computes_in))
        usual = max(share, _STEPS * step) * max(largest, 1.0)
        rounding = _rounding_limit(survey, spec.name, largest)
        limits: dict[str, Json] = {"max_abs": _one_digit(max(usual, rounding))}
        if spec.dtype == "float32" and not (step or survey.quantized):
            limits["ulps"] = int(DEFAULTS["ulps"])  # beyond what was measured, values may be larger
        single = math.prod(size if isinstance(size, int) else 2 for size in spec.shape) == 1
        faint = survey.faintest.get(spec.name, largest) < usual <= _FAINT_SHARE * largest
        telling = not single and not faint and largest >= _NEAR_ZERO
        if telling:
            limits["cosine"] = cosine
        if survey.quantized:
            far = rounding > _MOST_SHARE * largest
            limits = _quantized_limits(limits, survey.rounding.get(spec.name), far=far)
        if largest > 1.0 or step or rounding > usual or not telling or survey.quantized:
            found[called[spec.name]] = limits
    return found


def _rounding_limit(survey: SurveyResult, output: str, largest: float) -> float:
    """Return by how much roundings may change an output. Where activations are rounded to whole
    numbers, a rounding of the inputs and weights already shows whole steps, which hardly add up.
    """
    once = survey.rounding[output].largest if output in survey.rounding else 0.0
    times = _QUANTIZED_ROUNDINGS if survey.quantized else _ROUNDINGS
    return max(once, min(times * once, _MOST_SHARE * largest))


def _quantized_limits(
    limits: dict[str, Json], found: Rounding | None, *, far: bool
) -> dict[str, Json]:
    """Return the limits of a file that rounds activations, with a cosine that roundings keep; none
    if they alone make another output. If they move some elements `far`, the whole is judged: with
    lengths alike, the relative error of a cosine c is the root of 2 - 2 c.
    """
    if found is None or "cosine" not in limits:
        return limits
    if found.decides:
        return {"max_abs": limits["max_abs"]}
    lost = _QUANTIZED_ROUNDINGS * (1 - found.cosine)
    cosine = min(_QUANTIZED[1], math.floor((1 - lost) * 1000) / 1000)
    if far:
        return {"nrmse": _one_digit(math.sqrt(2 - 2 * cosine)), "cosine": cosine}
    return limits | {"cosine": cosine}


def _one_digit(number: float) -> float:
    """Return a number rounded up to one digit."""
    power = 10.0 ** math.floor(math.log10(number))
    return float(f"{math.ceil(number / power - 1e-9) * power:.0e}")


def _named(shape: tuple[Dimension, ...], names: Mapping[str, str]) -> tuple[Dimension, ...]:
    return tuple(names.get(size, size) if isinstance(size, str) else size for size in shape)


def _sample(sample: Sample | None, spec: TensorSpec, example: Path | None) -> DraftSample | None:
    if sample is None:
        return None
    match sample.kind:
        case "normal" if tuple(sample.numbers) == (0.0, 1.0) and spec.dtype.startswith(
            ("float", "bfloat")
        ):
            return None  # what a float input gets anyway
        case "padding_mask" | "causal_mask":
            names = PADDING_VALUES if sample.kind == "padding_mask" else CAUSAL_VALUES
            return next(
                name
                for name, value in names.items()
                if value == spec.padding and (name in ADDITIVE) == bool(sample.numbers)
            )
        case "positions" | "token_ids" | "encoded_image":
            return sample.kind
        case "constant":
            return Drawn("constant", _plain(sample.numbers[0]))
        case "columns":
            ends = [_plain(number) for number in sample.numbers]
            return Drawn("columns", [[*pair] for pair in zip(ends[::2], ends[1::2], strict=True)])
        case "strings":
            return Drawn("strings", [*sample.strings])
        case "lengths" | "offsets":
            return Drawn(sample.kind, sample.along, filled=bool(sample.numbers))
        case "file" if example is not None:
            return Drawn("file", example.name)
        case "file":
            raise UsageError(
                f"the model runs with the example's values of {spec.name!r}, but not with numbers"
                " drawn from the same range: draft with `convkit init -o RECIPE.yaml`, which keeps"
                " the values beside the recipe"
            )
        case kind:
            held = tuple(
                (each.value, SOME if each.count is None else each.count) for each in sample.held
            )
            return Drawn(kind, [_plain(number) for number in sample.numbers], held)


def _plain(number: float) -> Json:
    return int(number) if number == int(number) else number
