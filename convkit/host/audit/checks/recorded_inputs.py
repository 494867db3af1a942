"""What a past run recorded for rebuilding it."""

from pathlib import Path

from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.facts.observed_files import digests_of
from convkit.host.facts.planning_facts import ResolvedFacts
from convkit.host.home import Home
from convkit.host.plan.stages import Stage
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_folder import stage_file
from convkit.host.run.run_materials import materials_of
from convkit.host.store.digests import DigestCache
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import Resolution, read_pins
from convkit.protocol.errors import UsageError


def recorded_recipe(record: RunRecord, beside: Path | None) -> LoadedRecipe:
    """Return a run's recipe as recorded, with its files expected in `beside` or at their original
    location.

    Raises UsageError if that folder is missing, RecipeError if files named in the recipe are.
    """
    folder = beside or Path(record.recipe_folder or Path(record.recipe_file).parent)
    if not folder.is_dir():
        raise UsageError(
            f"the recipe's folder {folder} is gone; name a folder that has its files: --files DIR"
        )
    return parse_recipe(record.recipe_text, folder / Path(record.recipe_file).name)


def recipe_path(record: RunRecord) -> Path:
    """Return the path of a run's recipe when it ran; the file may have moved since."""
    folder = Path(record.recipe_folder or Path(record.recipe_file).absolute().parent)
    return folder / Path(record.recipe_file).name


def recorded_resolutions(
    folder: Path, stages: tuple[Stage, ...]
) -> dict[EnvironmentSpec, Resolution]:
    """Return the exact versions of each stage's environment, from the locks in the run's folder."""
    found = {}
    for stage in stages:
        try:
            text = (folder / "locks" / f"{stage_file(stage.id)}.txt").read_text(encoding="utf-8")
        except OSError:
            continue
        resolution = read_pins(text, stage.environment.python, "run")
        if resolution is not None:
            found[stage.environment] = resolution
    return found


def changed_sources(
    folder: Path, loaded: LoadedRecipe, surroundings: ResolvedFacts, home: Home
) -> tuple[str, ...]:
    """Return the inputs of a run that have changed since: the model's files, samples, texts, each
    with both digests.
    """
    provenance, _ = readable_provenance(folder)
    if provenance is None:
        return ()
    before = {(item.kind, item.name): item.digest for item in provenance.dependencies}
    found = materials_of(loaded, surroundings, home).dependencies
    listed = {(item.kind, item.name) for item in found}
    # Files that the run was observed to read, which this home may not have recorded.
    names = [name for kind, name in before if kind == "file" and (kind, name) not in listed]
    digests = digests_of(names, loaded.dirname, DigestCache(home.store / "digests"))
    now = (
        *found,
        *(Dependency(name, "file", digest={"sha256": sha256}) for name, sha256 in digests.items()),
    )
    changed = []
    for item in now:
        digest = before.get((item.kind, item.name), {})
        for algorithm, value in item.digest.items():
            if digest.get(algorithm, value) != value:
                changed.append(
                    f"{item.kind} {item.name}: {algorithm} {digest[algorithm][:12]}, now"
                    f" {value[:12]}"
                )
    return tuple(changed)


def changed_surroundings(before: RunRecord, after: RunRecord) -> tuple[str, ...]:
    """Return the tools and platform properties that differ between two runs of one recipe."""
    changes = []
    versions = {stage.id: stage.versions for stage in after.stages}
    for stage in before.stages:
        now = versions.get(stage.id, {})
        for name, version in sorted(stage.versions.items()):
            if now.get(name) not in (None, version):
                changes.append(f"{name} {version}, now {now[name]} ({stage.id})")
    if before.convkit != after.convkit:
        changes.append(f"convkit {before.convkit}, now {after.convkit}")
    parts = sorted({*before.host, *after.host} - {"tools"})
    changes += [
        f"{name} {before.host.get(name)}, now {after.host.get(name)}"
        for name in parts
        if before.host.get(name) != after.host.get(name)
    ]
    return tuple(dict.fromkeys(changes))
