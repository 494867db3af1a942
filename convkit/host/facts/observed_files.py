"""Files that a model-loading stage was observed to read, and what else its code asked the machine
(see `convkit.protocol.lookups`), which become part of its key.

The first run of a stage discovers them, as compilers tell build tools which headers they read. The
store records their names for each model, so that later runs know which files to digest before
running the stage. Their digests are among the ingredients of its key, so changing a file reruns the
stage.

Names are relative to the recipe's folder or to a model cache, so that they are valid on other
machines.
"""

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from convkit.host.home import Home
from convkit.host.plan.stage_keys import OPENED, Facts, ingredients, possible_keys, stage_key
from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.recipe import Model, Recipe
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.store.digests import (
    DigestCache,
    SealBroken,
    digest_json,
    read_sealed,
    write_sealed,
)
from convkit.host.store.own_output import is_home, is_own_output
from convkit.host.store.store import StageRecord, Store
from convkit.protocol.errors import WorkerError
from convkit.protocol.json_codec import encode
from convkit.protocol.lookups.lookup_answers import (
    NOTHING,
    UNANSWERED,
    WITHOUT_PATH,
    answer,
    lookup_name,
    lookup_of,
)
from convkit.protocol.messages import Answer
from convkit.protocol.passed_variables import passed_on


def remembered_files(
    stage: Stage, loaded: LoadedRecipe, facts: Facts, store: Path
) -> dict[str, str]:
    """Return the files that a stage last read with this model, with current digests."""
    place = _memory(stage, loaded, facts, store)
    if place is None:
        return {}
    try:
        names = read_sealed(place, tuple[str, ...])
    except (OSError, SealBroken):
        names = ()  # the stage runs, and discovers them again
    names = (*names, *_declared(stage, loaded))
    return digests_of(names, loaded.dirname, DigestCache(store / "digests"))


def remember_files(
    names: Iterable[str], stage: Stage, loaded: LoadedRecipe, facts: Facts, store: Path
) -> None:
    """Record the names of the files that a stage read."""
    place = _memory(stage, loaded, facts, store)
    if place is not None:
        write_sealed(place, tuple(sorted(names)), durable=False)


def known_stage(
    stage: Stage,
    key: str,
    parts: dict[str, str],
    inputs: Mapping[str, str],
    loaded: LoadedRecipe,
    facts: Facts,
    store: Store,
) -> tuple[str, dict[str, str], StageRecord | None]:
    """Return a stage's record, with its key and ingredients: another run may meanwhile have
    discovered which files the model is loaded from, which changes both.
    """
    known = store.first_record(possible_keys(parts))
    files = remembered_files(stage, loaded, facts, store.root)
    if known is not None or not files or files == dict(facts.opened.get(stage.id, {})):
        return key, parts, known
    parts = ingredients(stage, loaded.recipe, with_opened(facts, stage, files), inputs) or parts
    return stage_key(parts), parts, store.first_record(possible_keys(parts))


def facts_after(
    stage: Stage,
    answer: Answer,
    loaded: LoadedRecipe,
    facts: Facts,
    home: Home,
    started: float,
    *,
    partly: bool = False,
) -> Facts:
    """Return facts that include the files a stage was observed to read, and record these; the same
    facts if all were known. `partly`: the stage needed not do all that it did before, so what it
    read then counts, too.

    Raises WorkerError for a file that changed after the stage `started` (seconds since 1970),
    because it is unknown which version was read.
    """
    if not _loads_model(stage, loaded):
        return facts
    before = dict(facts.opened.get(stage.id, {})) if partly else {}
    found = before | _read_by(stage, answer.opened, loaded, facts, home, started)
    if found == dict(facts.opened.get(stage.id, {})):
        return facts
    remember_files(found, stage, loaded, facts, home.store)
    return with_opened(facts, stage, found)


def _read_by(
    stage: Stage,
    opened: Collection[str],
    loaded: LoadedRecipe,
    facts: Facts,
    home: Home,
    started: float,
) -> dict[str, str]:
    """Return the names and digests of the files that a stage opened or the recipe declares, and its
    lookups with their answers, except those already in its key and those in convkit's home.
    """
    known = {os.path.normpath(loaded.dirname / name) for name in facts.files}
    digests = DigestCache(home.store / "digests")
    lookups = [name for name in opened if lookup_of(name) is not None]
    found = {
        named: _answer(named, loaded.dirname)
        for name in lookups
        if (named := _named_lookup(name, loaded, home)) is not None
    }
    for path in _as_spelled(set(opened).difference(lookups), loaded.dirname):
        if _in_home(Path(path), home) or path in known or _in_source(path, loaded):
            continue
        if is_own_output(path):
            continue
        if Path(path).stat().st_ctime > started:
            raise WorkerError(
                f"{path}: changed while the stage was reading it. Run again once it no longer"
                " changes."
            )
        found[_name(path, loaded.dirname)] = digests.file(Path(path))
    return digests_of(_declared(stage, loaded), loaded.dirname, digests) | found


def _as_spelled(opened: Iterable[str], dirname: Path) -> list[str]:
    """Return each file by the paths that lead to it from the recipe's folder: through links as they
    were, which another file may be behind by the next run; else once.

    The kernel says where a file is, Python how it was reached: below a link they differ.
    """
    top = dirname.resolve()
    plain: dict[str, str] = {}
    linked: dict[str, set[str]] = {}
    for path in opened:
        real = os.path.realpath(path)
        if path == real:
            beside = os.path.normpath(dirname / os.path.relpath(real, top))
            plain[real] = beside if os.path.realpath(beside) == real else path
            continue
        above = (each for each in Path(path).parents if os.path.realpath(each) == str(top))
        reached = next(above, None)
        inside = path if reached is None else os.path.relpath(path, reached)
        linked.setdefault(real, set()).add(os.path.normpath(dirname / inside))
    found = [spelled for real, spelled in plain.items() if real not in linked]
    return sorted({*found, *(path for paths in linked.values() for path in paths)})


def digests_of(names: Iterable[str], dirname: Path, digests: DigestCache) -> dict[str, str]:
    """Return the current digests of files, and the current answers to lookups, by name."""
    found = {}
    for name in names:
        if lookup_of(name) is not None:
            found[name] = _answer(name, dirname)
            continue
        try:
            found[name] = digests.file(place_of(name, dirname))
        except OSError:
            found[name] = NOTHING
    return found


def _named_lookup(name: str, loaded: LoadedRecipe, home: Home) -> str | None:
    """Return a lookup's name relative to the recipe's folder; None for one that says nothing about
    the model: of convkit's home, or of a file that is part of the model's identity.
    """
    what, subject = lookup_of(name) or ("variable", name)
    if what in WITHOUT_PATH or not os.path.isabs(subject):  # noqa: PTH117 - as above
        return name  # no path: a program's name
    if _in_home(Path(subject), home) or is_own_output(subject):
        return None
    if what in ("exists", "modified") and _in_source(subject, loaded):
        return None
    return lookup_name(what, _name(subject, loaded.dirname))


def _answer(name: str, dirname: Path) -> str:
    """Return today's answer to a lookup that is named relative to the recipe's folder."""
    what, subject = lookup_of(name) or ("variable", name)
    if what not in (*WITHOUT_PATH, *UNANSWERED):
        subject = str(place_of(subject, dirname))
    return answer(what, subject, passed_on(os.environ), _is_own)


def _is_own(path: str) -> bool:
    """Return whether a path is there, and changes, because convkit runs."""
    return is_home(path) or is_own_output(path)


def opened_in(ingredients: Mapping[str, str]) -> dict[str, str]:
    """Return the names and digests of the files among a stage's ingredients."""
    prefix = f"{OPENED}."
    return {
        name.removeprefix(prefix): digest
        for name, digest in ingredients.items()
        if name.startswith(prefix)
    }


def with_opened(facts: Facts, stage: Stage, files: Mapping[str, str]) -> Facts:
    """Return facts in which a stage reads these files."""
    return dataclasses.replace(facts, opened={**facts.opened, stage.id: dict(files)})


def _declared(stage: Stage, loaded: LoadedRecipe) -> tuple[str, ...]:
    """Return the names of the files that the recipe declares for a stage's model."""
    files = [name for model in _models_of(stage, loaded) for name in model.files]
    places = (os.path.normpath(loaded.dirname / name) for name in files)
    return tuple(_name(place, loaded.dirname) for place in places)


def _loads_model(stage: Stage, loaded: LoadedRecipe) -> bool:
    """Return True if a stage loads the model itself, not just derived artifacts."""
    if stage.kind in ("precision", "build") and stage.target is not None:
        return _recipe_of(stage, loaded).loads_model(stage.target, stage.kind)
    return stage.kind in ("export", "reference")


def _recipe_of(stage: Stage, loaded: LoadedRecipe) -> Recipe:
    """Return the recipe, or the part of it, that a stage belongs to."""
    recipe = loaded.recipe
    if stage.part is None or recipe.part_name is not None:
        return recipe
    return recipe.part(stage.part)


def _models_of(stage: Stage, loaded: LoadedRecipe) -> list[Model]:
    """Return the models that a stage's worker loads."""
    recipe = _recipe_of(stage, loaded)
    if stage.kind != "reference":
        return [recipe.model]
    if not recipe.parts:
        return [recipe.reference_model]
    whole = [recipe.original] if recipe.original is not None else []
    return [*whole, *(part.original or part.model for part in recipe.parts.values())]


def _memory(stage: Stage, loaded: LoadedRecipe, facts: Facts, store: Path) -> Path | None:
    if not _loads_model(stage, loaded):
        return None
    models = [encode(model.model_dump(mode="json")) for model in _models_of(stage, loaded)]
    facts = facts.parts.get(stage.part or "", facts)
    identity = facts.original if stage.kind == "reference" else facts.source
    base = digest_json([stage.kind, stage.runtime, *models, identity])
    return store / "opened" / f"{base}.json"


def _in_home(path: Path, home: Home) -> bool:
    """Return True if a file belongs to convkit. The kernel reports mapped files with links
    resolved, but a home or its packages may be reached through links.
    """
    packages = (home.root / "packages").resolve()
    return any(path.is_relative_to(top) for top in (home.root, home.root.resolve(), packages))


def _in_source(path: str, loaded: LoadedRecipe) -> bool:
    """Return True if a file is already part of the identity of the recipe's models."""
    return any(
        _is_of(path, model, loaded.dirname)
        for recipe in (loaded.recipe, *loaded.recipe.graphs)
        for model in (recipe.model, recipe.reference_model)
    )


def _is_of(path: str, model: Model, dirname: Path) -> bool:
    if model.factory is not None:
        return path == os.path.normpath(dirname / model.factory.call.rpartition(":")[0])
    if model.path is not None:
        return Path(path).is_relative_to(os.path.normpath(dirname / model.path))
    return model.file is not None and path == os.path.normpath(dirname / model.file)


def _caches() -> dict[str, Path]:
    """Return the folders whose contents mean the same on every machine, by symbolic name."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hub = Path(os.environ.get("HF_HOME") or user / "huggingface") / "hub"
    return {
        "hf:": Path(os.environ.get("HF_HUB_CACHE") or hub),
        "torch:": Path(os.environ.get("TORCH_HOME") or user / "torch") / "hub",
        "cache:": user,
        "config:": Path.home() / ".config",
    }


def _name(path: str, dirname: Path) -> str:
    for prefix, folder in _caches().items():
        if Path(path).is_relative_to(folder):
            return prefix + Path(path).relative_to(folder).as_posix()
    return Path(os.path.relpath(path, dirname)).as_posix()


def place_of(name: str, dirname: Path) -> Path:
    """Return the path of a file that is named relative to the recipe's folder or to a cache."""
    for prefix, folder in _caches().items():
        if name.startswith(prefix):
            return folder / name.removeprefix(prefix)
    return Path(os.path.normpath(dirname / name))
