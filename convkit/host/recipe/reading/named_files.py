"""Checks that the files a recipe names exist and have the right kind. Reads plain values, as
`consistency` does.
"""

import ast
import difflib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath, RecipeFault, perhaps
from convkit.host.recipe.keys.model_sources import FILE_KINDS
from convkit.host.recipe.keys.postprocessing import NAMES, names_fault
from convkit.protocol.json_codec import Json

MOST_SOURCE_BYTES = 1 << 20
MOST_TEXT_BYTES = 1 << 20


def file_faults(recipe: Json, dirname: Path) -> list[RecipeFault]:
    """Return problems with the files that a recipe names; relative paths start at `dirname`."""
    faults = []
    parts = recipe.get("parts") if isinstance(recipe, dict) else None
    for name, part in (parts if isinstance(parts, dict) else {}).items():
        faults += [
            RecipeFault(("parts", name, *fault.path), fault.message)
            for fault in file_faults(part, dirname)
        ]
    for path, text, check in _named_files(recipe):
        if message := check(dirname, text):
            faults.append(RecipeFault(path, message))
    return faults


Check = Callable[[Path, str], str | None]


def _named_files(recipe: Json) -> Iterator[tuple[KeyPath, str, Check]]:
    candidates: list[tuple[KeyPath, Check]] = [
        (("model", "path"), _model_folder),
        *(((model, kind), _present) for model in ("model", "original") for kind in FILE_KINDS),
        (("model", "factory"), factory_fault),
        (("model", "factory", "call"), factory_fault),
        (("original", "path"), _model_folder),
        (("original", "factory"), factory_fault),
        (("original", "factory", "call"), factory_fault),
        (("verify", "texts"), _texts),
        (("verify", "example"), _present),
        (("evaluate", "data"), _rows),
        (("evaluate", "metric"), factory_fault),
    ]
    for model in ("model", "original"):
        declared = _value(recipe, (model, "files"))
        count = len(declared) if isinstance(declared, list) else 0
        candidates += [((model, "files", i), _present) for i in range(count)]
    inputs = recipe.get("inputs") if isinstance(recipe, dict) else None
    count = len(inputs) if isinstance(inputs, list) else 0
    candidates += [(("inputs", i, "sample", "file"), _present) for i in range(count)]
    for i in range(count):
        candidates += _preprocessing_files(recipe, i)
    outputs = recipe.get("outputs") if isinstance(recipe, dict) else None
    for i in range(len(outputs) if isinstance(outputs, list) else 0):
        candidates += _postprocessing_files(recipe, i)
    candidates += _custom_operators(recipe)
    targets = recipe.get("targets") if isinstance(recipe, dict) else None
    names = list(targets) if isinstance(targets, dict) else []
    candidates += [
        (("targets", name, "precision", "calibration", "file"), _present) for name in names
    ]
    candidates += [(("targets", name, "file"), _built_model) for name in names]
    for path, check in candidates:
        value = _value(recipe, path)
        if isinstance(value, str) and value:
            yield path, value, check


def _custom_operators(recipe: Json) -> Iterator[tuple[KeyPath, Check]]:
    declared = _value(recipe, ("custom_ops",))
    for i, entry in enumerate(declared if isinstance(declared, list) else ()):
        path: KeyPath = ("custom_ops", i)
        if isinstance(entry, str):
            yield path, factory_fault if ".py:" in entry else _present
        elif isinstance(entry, Mapping):
            yield (*path, "translation"), factory_fault
            if "package" not in entry:
                yield (*path, "library"), _present


def _preprocessing_files(recipe: Json, place: int) -> Iterator[tuple[KeyPath, Check]]:
    path = ("inputs", place, "preprocess")
    files = _value(recipe, (*path, "files"))
    for i in range(len(files) if isinstance(files, list) else 0):
        yield (*path, "files", i), _present
    yield (*path, "processor", "file"), _present
    yield (*path, "processor", "call"), factory_fault


def _postprocessing_files(recipe: Json, place: int) -> Iterator[tuple[KeyPath, Check]]:
    path = ("outputs", place, "postprocess")
    for kind, names in NAMES.items():
        listed = _value(recipe, (*path, kind, names))
        yield (*path, kind, "file"), _listed_twice(names) if listed else _names
    yield (*path, "processor", "file"), _present
    yield (*path, "processor", "call"), factory_fault


def _value(content: Json, path: KeyPath) -> Json:
    for part in path:
        if isinstance(part, int):
            content = content[part] if isinstance(content, list) else None
        else:
            content = content.get(part) if isinstance(content, Mapping) else None
    return content


def _kind(path: Path) -> Literal["file", "folder", "nothing"]:
    try:
        return "folder" if path.is_dir() else "file" if path.is_file() else "nothing"
    except OSError:  # the name is too long for the file system, or a folder is not readable
        return "nothing"


def _present(dirname: Path, text: str) -> str | None:
    """Return why a path is not a usable file; None if it is."""
    match _kind(dirname / text):
        case "file":
            return None
        case "folder":
            return f"{text!r} is a folder; write the path of a file"
        case "nothing":
            return _nothing_there("file", dirname, text)


def _rows(dirname: Path, text: str) -> str | None:
    """Return why a path is no rows: a file, or with a slash at the end a folder of classes."""
    if not text.endswith("/"):
        return _present(dirname, text)
    folder = dirname / text
    match _kind(folder):
        case "file":
            return f"{text!r} is a file; remove the slash at its end"
        case "nothing":
            return _nothing_there("folder", dirname, text)
        case "folder":
            if any(entry.is_dir() for entry in folder.iterdir()):
                return None
            return f"{text!r} contains no folders; put the images of each class in one of its own"


def _built_model(dirname: Path, text: str) -> str | None:
    """Return why a path is not a built model, which may be a folder; None if it is."""
    if _kind(dirname / text) == "nothing":
        return _nothing_there("file", dirname, text)
    # An IR's weights are beside it.
    return _present(dirname, f"{text[:-4]}.bin") if text.endswith(".xml") else None


def _nothing_there(noun: str, dirname: Path, text: str) -> str:
    wanted = dirname / text
    try:
        beside = sorted(entry.name for entry in wanted.parent.iterdir())
    except OSError:
        beside = []
    guess = difflib.get_close_matches(wanted.name, beside, n=1)
    hint = f"; perhaps you meant {str(Path(text).parent / guess[0])!r}" if guess else ""
    return (
        f"found no {noun} {text!r} (relative paths start at the recipe's folder, {dirname}){hint}"
    )


def _listed_twice(names: str) -> Check:
    return lambda _dirname, _text: f"write file or {names}, not both"


def _names(dirname: Path, text: str) -> str | None:
    return _present(dirname, text) or names_fault(dirname, text)


def _model_folder(dirname: Path, text: str) -> str | None:
    folder = dirname / text
    match _kind(folder):
        case "file":
            there = (
                "an ONNX file goes under model.onnx"
                if text.endswith(".onnx")
                else "write the folder it is in"
            )
            return f"{text!r} is a file, not a model's folder; {there}"
        case "nothing":
            return _nothing_there("folder", dirname, text)
        case "folder":
            if _kind(folder / "config.json") == "file":
                return None
            return f"{text!r} has no config.json; write the folder that save_pretrained created"


def _texts(dirname: Path, text: str) -> str | None:
    if message := _present(dirname, text):
        return message
    path = dirname / text
    try:
        if path.stat().st_size > MOST_TEXT_BYTES:
            return f"{text!r} is larger than 1 MiB; a few hundred texts are enough"
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return f"{text!r} cannot be read as UTF-8 text: {error}"
    return (
        None
        if any(line.strip() for line in lines)
        else f"{text!r} contains no text; write one text per line"
    )


def factory_fault(dirname: Path, text: str) -> str | None:
    """Return what is wrong with `path/to/file.py:callable` in a folder; None if nothing is."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        return None  # reported where the form is checked
    if message := _present(dirname, file):
        return message
    path = dirname / file
    try:
        if path.stat().st_size > MOST_SOURCE_BYTES:
            return None
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        return f"{file!r} is not valid Python: line {error.lineno}: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"{file!r} cannot be read: {error}"
    names = _top_level_names(tree)
    if names is None or name in names:
        return None
    own = [known for known, imported in names.items() if not imported]
    return (
        f"{file!r} does not define {name!r}{perhaps(name, own)} (it defines:"
        f" {', '.join(own) or 'nothing'})"
    )


def _top_level_names(tree: ast.Module) -> dict[str, bool] | None:
    """Return the names of a module, and whether it imports them; None if there can be others."""
    names: dict[str, bool] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = False
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name.split(".")[0]: True for alias in aliases}
            case ast.Assign(targets=targets):
                names |= {target.id: False for target in targets if isinstance(target, ast.Name)}
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                return None
            case _:
                continue
    return None if "*" in names else names
