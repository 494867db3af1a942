"""A Python callable that returns a torch module."""

import ast
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from convkit.protocol.messages import Source
from convkit.protocol.project_folders import import_folders, package_member
from convkit.protocol.spelling import suggestion
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.loading.model_facts import model_facts
from convkit.worker.original.loading.unloaded_operators import (
    declaring_operators,
    is_missing_operator,
)
from convkit.worker.original.loading.weight_seeding import seeded
from convkit.worker.process.native_readers import watched_readers
from convkit.worker.process.one_thread import one_thread
from convkit.worker.process.user_modules import source_spec


def load(source: Source) -> LoadedModel:
    """Import the file, set the seed, and call the callable with the recipe's arguments, in one
    thread: what it computes, such as trained weights, is then the same in every stage.

    The file can import neighboring modules, and those of its project. With `model.dtype`, the
    module's weights are converted; without, or with `stored`, they stay as they were built.
    """
    import torch

    assert source.path is not None
    assert source.identifier is not None
    file = Path(source.path).resolve()
    module = declaring_operators(lambda: _built(source, file))
    if not isinstance(module, torch.nn.Module):
        raise StageFailedError(
            f"model.factory.call: {file.name}:{source.identifier} returned a"
            f" {type(module).__name__}; it must return a torch.nn.Module"
        )
    if source.dtype in ("float16", "bfloat16", "float32"):
        module = module.to(getattr(torch, source.dtype))
    config = getattr(module, "config", None)
    if not hasattr(config, "model_type"):
        config = None
    return LoadedModel(
        module=module.cpu(),
        description=f"{file.name}:{source.identifier}",
        config=config,
        facts=model_facts(module, config),
        source_root=str(file.parent),
    )


def _built(source: Source, file: Path) -> object:
    assert source.identifier is not None
    with seeded(source.seed), one_thread(), watched_readers() as watch:
        build = named_callable(file, source.identifier)
        watch()
        try:
            return build(**source.overrides)
        except Exception as error:
            if is_missing_operator(error):
                raise
            raise StageFailedError(
                f"model.factory.call: {file.name}:{source.identifier} raised"
                f" {type(error).__name__}: {error}{_own_line(error, file)}. Check the file and"
                " model.factory.arguments."
            ) from error


def named_callable(
    file: Path, name: str, place: str = "model.factory.call", *, reuse: bool = False
) -> Callable[..., object]:
    """Import a file and return its callable of a name; raises StageFailedError, which names the
    `place` where a user wrote it. With `reuse`, a file that this process has imported is not run
    again: torch would register its operators anew, under the same names.
    """
    return _callable(_import(file, place, reuse=reuse), name, file, place)


def _import(file: Path, place: str, *, reuse: bool) -> ModuleType:
    if not file.is_file():
        raise StageFailedError(f"{place}: there is no file {file}")
    member = _member(file)
    # A unique name that is the same in every process: torch writes it into exported graphs.
    name = f"convkit_factory_{file.stem}_{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    name = member or name
    before = sys.modules.get(name)
    if reuse and before is not None and before.__file__ == str(file):
        return before
    spec = source_spec(name, file)
    if spec is None or spec.loader is None:
        raise StageFailedError(f"{place}: {file} is not a Python file")
    sys.path += [str(each) for each in import_folders(file) if str(each) not in sys.path]
    try:
        declaring_operators(lambda: _execute(name, spec))
    except Exception as error:
        sys.modules.pop(name, None)
        raise StageFailedError(
            f"{place}: importing {file.name} raised {type(error).__name__}: {error}"
            f"{_own_line(error, file)}. A package that it needs belongs under tools:"
            " (convkit init ... --with PACKAGE writes it)."
        ) from error
    return sys.modules[name]


def _execute(name: str, spec: ModuleSpec) -> None:
    """Import a file under a name: the packages around it first, if the name has any."""
    if parent := name.rpartition(".")[0]:
        importlib.import_module(parent)
    if name in sys.modules and sys.modules[name].__file__ == spec.origin:
        return  # its package imports it
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        assert spec.loader is not None
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _member(file: Path) -> str | None:
    """Return the name of a file as a module of its package, if it imports from that package."""
    member = package_member(file)
    if member is None:
        return None
    own = member[1].partition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return None  # importing it says why
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(level=level, module=module):
                if level or (module or "").partition(".")[0] == own:
                    return member[1]
            case ast.Import(names=names):
                if any(alias.name.partition(".")[0] == own for alias in names):
                    return member[1]
    return None


def _callable(module: ModuleType, name: str, file: Path, place: str) -> Callable[..., object]:
    found = getattr(module, name, None)
    if found is None:
        known = [
            key
            for key, value in vars(module).items()
            if callable(value) and not key.startswith("_")
        ]
        raise StageFailedError(
            f"{place}: {file.name} has no {name!r}{suggestion(name, known)}. "
            f"Callables there: {', '.join(known) or 'none'}."
        )
    if not callable(found):
        raise StageFailedError(
            f"{place}: {file.name}:{name} is a {type(found).__name__}, not a callable"
        )
    return found


def _own_line(error: Exception, file: Path) -> str:
    """Return ` (line N)` for the innermost frame of the error in the user's file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file)
    ]
    return f" (line {lines[-1]})" if lines else ""
