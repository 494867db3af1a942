"""Findings about an environment's versions, before anything runs in it."""

from convkit.host.toolchain.versions.stage_requirements import CONVKIT_DEFAULT, EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.findings.finding import Finding, Place, Remedy


def version_findings(resolution: Resolution, spec: EnvironmentSpec) -> list[Finding]:
    """Return a warning (V105) for each release that its maintainers withdrew. Queries no index."""
    return [
        _yanked(name, resolution.packages[name], reason, spec.origin(name))
        for name, reason in sorted(resolution.yanked.items())
        if name in resolution.packages
    ]


def _yanked(name: str, version: str, reason: str, origin: str | None) -> Finding:
    evidence = {"package": name, "version": version, "reason": reason, "origin": origin}
    if origin is None:
        how = (
            f"{name} is a dependency of another tool. Add tools.{name} with a release that was not"
            " yanked."
        )
    elif origin == CONVKIT_DEFAULT:
        how = f"Pin a release that was not yanked under tools.{name}."
    else:
        how = f"Pin a release that was not yanked at {origin}."
    message = f"{name} {version} was yanked from the index: {reason}"
    return Finding("V105", message, Place(), evidence, Remedy(how))
