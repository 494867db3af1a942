"""The packages that a model's own code needs beside torch: found from its imports, and pinned to
releases that fit the other tools.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from convkit.host.draft.declared_releases import declared_releases
from convkit.host.draft.imported_modules import ModuleImport, needed_modules
from convkit.host.draft.package_names import (
    USUALLY_OWN,
    installed_version,
    is_guessed,
    package_of,
    source_folder,
)
from convkit.host.draft.recipe_lines import TOOLS
from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.toolchain.versions.stage_requirements import (
    NEEDS,
    EnvironmentSpec,
    runtime_packages,
)
from convkit.host.toolchain.versions.uv_commands import Failure, attempt_uv
from convkit.host.toolchain.versions.version_resolution import (
    Resolution,
    remember,
    resolve,
    resolved,
)
from convkit.protocol.errors import ToolchainError, UsageError

# What every environment of a torch model has.
_ALWAYS = frozenset(NEEDS["export torch"])
_ANY = ">=0"


@dataclasses.dataclass(frozen=True)
class ModelTool:
    """A package under `tools`: the releases to use (empty: the draft's usual ones), and who needs
    it.
    """

    specifier: str
    why: str


Tools = dict[str, ModelTool]
SpecWith = Callable[[Mapping[str, ModelTool]], EnvironmentSpec]


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """A package as the user or an import asks for it."""

    requirement: Requirement
    place: ModuleImport | None = None
    declared_in: str = ""

    @property
    def name(self) -> str:
        """The package's name, with its extras."""
        extras = f"[{','.join(sorted(self.requirement.extras))}]" if self.requirement.extras else ""
        return f"{canonicalize_name(self.requirement.name)}{extras}"

    @property
    def may_be_left_out(self) -> bool:
        return self.place is not None and self.place.conditional

    @property
    def why(self) -> str:
        """Who needs it, as a clause."""
        if self.place is None:
            return "named by --with"
        declared = f", {self.declared_in}" if self.declared_in else ""
        return f"imported in {self.place.file.name}:{self.place.line}{declared}"


def find_model_tools(
    calls: Sequence[tuple[Path, str]],
    asked: Sequence[str],
    spec_with: SpecWith,
    home: Path,
    toolchain: ToolchainKind,
    progress: Callable[[str], None],
) -> Tools:
    """Return the packages that callables (file and name) need besides torch, with those that the
    user `asked` for (`PACKAGE==VERSION`). `spec_with` returns the environment that has such tools;
    releases that were found are kept in `home`.

    Raises UsageError if a package cannot be had, with the import's place and the fix, and
    ToolchainError if the index cannot be reached.
    """
    wanted = {each.name: each for each in map(_asked, asked)}
    bare = {str(canonicalize_name(each.requirement.name)) for each in wanted.values()}
    imports = [found for file, name in calls for found in needed_modules(file, [name])]
    spare = len([name for name in bare if name not in {package_of(i.root) for i in imports}])
    unknown: list[ModuleImport] = []
    for found in imports:
        package = package_of(found.root)
        if package in bare or package in _ALWAYS or package in wanted:
            continue
        if found.conditional and package in runtime_packages():
            continue
        if is_guessed(found.root) and found.root in USUALLY_OWN:
            unknown.append(found)
            continue
        wanted[package] = _Wanted(Requirement(package), found)
    # A package that no import names by convention provides what is not known otherwise.
    required = [found for found in unknown if not found.conditional]
    if required and not spare:
        raise UsageError("\n".join(map(_own_module_wanted, required)))
    usual = {name: ModelTool("", each.why) for name, each in wanted.items() if _is_usual(each)}
    wanted = {name: each for name, each in wanted.items() if name not in usual}
    if toolchain == "host":
        return usual | _from_host(wanted)
    if not wanted:
        return usual

    def found_on_index(wanted: Mapping[str, _Wanted]) -> Tools:
        return _from_index(
            wanted, lambda tools: spec_with({**usual, **tools}), home, progress, spare=spare
        )

    declared = _as_declared(wanted)
    try:
        return usual | found_on_index(declared)
    except (ToolchainError, UsageError) as error:
        if declared == wanted:
            raise
        files = {each.declared_in for each in declared.values() if each.declared_in}
        progress(
            f"the releases in {' and '.join(sorted(files))} do not fit the other tools, so others"
            f" are chosen: {str(error).splitlines()[0]}"
        )
    return usual | found_on_index(wanted)


def _as_declared(wanted: Mapping[str, _Wanted]) -> dict[str, _Wanted]:
    """Return packages in the releases that the project of the code that imports them declares."""
    return {name: _declared(each) for name, each in wanted.items()}


def _declared(wanted: _Wanted) -> _Wanted:
    released = declared_releases(wanted.place.file) if wanted.place is not None else {}
    release = released.get(canonicalize_name(wanted.requirement.name))
    if release is None or wanted.requirement.specifier:
        return wanted
    requirement = Requirement(f"{wanted.requirement}{release.specifier}")
    return dataclasses.replace(wanted, requirement=requirement, declared_in=release.file)


def _is_usual(wanted: _Wanted) -> bool:
    """Return True for a package whose releases drafts choose by themselves."""
    return wanted.name in TOOLS and not wanted.requirement.specifier


def _asked(text: str) -> _Wanted:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(
            f"--with {text}: write a package by its name on the index, such as einops or"
            f" timm==1.0.20 ({error})"
        ) from error
    if requirement.url is not None or requirement.marker is not None:
        raise UsageError(
            f"--with {text}: write a package's name and releases only, such as timm==1.0.20; a"
            " recipe's tools come from an index, or from a folder of wheels in UV_FIND_LINKS"
        )
    return _Wanted(requirement)


def _from_host(wanted: Mapping[str, _Wanted]) -> Tools:
    """Return the packages in their installed releases; raises UsageError that lists the missing."""
    found, faults = {}, []
    for name, each in wanted.items():
        version = installed_version(each.requirement.name)
        if version is None and each.may_be_left_out:
            continue
        if version is None or not each.requirement.specifier.contains(version, prereleases=True):
            have = f"has {version}" if version is not None else f"has no package {name}"
            faults.append(
                f"{_needs(each)}, but this environment {have}. Install it here (pip install"
                f" '{each.requirement}'), or leave --toolchain host out: then convkit installs it"
                " in an environment of its own"
            )
            continue
        local = source_folder(each.requirement.name)
        origin = "" if local is None else f"; installed from {local}, with --toolchain host only"
        found[name] = ModelTool(_pin(version), each.why + origin)
    if faults:
        raise UsageError("\n".join(faults))
    return found


def _from_index(
    wanted: Mapping[str, _Wanted],
    spec_with: SpecWith,
    home: Path,
    progress: Callable[[str], None],
    *,
    spare: int,
) -> Tools:
    """Return the packages in releases that fit the environment of the model."""
    kept = dict(wanted)
    if _known_releases(kept, spec_with, home) is None:
        progress("finding the packages that the model's code imports")
        kept = _obtainable(wanted, spec_with({}).python, spare=spare)
    while True:
        try:
            tools = _known_releases(kept, spec_with, home) or _releases(kept, spec_with, home)
            break
        except ToolchainError as error:
            certain = {name: each for name, each in kept.items() if not each.may_be_left_out}
            if len(certain) == len(kept):
                raise ToolchainError(
                    f"{_and(kept.values())}: {error}\nThere is no recipe yet: choose other releases"
                    " with --with PACKAGE==VERSION, of torch too (--with 'torch==2.12.*')."
                ) from error
            kept = certain
    needs = [f"{name} {tool.specifier.lstrip('=')} ({tool.why})" for name, tool in tools.items()]
    progress(f"the model's code needs {', '.join(needs)}")
    return tools


def _known_releases(wanted: Mapping[str, _Wanted], spec_with: SpecWith, home: Path) -> Tools | None:
    """Return the releases that were found earlier, for this or another model; None if none were."""
    for tools in _candidates(wanted):
        if (resolution := resolved(spec_with(tools), home)) is not None:
            return _pinned(wanted, resolution, spec_with, home)
    return None


def _releases(wanted: Mapping[str, _Wanted], spec_with: SpecWith, home: Path) -> Tools:
    """Return releases that fit the model's other tools: installed ones if they do. Raises
    ToolchainError.
    """
    *first, last = _candidates(wanted)
    for tools in first:
        with contextlib.suppress(ToolchainError):
            return _pinned(wanted, resolve(spec_with(tools), home), spec_with, home)
    return _pinned(wanted, resolve(spec_with(last), home), spec_with, home)


def _candidates(wanted: Mapping[str, _Wanted]) -> list[Tools]:
    """Return the releases to ask for: those that are installed here, then any."""
    any_release = {
        name: ModelTool(str(each.requirement.specifier) or _ANY, each.why)
        for name, each in wanted.items()
    }
    here = dict(any_release)
    for name, each in wanted.items():
        version = installed_version(each.requirement.name)
        if version is not None and not each.requirement.specifier:
            here[name] = ModelTool(_pin(version), each.why)
    return [any_release] if here == any_release else [here, any_release]


def _pinned(
    wanted: Mapping[str, _Wanted], resolution: Resolution, spec_with: SpecWith, home: Path
) -> Tools:
    """Return the exact releases of a resolution, which is then known for these, too."""
    tools = {}
    for name, each in wanted.items():
        version = resolution.packages[str(canonicalize_name(each.requirement.name))]
        tools[name] = ModelTool(_pin(version), each.why)
    remember(spec_with(tools), resolution, home)
    return tools


def _obtainable(wanted: Mapping[str, _Wanted], python: str, *, spare: int) -> dict[str, _Wanted]:
    """Return the packages without those that the index lacks and the model can do without.

    Raises UsageError for the others that it lacks. A package whose name was only guessed from an
    import must have a wheel: building one would run code that nobody chose.
    """
    missing: dict[str, _Wanted] = {}
    faults: list[str] = []
    for name, each in _unresolved(wanted, python).items():
        if each.may_be_left_out or (each.place is not None and spare):
            missing[name] = each
        elif each.place is not None and _answer({name: each}, python, build=True) is None:
            faults.append(
                f"{_needs(each)}, but the index has only the source of {name}, and building it runs"
                f" its code. If it is the package that you mean: --with {name}"
            )
        else:
            faults.append(_unavailable(each, name))
    for name, each in wanted.items():
        if name not in missing and each.place is not None and (url := source_folder(name)):
            faults.append(
                f"{_needs(each)}, which is installed here from {url}, not from an index. Pass the"
                " model by a file inside that project, whose modules convkit then finds, or use"
                " --toolchain host"
            )
    if faults:
        raise UsageError("\n".join(faults))
    return {name: each for name, each in wanted.items() if name not in missing}


def _unresolved(wanted: Mapping[str, _Wanted], python: str) -> dict[str, _Wanted]:
    """Return the packages that the index does not have, by bisection."""
    guessed = {name: each for name, each in wanted.items() if each.place is not None}
    named = {name: each for name, each in wanted.items() if each.place is None}
    return _lacking(guessed, python, build=False) | _lacking(named, python, build=True)


def _lacking(wanted: Mapping[str, _Wanted], python: str, *, build: bool) -> dict[str, _Wanted]:
    if not wanted or (failure := _answer(wanted, python, build=build)) is None:
        return {}
    if failure.kind not in ("no_versions", "other"):
        raise ToolchainError(
            f"{_and(wanted.values())}, which cannot be fetched: {failure.advice()} Or use"
            f" --toolchain host in an environment that has it.\n{failure.words}"
        )
    if len(wanted) == 1:
        return dict(wanted)
    items = list(wanted.items())
    half = len(items) // 2
    return _lacking(dict(items[:half]), python, build=build) | _lacking(
        dict(items[half:]), python, build=build
    )


def _answer(wanted: Mapping[str, _Wanted], python: str, *, build: bool) -> Failure | None:
    """Return why the index does not offer the packages, each for itself; None if it does."""
    options = [] if build else ["--no-build"]
    arguments = ["pip", "compile", "-", "--no-deps", "--python-version", python, *options]
    answer = attempt_uv(arguments, given="\n".join(str(e.requirement) for e in wanted.values()))
    return answer if isinstance(answer, Failure) else None


def _unavailable(each: _Wanted, name: str) -> str:
    if each.place is None:
        return (
            f"--with {each.requirement}: the index has no such release for this platform and"
            " Python. Write another, or name a folder with its wheel in UV_FIND_LINKS"
        )
    return (
        f"{_needs(each)}, but the index has no package {name}. If the package has a different name"
        f" there, add --with NAME. If {each.place.root} is your own code, put it beside"
        f" {each.place.file.name}, or into its project. If the model runs without it, import it"
        " in a try block that handles ImportError"
    )


def _own_module_wanted(found: ModuleImport) -> str:
    return (
        f"{_at(found)}: imports {found.module}, which is neither beside {found.file.name} nor in"
        f" the folders above it. It looks like a module of your own: pass the file where it can"
        f" import {found.root}. If it is a package of the index: --with {package_of(found.root)}"
    )


def _needs(each: _Wanted) -> str:
    if each.place is None:
        return f"--with {each.requirement} names a package"
    return f"{_at(each.place)}: imports {each.place.module}"


def _and(wanted: Iterable[_Wanted]) -> str:
    return "; ".join(map(_needs, wanted))


def _at(place: ModuleImport) -> str:
    try:
        shown = os.path.relpath(place.file)
    except ValueError:  # on another drive
        shown = str(place.file)
    return f"{place.file if shown.startswith('..') else shown}:{place.line}"


def _pin(version: str) -> str:
    """Return a specifier for a release, whoever built it."""
    return f"=={version.partition('+')[0]}"
