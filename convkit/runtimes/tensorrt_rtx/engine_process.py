"""Builds an engine in a process of its own. The program imports nothing but the library, and is
started by `build_apart`.

The builder orders tensors by their addresses, so engines of one graph differ from build to build of
one process, and from process to process: Linux puts each process's memory elsewhere. Here it is in
the same place each time, and holds the same, so the engine has the same bytes. The builder may also
end its process, which fails the target only.
"""

import ctypes
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType

    import tensorrt as trt

# personality(2): this flag leaves addresses as they are, and all bits set ask for what is set.
_ADDR_NO_RANDOMIZE = 0x0040000
_ASK = 0xFFFFFFFF
_KIB = 1024  # getrusage counts in these on Linux
# What the two processes leave for each other.
_WISH, _ANSWER, _PLAN = "wish.json", "answer.json", "plan"

# The least, typical and largest shape of each input.
Profile = Mapping[str, Sequence[Sequence[int]]]


@dataclasses.dataclass(frozen=True)
class Wish:
    """What an engine is built from, and for; `capabilities` are the library's own names."""

    graph: str
    profiles: Sequence[Profile]
    capabilities: Sequence[str]
    tf32: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """A serialized engine; None if the builder made none, and `errors` say why."""

    plan: bytes | None
    errors: Sequence[str]
    seconds: float
    peak_bytes: int


def build_apart(wish: Wish) -> Plan:
    """Build an engine in a new process."""
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        asked = Path(folder) / _WISH
        asked.write_text(json.dumps([sys.path, dataclasses.asdict(wish)]), encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, "-s", "-P", __file__, folder],
            cwd=Path(wish.graph).parent,
            # glibc gives threads memory of their own otherwise, in the order in which they ask.
            env={**os.environ, "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "1"},
            capture_output=True,
            check=False,
        )
        answer, made = Path(folder) / _ANSWER, Path(folder) / _PLAN
        if not answer.exists():  # the builder, or this program, ended it
            said = ended.stderr.decode("utf-8", errors="replace").strip().splitlines()[-1:]
            code = ended.returncode
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return Plan(None, [*said, f"the builder's process ended ({how})"], 0.0, 0)
        errors, seconds, peak = json.loads(answer.read_text(encoding="utf-8"))
        return Plan(made.read_bytes() if made.exists() else None, errors, seconds, peak)


def _serve(folder: Path) -> None:
    """Build what is asked for in a folder, and leave the answer there."""
    paths, fields = json.loads((folder / _WISH).read_text(encoding="utf-8"))
    sys.path[:] = paths
    import tensorrt_rtx_bindings

    errors: list[str] = []
    plan, seconds = _built(cast("ModuleType", tensorrt_rtx_bindings), Wish(**fields), errors)
    if plan is not None:
        (folder / _PLAN).write_bytes(plan)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    (folder / _ANSWER).write_text(json.dumps([errors, seconds, peak]), encoding="utf-8")


def _fix_addresses() -> None:
    """Start this program again where addresses are not randomized, if the system allows it, and on
    one processor: the builder's threads allocate in turns there.
    """
    if not sys.platform.startswith("linux"):
        return
    system = ctypes.CDLL(None)
    if system.personality(_ASK) & _ADDR_NO_RANDOMIZE:
        return
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(usable)})
    system.personality(system.personality(_ASK) | _ADDR_NO_RANDOMIZE)
    if system.personality(_ASK) & _ADDR_NO_RANDOMIZE:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - itself


def _built(api: "ModuleType", wish: Wish, errors: list[str]) -> tuple[bytes | None, float]:
    """Return the plan and the seconds that the builder took; it tells its errors meanwhile."""
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = api
    levels = trt.ILogger.Severity

    class Keeping(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind11 requires calling the base's own constructor

        def log(self, severity: "trt.ILogger.Severity", msg: str) -> None:
            if severity in (levels.INTERNAL_ERROR, levels.ERROR):
                errors.append(msg)

    logger = Keeping()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    # A name whose length is the same wherever the file is.
    if not parser.parse_from_file(Path(wish.graph).name):
        return None, 0.0
    errors.clear()
    config = _configured(api, builder, wish)
    start = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    return (None if plan is None else bytes(plan)), time.perf_counter() - start


def _configured(library: "ModuleType", builder: "trt.Builder", wish: Wish) -> "trt.IBuilderConfig":
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = library
    config = builder.create_builder_config()
    assert config is not None
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if not wish.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)  # on by default
    if wish.capabilities:
        _name_capabilities(library, config, wish.capabilities)
    for sizes in wish.profiles:
        profile = builder.create_optimization_profile()
        for name, (least, typical, most) in sizes.items():
            profile.set_shape(name, least, typical, most)
        if config.add_optimization_profile(profile) < 0:
            raise ValueError(f"TensorRT-RTX refuses the optimization profile {sizes}")
    return config


def _name_capabilities(library: "ModuleType", config: object, names: Sequence[str]) -> None:
    """Set the compute capabilities, which only this library's configuration has."""
    config.num_compute_capabilities = len(names)  # type: ignore[attr-defined]
    for index, name in enumerate(names):
        member = library.ComputeCapability.__members__[name]
        if not config.set_compute_capability(member, index):  # type: ignore[attr-defined]
            raise ValueError(f"TensorRT-RTX does not take the compute capability {name}")


if __name__ == "__main__":
    _fix_addresses()
    _serve(Path(sys.argv[1]))
