"""An onnxruntime target's models: built, opened and run with the target's provider."""

import dataclasses
import platform
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import BuildRequest, Device, Fallback
from convkit.runtimes.onnxruntime.options import LEVELS, OnnxRuntimeOptions, Optimization
from convkit.runtimes.onnxruntime.profile import fallbacks_in_profile, read_profile
from convkit.runtimes.onnxruntime.supported_operators import check_operators
from convkit.worker.graph.file_links import link_model
from convkit.worker.graph.graph_session import GraphSession, limit_threads
from convkit.worker.job_context import Context, StageFailedError, StageSkippedError
from convkit.worker.runtime_interface.distinct_operators import Operators
from convkit.worker.runtime_interface.registered_operators import register_libraries
from convkit.worker.runtime_interface.sessions import ModelRefusedError, OpenedModel

if TYPE_CHECKING:
    import onnxruntime

MODEL_FILE = "model.onnx"

_LEVELS: dict[Optimization, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_CPU = "CPUExecutionProvider"
# CUDA's messages for a missing device, or a driver too old for the library (cudaErrorNoDevice,
# cudaErrorInsufficientDriver).
_NO_DEVICE = ("no CUDA-capable device", "driver version is insufficient")
PROVIDERS: dict[Device, str] = {"cpu": _CPU, "cuda": "CUDAExecutionProvider"}
_TENSORRT = "TensorrtExecutionProvider"


def build(
    graph: Path, request: BuildRequest[OnnxRuntimeOptions], context: Context
) -> list[Finding]:
    """Write `model.onnx` and its weights: the graph unchanged, or as optimized by onnxruntime; and
    what a package for another program needs.
    """
    match request.options.artifact:
        case "exported":
            link_model(graph, context.output / MODEL_FILE)
            if request.options.package == "genai":
                from convkit.runtimes.onnxruntime.genai_package import write_package

                return write_package(context.output, MODEL_FILE, request)
            return []
        case "optimized":
            return _build_optimized(graph, context.output, request.device, request.options)


def keeps_operators(options: OnnxRuntimeOptions) -> bool:
    """Return True if the built file retains the operators of its source graph."""
    return options.artifact != "optimized"


def refusals(operators: Operators, device: Device) -> list[Finding]:
    """Return the operators that the installed release has no kernels for on a device."""
    return check_operators(operators, PROVIDERS[device])


def plain(options: OnnxRuntimeOptions) -> tuple[tuple[str, OnnxRuntimeOptions], ...]:
    """Return the options at each lower optimization level, the lowest first."""
    lower = LEVELS[: LEVELS.index(options.optimization)]
    return tuple((level, dataclasses.replace(options, optimization=level)) for level in lower)


def open_built(path: Path, device: Device, optimization: str) -> "OpenedModel":
    """Load a built model for `convkit.load`; raises the same errors as `open`, such as
    ModelRefusedError.
    """
    if optimization not in LEVELS:
        raise StageFailedError(f"optimization: {optimization!r} is none of {', '.join(LEVELS)}")
    session = open(path, device, OnnxRuntimeOptions(optimization=optimization))
    return OpenedModel(session, session.contract())


def open(path: Path, device: Device, options: OnnxRuntimeOptions) -> "OnnxRuntimeSession":  # noqa: A001 - the protocol's name
    """Load a model from its file; raises ModelRefusedError, or StageSkippedError if the device is
    absent.
    """
    return OnnxRuntimeSession(path, wanted_providers(device, options), _settings(options))


def open_to_read(path: Path, options: OnnxRuntimeOptions) -> "OnnxRuntimeSession":
    """Load a model on the CPU to read its contract; raises the same errors as `open`.

    All kernels are found and created, as for a run, but the weights are not rearranged for them:
    of bert-base, that takes nine tenths of the time and of the memory. Nor is the reuse of memory
    planned, which no run needs here: with weights left as they are, onnxruntime's plan is quadratic
    in their number (11.7 instead of 1.8 s for 25,000).
    """
    settings = _settings(dataclasses.replace(options, optimization="none"))
    settings.add_session_config_entry("session.disable_prepacking", "1")
    settings.enable_mem_pattern = settings.enable_mem_reuse = False
    return OnnxRuntimeSession(path, wanted_providers("cpu", options), settings)


def open_profiled(
    path: Path, device: Device, options: OnnxRuntimeOptions, prefix: Path
) -> GraphSession:
    """Load a model that profiles every run, to a file whose path starts with `prefix`."""
    settings = _settings(options)
    settings.enable_profiling = True
    settings.profile_file_prefix = str(prefix)
    return GraphSession(_create(path, wanted_providers(device, options), settings))


def executed_graph(path: Path, options: OnnxRuntimeOptions, folder: Path) -> Path:
    """Write the graph that onnxruntime executes on the CPU into a folder, and return its file;
    raises ModelRefusedError.
    """
    from convkit.worker.graph.integer_products.executed_graph import write_executed

    level: Optimization = "extended" if options.optimization == "all" else options.optimization
    return write_executed(path, folder, _LEVELS[level])


class OnnxRuntimeSession(GraphSession):
    """A model loaded by onnxruntime. On devices other than the CPU, the first run is profiled to
    detect fallbacks.
    """

    def __init__(
        self, path: Path, wanted: "Providers", settings: "onnxruntime.SessionOptions"
    ) -> None:
        self._wanted = wanted[0][0]
        self._fallbacks: tuple[Fallback, ...] = ()
        self._profiling = self._wanted != _CPU
        if self._profiling:
            folder = tempfile.mkdtemp(prefix="convkit-profile-")
            self._remove_profile = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            settings.enable_profiling = True
            settings.profile_file_prefix = str(Path(folder) / "profile")
        super().__init__(_create(path, wanted, settings))

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the nodes that did not run on the requested provider in the first run."""
        return self._fallbacks

    def _ran(self) -> None:
        if not self._profiling:
            return
        self._profiling = False
        file = Path(self._session.end_profiling())
        self._fallbacks = fallbacks_in_profile(read_profile(file), self._wanted)
        self._remove_profile()


# Providers by preference, each with its options.
Providers = tuple[tuple[str, dict[str, str]], ...]


def wanted_providers(device: Device, options: OnnxRuntimeOptions) -> Providers:
    """Return onnxruntime's providers for a device, by preference: operators that one does not
    support go to the next.

    TF32 is off unless the options request it: it rounds the operands of float32 products to ten
    mantissa bits, and CUDA's provider enables it by default.
    """
    if device == "cpu":
        return ((_CPU, {}),)
    own = {name: _option_text(value) for name, value in options.provider_options.items()}
    cuda = {} if _knows_no_tf32() else {"use_tf32": str(int(options.tf32))}
    if options.provider == "tensorrt":
        return ((_TENSORRT, own), (PROVIDERS["cuda"], cuda), (_CPU, {}))
    return ((PROVIDERS["cuda"], cuda | own), (_CPU, {}))


def _option_text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _knows_no_tf32() -> bool:
    """Return True if CUDA's provider predates the option use_tf32, new in 1.18."""
    import onnxruntime

    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < (1, 18)


def _settings(options: OnnxRuntimeOptions) -> "onnxruntime.SessionOptions":
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    level = _LEVELS[options.optimization]
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    # Errors only: relevant warnings are obtained from the session.
    settings.log_severity_level = 3
    limit_threads(settings)
    register_libraries(settings)
    return settings


def _create(
    path: Path, providers: "Providers", settings: "onnxruntime.SessionOptions"
) -> "onnxruntime.InferenceSession":
    import onnxruntime

    wanted = providers[0][0]
    available = onnxruntime.get_available_providers()
    if wanted not in available:
        raise StageSkippedError(_absent(wanted, f"it has {', '.join(available)}"))
    if wanted != _CPU and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # finds CUDA's libraries in the environment's packages
    try:
        session = onnxruntime.InferenceSession(str(path), settings, providers=list(providers))
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime's exceptions share no base class
        if wanted != _CPU and any(sign in str(error) for sign in _NO_DEVICE):
            raise StageSkippedError(_absent(wanted, str(error))) from error
        raise ModelRefusedError(f"onnxruntime {onnxruntime.__version__}: {error}") from error
    if wanted not in (started := session.get_providers()):
        raise StageSkippedError(_absent(wanted, f"it started with {', '.join(started)} instead"))
    session.disable_fallback()  # a failing run must fail, not be retried on the CPU
    return session


def _absent(provider: str, why: str) -> str:
    import onnxruntime

    release = f"onnxruntime {onnxruntime.__version__}"
    return (
        f"{release} cannot use {provider} here; {why}. Run `convkit run RECIPE --only TARGET` on a"
        " machine with CUDA, with onnxruntime-gpu in the recipe's tools"
    )


def _build_optimized(
    source: Path, output: Path, device: Device, options: OnnxRuntimeOptions
) -> list[Finding]:
    settings = _settings(options)
    settings.optimized_model_filepath = str(output / MODEL_FILE)
    key = "session.optimized_model_external_initializers_"
    settings.add_session_config_entry(f"{key}file_name", f"{MODEL_FILE}.data")
    settings.add_session_config_entry(
        f"{key}min_size_in_bytes", "1024"
    )  # as ONNX's own external data
    _create(source, wanted_providers(device, options), settings)
    level = options.optimization
    if level != "all" or device != "cpu":
        return []
    machine = f"{platform.system()} {platform.machine()}"
    return [
        Finding(
            "R102",
            f"the graph was optimized at level all on {machine}, for this CPU; other CPUs may run"
            " it slowly or fail to load it",
            Place(),
            {"optimization": level, "machine": machine, "processor": platform.processor()},
            Remedy(
                "Set artifact: exported, or optimization: extended, to build a file that suits"
                " every machine."
            ),
        )
    ]
