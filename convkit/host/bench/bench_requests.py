"""What a benchmark asks its workers to do."""

from collections.abc import Mapping
from pathlib import Path

from convkit.host.home import Home
from convkit.host.plan.custom_operator_requests import custom_ops_of
from convkit.host.plan.stage_requests import joined_originals, reference_source
from convkit.host.plan.tensor_requests import contract_of, samples_of
from convkit.host.processes.request_locations import Locations
from convkit.host.recipe.keys.bench import Bench
from convkit.host.recipe.keys.recipe import Axis, Recipe, part_target
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    PROTOCOL,
    BenchJoinedRequest,
    BenchOriginalRequest,
    BenchRequest,
    BenchSize,
    BuiltPart,
    Envelope,
)
from convkit.protocol.runtimes.runtime_registry import package_folder, runtimes


def sizes_of(recipe: Recipe, settings: Bench) -> tuple[BenchSize, ...]:
    """Return the sizes to measure, without repetitions. A part lacks some of the recipe's axes."""
    found: dict[str, BenchSize] = {}
    for chosen in settings.sizes:
        given: dict[str, int] = chosen if isinstance(chosen, dict) else {}
        moment = chosen if isinstance(chosen, str) else "typical"
        axes = {
            name: {"smallest": axis.min, "typical": axis.typical, "largest": axis.max}[moment]
            for name, axis in recipe.axes.items()
            if isinstance(axis, Axis)
        }
        axes |= {name: size for name, size in given.items() if name in axes}
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
        source=reference_source(recipe, places),
        contract=contract_of(recipe),
        samples=samples_of(recipe, places.file),
        seed=recipe.verify.seed,
        sizes=sizes,
        address=address,
        threads=threads,
        graphs=dict(graphs),
        joined=joined_originals(recipe, places),
    )
    return Envelope(
        PROTOCOL,
        "bench-original",
        str(output),
        encode(request),
        threads=threads,
        custom_ops=custom_ops_of(recipe, places),
    )


def target_envelope(
    loaded: LoadedRecipe,
    home: Home,
    name: str,
    output: Path,
    built: Path,
    inputs: Path,
    sizes: tuple[BenchSize, ...],
    address: str,
    threads: int,
) -> Envelope:
    """Return the order to time a target's built files."""
    recipe = loaded.recipe
    custom_ops = custom_ops_of(recipe, Locations(loaded, home, {}, ()))
    if recipe.parts:
        joined = _joined_request(recipe, name, built, inputs, sizes, address)
        return Envelope(
            PROTOCOL,
            "bench-joined",
            str(output),
            encode(joined),
            threads=threads,
            custom_ops=custom_ops,
        )
    request = _graph_request(recipe, name, built, inputs, sizes, address)
    runtime = runtimes()[recipe.targets[name].runtime]
    outside = package_folder(runtime)
    return Envelope(
        PROTOCOL,
        "bench",
        str(output),
        encode(request),
        runtime=runtime.package,
        runtime_folder=str(outside) if outside is not None else None,
        threads=threads,
        custom_ops=custom_ops,
    )


def _graph_request(
    recipe: Recipe, name: str, built: Path, inputs: Path, sizes: tuple[BenchSize, ...], address: str
) -> BenchRequest[object]:
    target = recipe.targets[name]
    return BenchRequest(
        contract=contract_of(recipe),
        options=target.options(),
        device=target.device,
        built=str(built),
        inputs=str(inputs),
        sizes=sizes,
        address=address,
        target=name,
    )


def _joined_request(
    recipe: Recipe, name: str, built: Path, inputs: Path, sizes: tuple[BenchSize, ...], address: str
) -> BenchJoinedRequest:
    parts = []
    for part in recipe.graphs:
        share = part_target(name, str(part.part_name))
        folder = built / str(part.part_name)
        request = _graph_request(part, share, folder, inputs, sizes, address)
        runtime = runtimes()[part.targets[share].runtime]
        parts.append(BuiltPart(str(part.part_name), runtime.package, encode(request)))
    return BenchJoinedRequest(
        contract=contract_of(recipe),
        flow=recipe.flow,
        parts=tuple(parts),
        inputs=str(inputs),
        sizes=sizes,
        address=address,
        target=name,
    )
