"""What a recipe says about its task: the user's data, a metric, and how much it may drop."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import (
    FaultsError,
    RecipeFault,
    mapping,
    perhaps,
)
from convkit.host.recipe.keys.call_steps import (
    growing_axes,
    mask_name,
    resolve_feeds,
    tensors_by_name,
    tokens_of,
)
from convkit.host.recipe.keys.field_types import (
    METRIC_PATTERN,
    ROWS_PATTERN,
    NonNegative,
    RecipeModel,
    TensorName,
    Text,
)

TaskMetric = Literal["accuracy", "f1", "spearman", "perplexity", "wer", "cosine", "map"]

# Lower is better.
_RISING = ("perplexity", "wer")
_NO_LABELS = ("perplexity", "cosine")
# The metrics of what `postprocess` makes of an output: its kind, and how to write it.
_READ = {
    "wer": ("text", "texts", "{text: {symbols: ...}}"),
    "map": ("boxes", "boxes", "{boxes: {scores: ...}}"),
}
_LIMITS = {
    "max_drop": "how much lower than the original's the score may be",
    "max_rise": "how much higher than the original's it may be, such as 0.05",
}


class Evaluate(RecipeModel):
    """A metric on the user's rows, for the original and for every target."""

    data: Annotated[str, Field(pattern=ROWS_PATTERN)] = Field(
        description=(
            "rows as .npz, .jsonl, .csv, .parquet or .arrow, or a folder with a folder of images"
            " for each class (photos/); relative to the recipe's folder"
        ),
        examples=["samples/pairs.jsonl", "samples/photos/"],
    )
    metric: TaskMetric | Annotated[str, Field(pattern=METRIC_PATTERN)] = Field(
        description=(
            "accuracy, f1 (macro), recall@5 (or another number; of two columns of texts: whether"
            " the first finds the second among all by its embedding), spearman, perplexity (of a"
            " language model's scores), wer (of texts that postprocess reads or the model"
            " generates), map (mean average precision of boxes that postprocess reads), cosine (of"
            " embeddings); or file.py:function, which is given the outputs and the labels of all"
            " rows and returns a number, larger is better"
        ),
        examples=["accuracy"],
    )
    max_drop: NonNegative | None = Field(
        None, description="how much lower than the original's the score may be", examples=[0.01]
    )
    max_rise: NonNegative | None = Field(
        None,
        description=(
            "instead of max_drop: with perplexity, by what share it may be higher than the"
            " original's (0.05 is 5 %); with wer, by how much"
        ),
        examples=[0.05],
    )
    inputs: dict[TensorName, Text] = Field(
        default_factory=dict,
        description="the column of each input; inputs left out are sampled",
        examples=[{"pixel_values": "image"}],
    )
    texts: Annotated[tuple[Text, ...], Field(max_length=2)] = Field(
        (),
        description=(
            "the columns of texts, for the model's own tokenizer; of two, spearman compares the"
            " cosine of the embeddings with the labels, and recall@5 searches"
        ),
        examples=[["first", "second"]],
    )
    labels: Text | None = Field(None, description="the column of labels", examples=["label"])
    output: TensorName | None = Field(
        None, description="the output that is scored; default: the first"
    )
    generate: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None,
        description=(
            "with wer or your own metric: score what a language model writes after each row, this"
            " many tokens at most, always the most probable one"
        ),
        examples=[32],
    )
    rows: Annotated[int, Field(strict=True, ge=2)] | None = Field(
        None, description="score the first rows only"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        faults = []
        if bool(self.inputs) == bool(self.texts):
            faults.append(
                RecipeFault((), "write either inputs: or texts:, to say where inputs are from")
            )
        given, other = ("max_rise", "max_drop") if self.rises else ("max_drop", "max_rise")
        if getattr(self, given) is None:
            faults.append(RecipeFault((given,), f"{self.metric} needs {given}: {_LIMITS[given]}"))
        if getattr(self, other) is not None:
            faults.append(RecipeFault((other,), f"does not apply to {self.metric}; write {given}"))
        if self.metric == "perplexity" and self.labels is not None:
            faults.append(RecipeFault(("labels",), "perplexity predicts the tokens; remove it"))
        retrieves = self.retrieves
        if (
            self.labels is None
            and self.metric not in _NO_LABELS
            and self.code is None
            and not retrieves
        ):
            faults.append(
                RecipeFault(("metric",), f"{self.metric} needs labels: a column of the data")
            )
        pairs = self.metric == "spearman" or retrieves or self.code is not None
        if len(self.texts) == 2 and (not pairs or self.generate is not None):
            what = self.metric if self.generate is None else "generate"
            faults.append(RecipeFault(("texts",), f"{what} needs exactly one column of texts"))
        if self.generate is not None and self.metric != "wer" and self.code is None:
            faults.append(
                RecipeFault(("generate",), f"does not apply to {self.metric}; wer reads texts")
            )
        if faults:
            raise FaultsError(faults)
        return self

    @property
    def retrieves(self) -> bool:
        """True if each row's first text is to find its second one among all."""
        return self.metric.startswith("recall@") and len(self.texts) == 2

    @property
    def predicts(self) -> bool:
        """True if scores of the next token are what is judged."""
        return self.metric == "perplexity" or self.generate is not None

    @property
    def rises(self) -> bool:
        """True if a higher score is worse."""
        return self.metric in _RISING

    @property
    def code(self) -> str | None:
        """The file of the user's own metric."""
        return self.metric.rpartition(":")[0] if ".py:" in self.metric else None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that this refers to."""
        return (self.data,) if self.code is None else (self.data, self.code)


def evaluate_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return the tensors of an evaluation that the recipe does not have."""
    evaluate = mapping(recipe.get("evaluate"))
    metric = evaluate.get("metric")
    known = {kind: _names(recipe, kind) for kind in ("inputs", "outputs")}
    for name in mapping(evaluate.get("inputs")):
        if name not in known["inputs"]:
            listed = ", ".join(known["inputs"])
            message = f"is not an input{perhaps(name, known['inputs'])}; inputs: {listed}"
            yield RecipeFault(("evaluate", "inputs", name), message)
    output = evaluate.get("output")
    if isinstance(output, str) and output not in known["outputs"]:
        listed = ", ".join(known["outputs"])
        message = (
            f"{output!r} is not an output{perhaps(output, known['outputs'])}; outputs: {listed}"
        )
        yield RecipeFault(("evaluate", "output"), message)
    yield from perplexity_faults(recipe)
    yield from _postprocess_faults(recipe)
    own = "tolerance" in mapping(recipe.get("verify"))
    for name, given in mapping(recipe.get("targets")).items():
        target = mapping(given)
        for key in ("max_drop", "max_rise"):
            if key in target and not evaluate:
                message = "applies only beside a top-level evaluate; add that"
                yield RecipeFault(("targets", name, key), message)
            elif key in target and (key == "max_rise") != (metric in _RISING):
                other = "max_drop" if key == "max_rise" else "max_rise"
                message = f"does not apply to {metric}; write {other}"
                yield RecipeFault(("targets", name, key), message)
        precision = mapping(target.get("precision"))
        if (
            evaluate
            and precision.get("keep_float32") == "auto"
            and not own
            and "tolerance" not in target
        ):
            yield RecipeFault(
                ("targets", name, "precision", "keep_float32"),
                "auto searches by a tolerance, and a recipe with evaluate: has none by default;"
                " add a tolerance to the target",
            )


def _postprocess_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return why there are no texts or boxes to score."""
    evaluate = mapping(recipe.get("evaluate"))
    kind, what, example = _READ.get(str(evaluate.get("metric")), ("", "", ""))
    outputs = tensors_by_name(recipe, "outputs")
    scored = outputs.get(str(evaluate.get("output") or next(iter(outputs), "")))
    or_generate = ", or generate: 32, for a model that writes tokens" if kind == "text" else ""
    if evaluate.get("generate") is not None:
        return  # what the model writes is read, not a single output
    if kind and scored is not None and not mapping(scored.get("postprocess")).get(kind):
        yield RecipeFault(
            ("evaluate", "metric"),
            f"{evaluate['metric']} compares {what}, and the output {scored['name']} is not read as"
            f" such; add postprocess: {example} to it (docs/postprocessing.md){or_generate}",
        )


def _names(recipe: Mapping[str, object], kind: str) -> list[str]:
    tensors = recipe.get(kind)
    found = tensors if isinstance(tensors, list | tuple) else ()
    return [
        str(tensor["name"]) for tensor in found if isinstance(tensor, dict) and "name" in tensor
    ]


def predicted_tokens(recipe: Mapping[str, object], output: object = None) -> str | None:
    """Return the input whose tokens an output (by default the first) predicts: token ids along the
    second axis of its scores, [rows, positions, tokens]; None if there is none.
    """
    outputs = tensors_by_name(recipe, "outputs")
    scores = outputs.get(str(output)) if output is not None else next(iter(outputs.values()), None)
    if scores is None or len(scores["shape"]) != 3:
        return None
    return tokens_of(tensors_by_name(recipe, "inputs"), scores["shape"][1])


def perplexity_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return why a recipe that asks for perplexity, or for generated tokens, has none."""
    evaluate = mapping(recipe.get("evaluate"))
    generates = isinstance(evaluate.get("generate"), int)
    if not generates and evaluate.get("metric") != "perplexity":
        return
    what = "generate" if generates else "perplexity"
    place = ("evaluate", "generate" if generates else "metric")
    tokens = predicted_tokens(recipe, evaluate.get("output"))
    if tokens is None:
        message = (
            f"{what} needs scores of the shape [rows, positions, tokens] as the output, and an"
            " input with sample: token_ids of the shape [rows, positions]"
        )
        yield RecipeFault(place, message)
    elif generates:
        yield from _generation_faults(recipe, tokens)
    for axis in _cache_axes(recipe):
        least = mapping(mapping(recipe.get("axes")).get(axis)).get("min", 0)
        if least != 0:
            message = f"{what} starts with an empty cache, and axes.{axis}.min is {least}; write 0"
            yield RecipeFault(place, message)


def _generation_faults(recipe: Mapping[str, object], tokens: str) -> Iterator[RecipeFault]:
    """Return why there is no place for the tokens to come."""
    evaluate, place = mapping(recipe.get("evaluate")), ("evaluate", "generate")
    count = int(str(evaluate["generate"]))
    inputs = tensors_by_name(recipe, "inputs")
    axis = inputs[tokens]["shape"][1]
    most = mapping(mapping(recipe.get("axes")).get(axis)).get("max")
    if not isinstance(axis, str) or not isinstance(most, int):
        yield RecipeFault(place, f"the tokens in {tokens} need an axis to grow along; found {axis}")
    elif most <= count:
        yield RecipeFault(place, f"{count} tokens and a row need more than axes.{axis}.max, {most}")
    if evaluate.get("texts") and mask_name(inputs, axis) is None:
        yield RecipeFault(place, "texts differ in length: add an input with sample: padding_mask")


def _cache_axes(recipe: Mapping[str, object]) -> tuple[str, ...]:
    """Return the axes that grow as the model is called in a loop."""
    steps = mapping(recipe.get("steps"))
    inputs, outputs = (tensors_by_name(recipe, kind) for kind in ("inputs", "outputs"))
    given = {key: str(value) for key, value in mapping(steps.get("feeds")).items()}
    feeds, _ = resolve_feeds(given, list(outputs), list(inputs))
    axis = steps.get("axis")
    shapes = {name: tensor["shape"] for name, tensor in {**inputs, **outputs}.items()}
    return growing_axes(feeds, shapes, axis if isinstance(axis, str) else None)[0]
