"""A survey's messages: what it found, and what only the user can know."""

import re
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import DataAxis
from convkit.worker.survey.inputs.axis_ranges import Range

# What onnxruntime says before the reason: its release, an error code, the file's path, and a
# node's whole signature.
_PREAMBLE = re.compile(
    r"^onnxruntime \S+: \[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?"
    r"(Fatal error: |This is an invalid model\. (In Node, .*, Error )?)?",
    re.DOTALL,
)


# How onnxruntime says which node fails, and why: after a place in its own sources.
_FAILED_NODE = re.compile(
    r"running (?P<operator>\w+) node\. Name:'(?P<name>[^']*)' Status Message: (?P<why>.*)",
    re.DOTALL,
)
_OWN_PLACE = re.compile(r"^\S+\.(h|cc|cpp):\d+ (.*? was false\. |\w+ (?=[A-Z]))?", re.DOTALL)


def failed_node(error: str) -> tuple[str, str, str] | None:
    """Return the node that fails in a run, in words, its name, and the reason; None if the error
    names none.
    """
    match = _FAILED_NODE.search(error)
    if match is None:
        return None
    words = f"{match['operator']} {match['name']!r}" if match["name"] else match["operator"]
    return words, match["name"], _one_line(_OWN_PLACE.sub("", match["why"]))


def refused(error: str) -> str:
    why = _one_line(_PREAMBLE.sub("", error))
    return f"onnxruntime cannot load the file, so all sizes are guesses: {why}"


def no_start(error: str) -> str:
    return (
        "the file did not run with any of the sizes and values that were tried, so all sizes are"
        f" guesses; the first error: {_one_line(error)}"
    )


def sizes_from_source(sizes: Mapping[str, int], sources: Sequence[str]) -> str:
    """Return which sizes of axes were read in which lines of the module's own files."""
    read = " and ".join(f"{axis} {size}" for axis, size in sizes.items())
    return f"not guessed but stated by the source: {read} ({', '.join(sources)})"


def in_eval_mode(kinds: Sequence[str]) -> str:
    """Return what changes in a model that its source left in training mode; empty for no kinds."""
    if not kinds:
        return ""
    return (
        "the module comes in training mode. It is converted, and compared with the original, in"
        f" eval mode, which changes the result of {', '.join(kinds)}"
    )


def holds_sizes(nodes: Sequence[str]) -> str:
    first, *others = (node or "a node without a name" for node in nodes)
    more = f" and {len(others)} more hold" if others else " holds"
    return (
        f"the file says that its sizes may vary, but {first}{more} those of the example that it was"
        " traced with: only they work. Export the model again with torch.onnx.export(dynamo=True),"
        " or take such sizes from the inputs' shapes"
    )


def always_nan(reason: str) -> str:
    return (
        f"{_one_line(reason)} with all sizes and values that were tried: give the inputs samples"
        " that mean something to the model"
    )


def map_output(output: str, classes: str) -> str:
    return (
        f"the file returns {output!r} as one map per row, from class to probability; here, and in"
        f" what convkit builds, it is a tensor with one column per class: {classes}"
    )


def fixed_axis(axis: str, size: int, node: str | None, why: str) -> str:
    """`node` is what refuses another size, and `why`."""
    where = f"{node} refuses others ({why})" if node else "it ran with no other that was tried"
    return f"the file declares {axis} open, but the axis {axis} is fixed at {size}: {where}"


def held_by(size: int, what: str, function: str, *, refused: str = "") -> str:
    """`what` holds the batch's size, in a call of `function`; `refused` is a line at which others
    fail.
    """
    start = f"the batch is fixed at {size}: "
    if function:
        return f"{start}{what} passes that number to {function}, and others work in its place"
    if what:
        return f"{start}{what} has that size"
    return start + (
        f"other sizes fail at {refused}" if refused else "no other that was tried works"
    )


def other_sizes(axis: str, low: int, high: int) -> str:
    return (
        f"{axis} may have other sizes than {low} to {high}, but then the size of an output follows"
        " no rule that was found"
    )


def steps_of_axis(axis: str, found: Range) -> str:
    rest = f" plus {found.rest}" if found.rest else ""
    return f"{axis} must be a multiple of {found.step}{rest}: other sizes were tried and failed"


def out_of_time(runs: int, axes: Sequence[str]) -> str:
    """`axes` are those with sizes that were not tried."""
    which = f" all sizes of {', '.join(axes)} were tried" if axes else " everything was tried"
    return (
        f"the time ran out after {runs} runs, before{which}: the model may accept more than this"
        " recipe says"
    )


def marker(name: str, number: int) -> str:
    return (
        f"the model returns NaN if {name!r} is {number} everywhere, so that number seems to mark"
        " what does not count, and samples leave it out"
    )


def divisor(name: str, number: int) -> str:
    return (
        f"the model returns infinity if {name!r} is {number} everywhere, and none if it is 1, so"
        " samples begin at 1"
    )


def blank_output(output: str, mask: str) -> str:
    return (
        f"{output!r} is NaN where {mask!r} marks padding, and nowhere else, so its values there are"
        " not compared"
    )


def written_at_padding(output: str, mask: str) -> str:
    return (
        f"what {output!r} is where {mask!r} marks padding depends on how torch computes: its fast"
        " path for inference writes zeros there, what is exported does not. These values are not"
        " compared"
    )


def undefined_end(
    name: str, ends: tuple[float, float], kept: tuple[float, float], *, refused: bool
) -> str:
    does = "refuses to run" if refused else "returns NaN"
    at = " and ".join(f"{end:g}" for end, other in zip(ends, kept, strict=True) if end != other)
    return (
        f"the model {does} if {name!r} is {at} everywhere, so samples are from {kept[0]:g} to"
        f" {kept[1]:g}"
    )


def chaotic(output: str) -> str:
    return (
        f"rounding alone makes another {output!r} of the drawn inputs, so no comparison of it"
        " proves much: give the inputs samples that mean something to the model (sample: {file:"
        " ...})"
    )


def batch_axis(*, independent: bool, place: int, alone: bool) -> str:
    """`place` is where the axis is in the inputs, `alone`: the model also runs without it."""
    if not independent:
        return (
            "not proven to be a batch: other values in one row change what the model returns for"
            " the others"
        )
    first = "" if place == 0 else "; the axis before it is time"
    other = (
        ". The model also runs on one sequence without this axis: to convert that, name a function"
        " that returns such inputs with --example"
        if alone
        else ""
    )
    return (
        "the batch: other values in its last row change nothing in the first row of the outputs"
        f"{first}{other}"
    )


def near_zero(output: str) -> str:
    return (
        f"output {output!r} is almost zero for drawn inputs, which proves little: give real ones"
        " with sample: {file: ...}"
    )


def data_axis(axis: DataAxis) -> str:
    return (
        f"the size of {axis.name!r} depends on the inputs' values: set its max to the most rows"
        " that the model can return, and match.threshold to the score that they must exceed, if any"
    )


def data_dependent(output: str) -> str:
    return (
        f"the shape of {output!r} depends on the inputs' values in more than one axis, which no"
        " recipe can state: the sizes below are those of one run"
    )


def which_values(name: str) -> str:
    return f"which values {name!r} may have"


def decides(name: str, value: float, outputs: Sequence[str]) -> str:
    shapes = "the shape" if len(outputs) == 1 else "the shapes"
    return (
        f"the value of {name!r} decides {shapes} of {', '.join(map(repr, outputs))}:"
        f" {value:g} was chosen; a recipe covers one such value"
    )


def only_some_values(name: str, value: float) -> str:
    return (
        f"the file fails with some values of {name!r}: {value:g} was chosen; only you can know"
        " which others it may have"
    )


def ranges_of_columns(name: str, high: int) -> str:
    return (
        f"the columns of {name!r} have ranges of their own: numbers below {high}, which all of them"
        " take, are drawn; the example's values are a case of their own"
    )


def values_matter(reason: str) -> str:
    return (
        "--example: the model runs with it, but not with numbers drawn from the same range:"
        f" {_one_line(reason)}. Write a recipe by hand (docs/recipe.md), save the example's values"
        " with numpy.savez, and name the file: sample: {file: values.npz}"
    )


def only_with_example(names: Sequence[str], reason: str) -> str:
    """`reason` is why the model refuses other values of these inputs."""
    return (
        f"all cases have the example's own values of {', '.join(map(repr, names))}, cut or repeated"
        " to other sizes: with numbers drawn from the same range, the model fails"
        f" ({_one_line(reason)}). Values that the example lacks are not verified"
    )


def example_wanted(parameters: Sequence[str], reason: str) -> str:
    return (
        f"found no inputs ({', '.join(parameters)}) that the model runs with: {_one_line(reason)}."
        " Only you can know what its inputs look like: write a function that"
        " returns one call's inputs (a tensor, a tuple, or a dict by name), and name it with"
        " --example FILE.py:FUNCTION"
    )


def exported_fixed(axis: str, size: int, reason: str) -> str:
    return (
        f"{axis} is fixed at {size}: the model runs at other sizes, but torch.export does not keep"
        f" them open ({_one_line(reason)})"
    )


def contradicted_axis(axis: str, size: int, reason: str) -> str:
    return (
        f"{axis} is fixed at {size}: at other sizes, an output has a shape that no rule that was"
        f" found explains ({_one_line(reason)})"
    )


def export_untried(seconds: float) -> str:
    return (
        f"one run of the model takes {seconds:.2g} s, so there was no time to try an export:"
        " `convkit run` will say which axes it cannot keep open"
    )


def export_unfinished(reason: str, axis: str | None) -> str:
    given_up = f", so {axis} is fixed, untried" if axis is not None else ""
    return f"the time for exports ran out; the last one failed ({_one_line(reason)}){given_up}"


def torchscript_instead(reason: str) -> str:
    return (
        f"torch's exporter cannot keep this contract ({_one_line(reason)}). TorchScript's can: its"
        " graph matches the original"
    )


def unrolls_steps(steps: int) -> str:
    return f"it would write out {steps} steps of recurrent layers one by one, and was not tried"


def fixed_for_all(axis: str, size: int) -> str:
    return f"{axis} is fixed at {size}: no exporter keeps it open"


def not_exportable(reason: str) -> str:
    return f"torch.export could not trace the model: {_one_line(reason)}"


def cache_left_out(reason: str) -> str:
    return f"the draft leaves out the decoder's cache: {_one_line(reason)}"


def no_small_decoder(architecture: str) -> str:
    return (
        f"found no small configuration of {architecture} that runs. Draft from a folder instead,"
        " with the config.json and the weights of the model that you convert"
    )


def masked_row_nan() -> str:
    return (
        "the model returns NaN for a fully masked row, so verify.skip leaves out that case;"
        " never give it such a row"
    )


def undefined_ends(*, refused: bool) -> str:
    does = "refuses inputs" if refused else "returns NaN for inputs"
    return (
        f"the model {does} whose values are all at the ends of their ranges, so verify.skip leaves"
        " out case 'extreme'"
    )


def written_beyond(outputs: Sequence[str], cases: Sequence[str]) -> str:
    return (
        f"what {', '.join(map(repr, outputs))} is beyond the rows' lengths depends on how torch"
        " computes: its fast path for inference writes zeros there, what is exported does not."
        f" verify.skip leaves out the cases with such rows ({', '.join(cases)}). To verify them,"
        " return zeros beyond the lengths yourself, or give the model a mask in their place"
    )


def masked_row_differs() -> str:
    return "the same holds for all of a fully masked row, so verify.skip leaves out that case"


def _one_line(text: str, most: int = 200) -> str:
    """Return text for the middle or end of a sentence, which gets its own period."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= most else f"{line[:most].rstrip(' .')} [...]"
