"""The digests of the code that stages run, and of convkit itself, which a store remembers."""

import functools
from pathlib import Path

from convkit.host.facts.convkit_code import own_code_digest
from convkit.host.plan.code_of_jobs import code_digest, package_folder
from convkit.host.plan.stages import Stage
from convkit.host.store.digests import digest_json
from convkit.host.store.remembered_code_digests import KnownCode
from convkit.protocol.errors import UsageError
from convkit.protocol.installation import PACKAGE
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.runtimes.runtime_registry import runtimes


@functools.cache
def code_digests(store: Path) -> "CodeDigests":
    """Return the digests of code as the store in this folder remembers them."""
    return CodeDigests(store)


class CodeDigests:
    """Digests of code, from a store's memory while no file has changed."""

    def __init__(self, store: Path) -> None:
        self._folder = store / "code"
        self._known: dict[str, KnownCode] = {}

    def own(self) -> str:
        """Return the digest of convkit's own files."""
        return self._of("convkit").digest("own", own_code_digest)

    def stage(self, stage: Stage) -> str:
        """Return the digest of the code that runs in a stage, including its runtime's."""
        job = JOBS[stage.kind]
        if stage.joins:
            assert job.module is not None
            return digest_json([self._modules([job.module]), *map(self.stage, stage.joins)])
        runtime = runtimes()[stage.runtime] if stage.runtime is not None else None
        module = job.module_for(runtime)
        if module is None:
            raise UsageError(f"the runtime {stage.runtime} has no {stage.kind} stage")
        if runtime is None:
            return self._modules([module])
        options = runtime.full_name(runtime.options.partition(":")[0])
        package = runtime.package.partition(".")[0]
        return self._modules([module, runtime.package, options], package)

    def remember(self) -> None:
        """Write digests that were computed since."""
        for known in self._known.values():
            known.remember()

    def _modules(self, modules: list[str], package: str = "convkit") -> str:
        compute = functools.partial(code_digest, modules, package)
        return self._of(package).digest(" ".join(modules), compute)

    def _of(self, package: str) -> KnownCode:
        if package not in self._known:
            folders = [PACKAGE, package_folder(package)]
            self._known[package] = KnownCode(self._folder, tuple(dict.fromkeys(folders)))
        return self._known[package]
