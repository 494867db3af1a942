"""What a benchmark asks its workers to do."""

from collections.abc import Mapping
from pathlib import Path

from convkit.codec import encode
from convkit.execute.locations import Locations
from convkit.home import Home
from convkit.plan.requests import contract_of, samples_of, source_of
from convkit.recipe.bench import Bench
from convkit.recipe.loading import LoadedRecipe
from convkit.recipe.models import Axis, Recipe
from convkit.runtimes.registry import package_folder, runtimes
from convkit.worker.protocol import (
    PROTOCOL,
    BenchOriginalRequest,
    BenchRequest,
    BenchSize,
    Envelope,
)


def sizes_of(recipe: Recipe, settings: Bench) -> tuple[BenchSize, ...]:
    """Return the sizes to measure, without repetitions."""
    found: dict[str, BenchSize] = {}
    for chosen in settings.sizes:
        given: dict[str, int] = chosen if isinstance(chosen, dict) else {}
        moment = chosen if isinstance(chosen, str) else "typical"
        axes = {
            name: {"smallest": axis.min, "typical": axis.typical, "largest": axis.max}[moment]
            for name, axis in recipe.axes.items()
            if isinstance(axis, Axis)
        } | given
        name = ",".join(f"{axis}={size}" for axis, size in given.items()) or moment
        found.setdefault(str(sorted(axes.items())), BenchSize(name, axes))
    return tuple(found.values())


def original_envelope(
    loaded: LoadedRecipe,
    home: Home,
    output: Path,
    sizes: tuple[BenchSize, ...],
    address: str,
    threads: int,
    graphs: Mapping[str, str],
) -> Envelope:
    """Return the order to time the original."""
    recipe = loaded.recipe
    places = Locations(loaded, home, {}, ())
    request = BenchOriginalRequest(
        source=source_of(recipe.reference_model, places),
        contract=contract_of(recipe),
        samples=samples_of(recipe, places.file),
        seed=recipe.verify.seed,
        sizes=sizes,
        address=address,
        threads=threads,
        graphs=dict(graphs),
    )
    return Envelope(PROTOCOL, "bench-original", str(output), encode(request), threads=threads)


def target_envelope(
    loaded: LoadedRecipe,
    name: str,
    output: Path,
    built: Path,
    inputs: Path,
    sizes: tuple[BenchSize, ...],
    address: str,
    threads: int,
) -> Envelope:
    """Return the order to time a target's built files."""
    target = loaded.recipe.targets[name]
    request: BenchRequest[object] = BenchRequest(
        contract=contract_of(loaded.recipe),
        options=target.options(),
        device=target.device,
        built=str(built),
        inputs=str(inputs),
        sizes=sizes,
        address=address,
        target=name,
    )
    runtime = runtimes()[target.runtime]
    outside = package_folder(runtime)
    return Envelope(
        PROTOCOL,
        "bench",
        str(output),
        encode(request),
        runtime=runtime.package,
        runtime_folder=str(outside) if outside is not None else None,
        threads=threads,
    )
