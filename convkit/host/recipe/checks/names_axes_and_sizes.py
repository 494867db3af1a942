"""Checks between the parts of a recipe: axes are declared, names are unique, outputs exist, sizes
are possible.

The checks read plain values and skip anything malformed. So they also work on a recipe with other
errors, and a single load reports everything that is wrong.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from convkit.host.recipe.checks.padding_samples import ADDITIVE, CAUSAL_VALUES, PADDING_VALUES
from convkit.protocol.contract import DimensionError, dimension_axes, dimension_size
from convkit.protocol.runtimes.runtime_registry import runtimes

KeyPath = tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class RecipeFault:
    """A mistake at a key path (relative to the checked part); the message explains what to
    write.
    """

    path: KeyPath
    message: str


class FaultsError(ValueError):
    """Faults with their places, raised from a model's validator. pydantic itself would only report
    the model's own place.
    """

    def __init__(self, faults: Sequence[RecipeFault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = tuple(faults)


# Common words that resemble a wrong one, or none: gpu is not a misspelled cpu, and torch's float is
# not float64.
_SYNONYMS = {
    "gpu": "cuda",
    "float": "float32",
    "single": "float32",
    "fp32": "float32",
    "f32": "float32",
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "dynamo": "torch",
    "jit": "torchscript",
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` probably meant."""
    words = {name.lower(): name for name in known}
    nicknames = {each: row.name for row in runtimes().values() for each in row.nicknames}
    if (meant := (_SYNONYMS | nicknames).get(word.lower())) in words:
        return words[meant]
    found = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    return words[found[0]] if found else None


def perhaps(word: str, known: Iterable[str]) -> str:
    """Return '; perhaps you meant ...', or nothing."""
    guess = nearest(word, known)
    return f"; perhaps you meant {guess!r}" if guess else ""


def consistency_faults(recipe: Mapping[str, object]) -> list[RecipeFault]:
    """Return the inconsistencies between a recipe's parts, under the keys a user writes."""
    return [fault for check in _CHECKS for fault in check(recipe)]


def mapping(value: object) -> Mapping[str, object]:
    """Return a value that should be a mapping; empty if it is not, which is reported elsewhere."""
    return value if isinstance(value, dict) else {}


def _tensors(
    recipe: Mapping[str, object], kinds: Sequence[str] = ("inputs", "outputs")
) -> Iterator[tuple[KeyPath, Mapping[str, object]]]:
    for kind in kinds:
        tensors = recipe.get(kind)
        for i, tensor in enumerate(tensors if isinstance(tensors, list | tuple) else ()):
            if isinstance(tensor, dict):
                yield (kind, i), tensor


# How many elements have a number with a meaning, if no axis says it: about a quarter.
SOME = "some"


def dimensions(recipe: Mapping[str, object]) -> Iterator[tuple[KeyPath, str, tuple[str, ...]]]:
    """Yield each symbolic dimension: its place, its text, its axes."""
    for path, tensor in _tensors(recipe):
        shape = tensor.get("shape")
        places: list[tuple[KeyPath, object]] = [
            ((*path, "shape", i), dimension)
            for i, dimension in enumerate(shape if isinstance(shape, list | tuple) else ())
        ]
        sample = mapping(tensor.get("sample"))
        places += [((*path, "sample", key), sample.get(key)) for key in ("lengths", "offsets")]
        held = sample.get("holds")
        places += [
            ((*path, "sample", "holds", i), pair[1])
            for i, pair in enumerate(held if isinstance(held, list | tuple) else ())
            if isinstance(pair, list | tuple) and len(pair) == 2 and pair[1] != SOME
        ]
        for place, dimension in places:
            if isinstance(dimension, str):
                try:
                    yield place, dimension, dimension_axes(dimension)
                except DimensionError:
                    continue  # reported where the dimension itself is checked


def _names_are_unique(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    first: dict[str, str] = {}
    for path, tensor in _tensors(recipe):
        name = tensor.get("name")
        if not isinstance(name, str):
            continue
        if name in first:
            yield RecipeFault(
                (*path, "name"),
                f"{first[name]} is already called {name!r}; choose another name (keep this"
                " one as `from`)",
            )
        first.setdefault(name, f"{path[0]}[{path[1]}]")


def _origins_are_unique(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    for kind in ("inputs", "outputs"):
        first: dict[str, str] = {}
        for path, tensor in _tensors(recipe, (kind,)):
            origin = tensor.get("from", tensor.get("name"))
            if not isinstance(origin, str):
                continue
            if origin in first and "from" in tensor:
                yield RecipeFault(
                    (*path, "from"), f"{first[origin]} already refers to the model's {origin!r}"
                )
            first.setdefault(origin, f"{kind}[{path[1]}]")


def _axes_are_declared(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    declared = [str(axis) for axis in mapping(recipe.get("axes"))]
    used = set()
    for path, dimension, axes in dimensions(recipe):
        for axis in axes:
            used.add(axis)
            if axis not in declared:
                known = f"declared: {', '.join(declared)}" if declared else "axes declares none"
                of = "" if axis == dimension else f" of {dimension!r}"
                yield RecipeFault(
                    path,
                    f"the axis {axis!r}{of} is not declared{perhaps(axis, declared)} ({known})",
                )
    for part in mapping(recipe.get("parts")).values():
        used |= {axis for _, _, axes in dimensions(mapping(part)) for axis in axes}
    for axis in declared:
        if axis not in used:
            yield RecipeFault(("axes", axis), "no input or output uses this axis; remove it")


def _sizes_are_possible(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    axes = {name: mapping(axis) for name, axis in mapping(recipe.get("axes")).items()}
    for path, dimension, names in dimensions(recipe):
        for moment in ("min", "typical", "max"):
            sizes = {
                name: size
                for name in names
                if isinstance(size := axes.get(name, {}).get(moment), int) and size >= 0
            }
            if len(sizes) < len(names):  # the axis itself is reported
                break
            try:
                size = dimension_size(dimension, sizes)
            except DimensionError as error:
                yield RecipeFault(path, f"{error} with every axis at its {moment}")
                break
            if size < 0:
                yield RecipeFault(
                    path,
                    f"{dimension!r} is {size} with every axis at its {moment}; sizes must be at"
                    " least 0",
                )
                break


def _outputs_exist(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    known = [
        str(tensor["name"]) for _, tensor in _tensors(recipe, ("outputs",)) if "name" in tensor
    ]
    places: list[tuple[KeyPath, object]] = [(("verify",), recipe.get("verify"))]
    places += [
        (("targets", name), target) for name, target in mapping(recipe.get("targets")).items()
    ]
    limits = mapping(mapping(recipe.get("verify")).get("by_precision"))
    places += [(("verify", "by_precision", kind), each) for kind, each in limits.items()]
    for path, holder in places:
        for name in mapping(mapping(holder).get("outputs")):
            if name not in known:
                listing = ", ".join(known) or "none"
                yield RecipeFault(
                    (*path, "outputs", name),
                    f"is not an output{perhaps(name, known)}; outputs: {listing}",
                )


def _omissions_are_omitted(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    taken = {
        str(tensor.get("from", tensor.get("name"))) for _, tensor in _tensors(recipe, ("inputs",))
    }
    omitted = mapping(recipe.get("model")).get("omit")
    for i, name in enumerate(omitted if isinstance(omitted, list | tuple) else ()):
        if isinstance(name, str) and name in taken:
            yield RecipeFault(
                ("model", "omit", i), f"{name!r} is also one of the inputs; remove it here or there"
            )


def _texts_have_a_tokenizer(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    if mapping(recipe.get("verify")).get("texts") is None:
        return
    model = mapping(recipe.get("original") or recipe.get("model"))
    for kind in ("config", "factory", "onnx", "torchscript", "exported"):
        if model.get(kind) is not None:
            yield RecipeFault(
                ("verify", "texts"), f"a model from {kind} has no tokenizer for texts; remove it"
            )
            return
    inputs = [tensor.get("sample") for _, tensor in _tensors(recipe, ("inputs",))]
    if inputs and not any(
        isinstance(sample, str)
        and sample not in (*PADDING_VALUES, *CAUSAL_VALUES, "positions", "encoded_image")
        for sample in inputs
    ):
        yield RecipeFault(
            ("verify", "texts"), "no input has sample: token_ids, so texts cannot be fed; remove it"
        )


def _original_is_another(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    original = recipe.get("original")
    if original is None or recipe.get("parts"):
        return
    if mapping(recipe.get("model")).get("onnx") is None:
        yield RecipeFault(
            ("original",),
            "only applies to model.onnx: any other model is its own original; remove it",
        )
    elif mapping(original).get("onnx") is not None:
        yield RecipeFault(
            ("original", "onnx"),
            "the original of an ONNX file must be the model it was exported from",
        )


def _masks_fit(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    shapes = {
        str(tensor.get("name")): tensor.get("shape") for _, tensor in _tensors(recipe, ("inputs",))
    }
    for path, tensor in _tensors(recipe, ("outputs",)):
        mask, shape = tensor.get("mask"), tensor.get("shape")
        if not isinstance(mask, str):
            continue
        if mask not in shapes:
            yield RecipeFault(
                (*path, "mask"),
                f"{mask!r} is not an input{perhaps(mask, shapes)}; inputs: {', '.join(shapes)}",
            )
            continue
        own = shapes[mask]
        if (
            isinstance(own, list | tuple)
            and isinstance(shape, list | tuple)
            and list(shape[: len(own)]) != list(own)
        ):
            yield RecipeFault(
                (*path, "mask"),
                f"the shape of {mask!r}, {list(own)}, must be the beginning of the output's"
                f" shape, {list(shape)}",
            )


_CHECKS: tuple[Callable[[Mapping[str, object]], Iterator[RecipeFault]], ...] = (
    _names_are_unique,
    _origins_are_unique,
    _axes_are_declared,
    _sizes_are_possible,
    _outputs_exist,
    _omissions_are_omitted,
    _texts_have_a_tokenizer,
    _original_is_another,
    _masks_fit,
)


def sample_fault(dtype: str, kind: str, numbers: Sequence[float]) -> str | None:
    """Return why this kind of sample does not suit an input of this dtype; None if it does."""
    if (dtype == "string") != (kind == "strings") and kind != "file":
        write = "{strings: [texts]}" if dtype == "string" else "numbers"
        return f"found {kind}, but the input is {dtype}; write {write}"
    if kind == "encoded_image" and dtype != "uint8":
        return f"{kind} samples bytes, but the input is {dtype}; its dtype would be uint8"
    whole = _whole_range(dtype)
    if whole is not None and kind in ADDITIVE:
        return f"{kind} is added to scores, but the input is {dtype}; its dtype would be float32"
    if whole is None:
        unfit = kind in ("token_ids", "positions", "lengths", "offsets")
        return f"{kind} are integers, but the input is {dtype}" if unfit else None
    if kind in ("normal", "uniform", "columns", "audio") or (kind == "image" and dtype == "bool"):
        return (
            f"{kind} samples fractions, but the input is {dtype}; write {{integers: [0,"
            f" {min(whole[1], 9) + 1}]}}"
        )
    fractions = [number for number in numbers if number != int(number)]
    if kind in ("constant", "one_of", "image") and fractions:
        return f"{fractions[0]} is not an integer, but the input is {dtype}"
    last = [numbers[0], numbers[1] - 1] if kind == "integers" else [*numbers]
    if not all(whole[0] <= number <= whole[1] for number in last):
        return f"found values outside {dtype}, which ranges from {whole[0]} to {whole[1]}"
    return None


def _whole_range(dtype: str) -> tuple[int, int] | None:
    """Return the smallest and largest value of an integer dtype; None for floats."""
    if dtype == "bool":
        return 0, 1
    if dtype.startswith("uint"):
        return 0, 2 ** int(dtype[4:]) - 1
    if dtype.startswith("int"):
        bits = int(dtype[3:])
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return None
