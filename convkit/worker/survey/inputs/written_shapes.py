"""Shapes that a module's own source states: of tensors that it is called with below, those in its
docstrings and comments, and sizes that it keeps under a name that says what they are. People write
them down, and no trial finds them: most models run with pictures of any size.
"""

import ast
import dataclasses
import inspect
import io
import itertools
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from convkit.protocol.contract import Dimension, TensorSpec

# `(batch, 3, height, 224)`: names and numbers in brackets, two of them or more.
_ITEM = r"(?:\d+|[A-Za-z_][\w/ ]*)"
_LISTED = re.compile(rf"[(\[]\s*({_ITEM}(?:\s*,\s*{_ITEM})+)\s*,?\s*[)\]]")
# `3 x 224 x 224`, `48x48`, also with the sign of multiplication: a number first, or a short name.
_FACTOR = r"(?:\d+|[A-Za-z]\w{0,11})"
_SIGN = "x\N{MULTIPLICATION SIGN}"
_MULTIPLIED = re.compile(
    rf"(?<![\w.])({_FACTOR}(?:(?:\s+[{_SIGN}*]\s+|[{_SIGN}]){_FACTOR})+)(?!\w|\.\d)"
)
_PRODUCT = re.compile(rf"\s+[{_SIGN}*]\s+|(?<=\d)[{_SIGN}](?=\d)|(?<=\w){_SIGN[1]}(?=\w)")
# Torch's functions that make a tensor of the sizes they are given.
_MAKERS = frozenset({"randn", "rand", "zeros", "ones", "empty", "full", "randint"})
# Functions that try a model; a script does it under a condition.
_TRIES = re.compile(r"main|test|example|demo|sample|dummy|inputs?$|try|check")
# Fewer are those of a kernel, a patch or a window, if the text leaves out the other axes.
_SMALLEST_SIDE = 16
_MOST_FILES, _MOST_BYTES, _MOST_SHAPES = 20, 1 << 20, 40
# Attributes that hold a size of the input, by the axes that have it.
_KEPT = (
    (("side",), re.compile(r"^(img|image|input|crop)_?(size|resolution|side)$")),
    (
        ("sequence", "length"),
        re.compile(
            r"^(seq|sequence|input|context|history|lookback|window)_?(len|length|size|steps)$"
            r"|^lookback$|^n(um)?_(frames|steps)$"
        ),
    ),
    (("samples", "length"), re.compile(r"^n(um)?_samples$|^(audio|wave|sample)_?(len|length)$")),
)
_SIDE, _SIDES = "side", ("height", "width")
_BATCH = "batch"


@dataclasses.dataclass(frozen=True)
class WrittenShape:
    """Sizes of axes next to each other, None where the text has a name. `source` is the line."""

    sizes: tuple[int | None, ...]
    source: str


@dataclasses.dataclass(frozen=True)
class StatedSizes:
    """Inputs with the sizes that the source states of some axes; `sources` are the lines."""

    inputs: tuple[TensorSpec, ...]
    sizes: Mapping[str, int]
    sources: tuple[str, ...]


def written_shapes(module: torch.nn.Module, root: str | None) -> tuple[WrittenShape, ...]:
    """Return what the files of a module's own classes under `root` state of shapes: of tensors
    first that the files make to try the model, then those in text, then of other tensors beside the
    classes.
    """
    if root is None:
        return ()
    called, told, made = list[WrittenShape](), list[WrittenShape](), list[WrittenShape]()
    for file in itertools.islice(_files(module, Path(root)), _MOST_FILES):
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError):
            continue
        name = file.relative_to(root).as_posix()
        for sizes, line, is_example in _of_tensors(tree):
            (called if is_example else made).append(WrittenShape(sizes, f"{name}:{line}"))
        told += [
            WrittenShape(sizes, f"{name}:{line}")
            for line, said in [*_docstrings(tree), *_comments(text)]
            for sizes in _of_text(said)
        ]
    found = {each.sizes: each for each in reversed([*called, *told, *made])}
    return tuple(list(reversed(found.values()))[:_MOST_SHAPES])


def stated_sizes(
    inputs: tuple[TensorSpec, ...], shapes: Sequence[WrittenShape]
) -> Iterator[StatedSizes]:
    """Yield inputs with what the source states of their sizes, each way once; each of the shapes in
    turn decides first.
    """
    seen = set[object]()
    for first in shapes:
        ordered = [first, *(shape for shape in shapes if shape is not first)]
        stated = _stated(inputs, ordered)
        key = (stated.inputs, tuple(sorted(stated.sizes.items())))
        if first.source in stated.sources and key not in seen:
            seen.add(key)
            yield stated


def kept_sizes(inputs: tuple[TensorSpec, ...], module: torch.nn.Module) -> Iterator[StatedSizes]:
    """Yield inputs with the sizes that a module keeps as attributes, if it keeps any for them."""
    axes = {size for spec in inputs for size in spec.shape if isinstance(size, str)}
    sizes, sources = dict[str, int](), list[str]()
    for part in module.modules():
        for name, value in vars(part).items():
            size = _one_size(value)
            if size is None or size < 2:
                continue
            found = [axis for kept, wanted in _KEPT if wanted.match(name) for axis in kept]
            for axis in axes.intersection(found).difference(sizes):
                sizes[axis] = size
                sources.append(f"{type(part).__name__}.{name}")
    if sizes:
        yield StatedSizes(inputs, sizes, tuple(dict.fromkeys(sources)))


def _one_size(value: object) -> int | None:
    """Return a size, or that of all sides if they are one; None for anything else."""
    sizes = value if isinstance(value, list | tuple) else [value]
    whole = [each for each in sizes if type(each) is int]
    return whole[0] if whole and len(whole) == len(sizes) == whole.count(whole[0]) else None


def _stated(inputs: tuple[TensorSpec, ...], shapes: Sequence[WrittenShape]) -> StatedSizes:
    sizes, specs, sources = dict[str, int](), dict[str, TensorSpec](), list[str]()
    for spec in sorted(inputs, key=lambda each: not any(_fits(each.shape, shapes[0].sizes))):
        fits = ((shape, found) for shape in shapes for found in _fits(spec.shape, shape.sizes))
        named = None
        for shape, found in fits:
            named = _bound(spec.shape, found, sizes)
            if named is not None:
                sources.append(shape.source)
                break
        dimensions, bound = named if named is not None else (spec.shape, {})
        specs[spec.name] = dataclasses.replace(spec, shape=dimensions)
        sizes |= bound
    ordered = tuple(specs[spec.name] for spec in inputs)
    return StatedSizes(ordered, sizes, tuple(dict.fromkeys(sources)))


def _bound(
    shape: Sequence[Dimension], found: Mapping[int, int], known: Mapping[str, int]
) -> tuple[tuple[Dimension, ...], dict[str, int]] | None:
    """Return a shape and its axes' sizes, the sides of a picture by names of their own if they
    differ; None if another input's are different.
    """
    sides = [place for place, size in enumerate(shape) if size == _SIDE]
    named = list(shape)
    if len(sides) == len(_SIDES) and len({found.get(place) for place in sides}) > 1:
        for place, side in zip(sides, _SIDES, strict=True):
            named[place] = side
    sizes = dict(known)
    for place, size in found.items():
        if sizes.setdefault(str(named[place]), size) != size:
            return None
    return tuple(named), {str(named[place]): size for place, size in found.items()}


def _fits(shape: Sequence[Dimension], sizes: Sequence[int | None]) -> Iterator[dict[int, int]]:
    """Yield the sizes of a shape's named axes, by place, for each place at which text fits it."""
    starts = [0] if len(sizes) == len(shape) else range(len(shape) - len(sizes), 0, -1)
    for start in starts:
        found = dict[int, int]()
        for place, size in enumerate(sizes, start):
            dimension = shape[place]
            if size is None or dimension == _BATCH:
                continue
            if isinstance(dimension, int):
                if dimension != size:
                    break
            elif len(sizes) < len(shape) and size < _SMALLEST_SIDE:
                break
            else:
                found[place] = size
        else:
            if found:
                yield found


def _files(module: torch.nn.Module, root: Path) -> Iterator[Path]:
    """Yield the files under `root` in which the classes of a module and its parts are written."""
    seen = set[Path]()
    for each in module.modules():
        try:
            file = inspect.getsourcefile(type(each))
        except TypeError:  # a class of an interactive session
            continue
        path = Path(file).resolve() if file is not None else None
        if path is None or path in seen or not path.is_relative_to(root.resolve()):
            continue
        seen.add(path)
        if path.stat().st_size <= _MOST_BYTES:
            yield root / path.relative_to(root.resolve())


def _of_tensors(tree: ast.Module) -> Iterator[tuple[tuple[int | None, ...], int, bool]]:
    """Yield the shapes of tensors made beside the model, their lines, and whether they are made to
    try it: not those in its methods, which are weights and intermediate values.
    """
    for node, is_example in _beside_classes(tree, is_example=False):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in _MAKERS:
            continue
        given = [*node.args, *(word.value for word in node.keywords if word.arg == "size")]
        lists = [each for each in given if isinstance(each, ast.Tuple | ast.List)]
        items = lists[0].elts if lists else given
        sizes = [each.value if isinstance(each, ast.Constant) else None for each in items]
        whole = tuple(size if type(size) is int else None for size in sizes)
        if any(size is not None and size > 1 for size in whole):
            yield whole, node.lineno, is_example


def _beside_classes(node: ast.AST, *, is_example: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            continue
        is_trial = isinstance(child, ast.If) or (
            isinstance(child, ast.FunctionDef) and _TRIES.search(child.name) is not None
        )
        yield child, is_example or is_trial
        yield from _beside_classes(child, is_example=is_example or is_trial)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str):
                for number, line in enumerate(value.splitlines()):
                    yield node.lineno + number, line


def _comments(text: str) -> Iterator[tuple[int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, IndentationError):
        return


def _of_text(line: str) -> Iterator[tuple[int | None, ...]]:
    """Yield the shapes in a line of text, the largest of those that are written as products first:
    windows and patches are smaller than what they are taken from.
    """
    for match in _LISTED.finditer(line):
        yield from _with_numbers(match[1].split(","))
    products = [_PRODUCT.split(match[1]) for match in _MULTIPLIED.finditer(line)]
    shapes = [shape for product in products for shape in _with_numbers(product)]
    yield from sorted(shapes, key=lambda shape: -max(size or 0 for size in shape))


def _with_numbers(items: Sequence[str]) -> Iterator[tuple[int | None, ...]]:
    sizes = tuple(int(each) if each.strip().isdigit() else None for each in items)
    if len(sizes) > 1 and any(size is not None and size > 1 for size in sizes):
        yield sizes
