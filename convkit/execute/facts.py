"""Gathers what planning must know of the world: digests of what the recipe names, resolved tools,
this machine.
"""

import contextlib
import dataclasses
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, assert_never

from convkit.errors import ToolchainError
from convkit.execute.opened_files import remembered_files
from convkit.execute.tools import Resolver
from convkit.home import Home
from convkit.plan.imported_code import code_digest
from convkit.plan.stages import Facts, Stage, calibration_file
from convkit.recipe.loading import LoadedRecipe
from convkit.recipe.models import File, Model, PackageModel
from convkit.store.digests import DigestCache, digest_json
from convkit.store.external_files import external_files
from convkit.toolchain.host import host_packages
from convkit.toolchain.packages import fetch_package, pinned_package
from convkit.toolchain.requirements import EnvironmentSpec
from convkit.toolchain.resolution import Resolution
from convkit.worker.jobs import JOBS
from convkit.worker.protocol import JobKind

ToolchainKind = Literal["isolated", "host"]

# Instruction sets that change float results or kernels (onnxruntime's MLAS picks by them).
_PROCESSOR_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "i8mm",
    "bf16",
)


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Facts, and what they were read from: needed again to make requests."""

    facts: Facts
    texts: tuple[str, ...]
    resolutions: Mapping[EnvironmentSpec, Resolution]


def gather(
    loaded: LoadedRecipe,
    stages: Iterable[Stage],
    home: Home,
    toolchain: ToolchainKind,
    tools: Resolver,
    *,
    fetch: bool = False,
) -> Surroundings:
    """Return the facts for a recipe's stages; `tools` gives the isolated environments' versions.

    With `fetch`, packages that carry a model are fetched, or mended, so that they can be told from
    others.
    """
    digests = DigestCache(home.store / "digests")
    resolutions: dict[EnvironmentSpec, Resolution] = {}
    packages: dict[EnvironmentSpec, Mapping[str, str]] = {}
    for spec in dict.fromkeys(stage.environment for stage in stages):
        if toolchain == "host":
            packages[spec] = host_packages(spec) | {"python": platform.python_version()}
            continue
        resolution = tools(spec)
        if resolution is not None:
            resolutions[spec] = resolution
            packages[spec] = resolution.packages
    texts = loaded.recipe.verify.texts
    facts = Facts(
        source=_source_identity(loaded.recipe.model, loaded.dirname, digests, home, fetch=fetch),
        original=_source_identity(
            loaded.recipe.reference_model, loaded.dirname, digests, home, fetch=fetch
        ),
        files=_file_digests(loaded, digests),
        packages=packages,
        worker_code=worker_code_digests(),
        platform=f"{platform.system()}-{platform.machine()}".lower(),
        processor=processor(),
        toolchain=toolchain,
    )
    facts = dataclasses.replace(
        facts,
        opened={
            stage.id: found
            for stage in stages
            if (found := remembered_files(stage, loaded, facts, home.store))
        },
    )
    return Surroundings(facts, _read_texts(loaded.dirname / texts) if texts else (), resolutions)


def _source_identity(
    model: Model, dirname: Path, digests: DigestCache, home: Home, *, fetch: bool
) -> str:
    """Return what identifies a model by content; pinned sources are identified by their pins."""
    if model.path is not None:
        return digests.tree(dirname / model.path)
    if model.onnx is not None:
        return _onnx_identity(dirname / model.onnx, digests)
    if model.factory is not None:
        return digests.file(dirname / model.factory.call.rpartition(":")[0])
    if model.package is not None:
        return _package_identity(model.package, home, fetch=fetch)
    return "pinned by the recipe"


def _package_identity(package: PackageModel, home: Home, *, fetch: bool) -> str:
    """Return the digest of a package's files; what is not known matches no stage's key."""
    known = pinned_package(package.name, package.version, home.root)
    if known is None and fetch:
        # Where that fails, the stage that needs the model says why.
        with contextlib.suppress(ToolchainError):
            fetch_package(package.name, package.version, home.root)
        known = pinned_package(package.name, package.version, home.root)
    return known or "not fetched, or changed since"


def _onnx_identity(path: Path, digests: DigestCache) -> str:
    """Digest an ONNX file and the files that its weights lie in."""
    files = [path, *external_files(path)]
    return digest_json(
        {file.relative_to(path.parent).as_posix(): digests.file(file) for file in files}
    )


def _file_digests(loaded: LoadedRecipe, digests: DigestCache) -> dict[str, str]:
    recipe = loaded.recipe
    named = [tensor.sample.file for tensor in recipe.inputs if isinstance(tensor.sample, File)]
    named += [recipe.verify.texts] if recipe.verify.texts else []
    named += [
        file for target in recipe.targets.values() if (file := calibration_file(target)) is not None
    ]
    return {name: digests.file(loaded.dirname / name) for name in named}


def _read_texts(path: Path) -> tuple[str, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def worker_code_digests() -> dict[JobKind, str]:
    """Return the digest of convkit's own code that runs in each job."""
    return {kind: code_digest([job.module]) for kind, job in JOBS.items()}


def processor() -> str:
    """Return the processor's model and the instruction sets that change numerical results."""
    match sys.platform:
        case "linux":
            return _linux_processor(Path("/proc/cpuinfo"))
        case _:
            return platform.processor() or platform.machine()


def _linux_processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return platform.machine()
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    name = fields.get("model name", platform.machine())
    return " ".join([name, *(flag for flag in _PROCESSOR_FLAGS if flag in flags)])


def describe_host(kind: ToolchainKind) -> dict[str, str]:
    """Return what a run's record says of the machine."""
    match kind:
        case "isolated":
            tools = "isolated environments"
        case "host":
            tools = f"the current environment ({sys.prefix})"
        case _:
            assert_never(kind)
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": processor(),
        "python": platform.python_version(),
        "tools": tools,
    }
