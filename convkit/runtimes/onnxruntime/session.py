"""onnxruntime, releases 1.17 and later, with numpy and nothing else: the model is never read with
another library.
"""

import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.contract_check import UNKNOWN_DIMENSION, UNKNOWN_RANK
from convkit.models.graph.linking import link_model
from convkit.runtimes.onnxruntime.profile import fallbacks_in_profile, read_profile
from convkit.tensors import Contract, Dimension, DType, TensorSpec
from convkit.worker.context import Context, StageFailedError, StageSkippedError
from convkit.worker.protocol import BuildRequest, Device, Fallback
from convkit.worker.sessions import ModelRefusedError, Options, RunFailedError

if TYPE_CHECKING:
    import onnxruntime

MODEL_FILE = "model.onnx"

# onnxruntime's name of each element type, in `tensor(...)`.
ELEMENT_TYPES: dict[str, DType] = {
    "bool": "bool",
    "int4": "int4",
    "uint4": "uint4",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "uint16",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "float8e4m3fn": "float8e4m3fn",
    "float8e5m2": "float8e5m2",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
}

Optimization = Literal["none", "basic", "extended", "all"]
_LEVELS: dict[str, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_CPU = "CPUExecutionProvider"
# What CUDA says where there is no device, or a driver too old for the library (cudaErrorNoDevice,
# cudaErrorInsufficientDriver).
_NO_DEVICE = ("no CUDA-capable device", "driver version is insufficient")
PROVIDERS: dict[Device, str] = {"cpu": _CPU, "cuda": "CUDAExecutionProvider"}
_TENSORRT = "TensorrtExecutionProvider"
_CUDA_PROVIDERS = ("cuda", "tensorrt")


def build(request: BuildRequest, context: Context) -> list[Finding]:
    """Write `model.onnx` and its weights: the exported graph as it is, or as onnxruntime optimised
    it.
    """
    source = Path(request.model)
    match request.options.get("artifact", "exported"):
        case "exported":
            link_model(source, context.output / MODEL_FILE)
            return []
        case "optimized":
            return _build_optimized(source, context.output, request.device, request.options)
        case other:
            raise StageFailedError(f"artifact: {other!r} is none of exported, optimized")


def open(path: Path, device: Device, options: Options) -> "Session":  # noqa: A001 - the protocol's word
    """Load a model from its file; raises ModelRefusedError, StageSkippedError where the device is
    absent.
    """
    return Session(path, wanted_providers(device, options), _settings(options))


class Session:
    """A model loaded by onnxruntime. On another device than the CPU, the first run is profiled for
    fallbacks.
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
        self._session = _create(path, wanted, settings)
        self.providers: tuple[str, ...] = tuple(self._session.get_providers())

    def contract(self) -> Contract:
        """Return the contract as the session states it; raises ModelRefusedError for what is no
        tensor.
        """
        inputs = tuple(_spec(argument) for argument in self._session.get_inputs())
        return Contract(
            inputs, tuple(_spec(argument) for argument in self._session.get_outputs()), ()
        )

    def metadata(self) -> Mapping[str, str]:
        """Return the model's metadata."""
        return dict(self._session.get_modelmeta().custom_metadata_map)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name; raises RunFailedError with onnxruntime's message."""
        import onnxruntime

        names = [argument.name for argument in self._session.get_outputs()]
        quiet = onnxruntime.RunOptions()
        quiet.log_severity_level = (
            4  # what goes wrong in a run is raised; the log would say it again
        )
        try:
            values = self._session.run(names, dict(feeds), quiet)
        except MemoryError:
            raise
        except Exception as error:
            raise RunFailedError(_explain_run_error(error, self._session)) from error
        finally:
            self._end_profiling()
        return dict(zip(names, values, strict=True))

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the nodes that ran on another provider than the one asked for, in
        the first run.
        """
        return self._fallbacks

    def _end_profiling(self) -> None:
        if not self._profiling:
            return
        self._profiling = False
        file = Path(self._session.end_profiling())
        self._fallbacks = fallbacks_in_profile(read_profile(file), self._wanted)
        self._remove_profile()


# Providers by preference, each with its options.
Providers = tuple[tuple[str, dict[str, str]], ...]


def wanted_providers(device: Device, options: Options) -> Providers:
    """Return onnxruntime's providers for a device, by preference: what the first does not serve
    goes to the next.

    TF32 is off unless the options ask for it: it rounds the operands of float32 products to ten
    bits of mantissa, and CUDA's provider has it on by default.
    """
    if device == "cpu":
        return ((_CPU, {}),)
    chosen = options.get("provider", "cuda")
    if chosen not in _CUDA_PROVIDERS:
        raise StageFailedError(f"provider: {chosen!r} is none of {', '.join(_CUDA_PROVIDERS)}")
    given = options.get("provider_options", {})
    own = (
        {name: _option_text(value) for name, value in given.items()}
        if isinstance(given, dict)
        else {}
    )
    cuda = {} if _knows_no_tf32() else {"use_tf32": "1" if options.get("tf32") else "0"}
    if chosen == "tensorrt":
        return ((_TENSORRT, own), (PROVIDERS["cuda"], cuda), (_CPU, {}))
    return ((PROVIDERS["cuda"], cuda | own), (_CPU, {}))


def _option_text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _knows_no_tf32() -> bool:
    """Say whether CUDA's provider is of a release without the option use_tf32, new in 1.18."""
    import onnxruntime

    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < (1, 18)


def _settings(options: Options) -> "onnxruntime.SessionOptions":
    import onnxruntime

    level = options.get("optimization", "all")
    if level not in _LEVELS:
        raise StageFailedError(f"optimization: {level!r} is none of {', '.join(_LEVELS)}")
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
    settings.log_severity_level = (
        3  # errors only: what matters of the warnings is asked of the session
    )
    # onnxruntime's own thread pool does not read OpenMP's variable, which is how a worker is told
    # its share.
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        settings.intra_op_num_threads = int(threads)
        settings.inter_op_num_threads = 1
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
        onnxruntime.preload_dlls()  # finds CUDA's libraries in the environment's own packages
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
    session.disable_fallback()  # a failing run must fail, not start again on the CPU
    return session


def _absent(provider: str, why: str) -> str:
    import onnxruntime

    release = f"onnxruntime {onnxruntime.__version__}"
    return (
        f"{release} cannot use {provider} here; {why}. Run `convkit run RECIPE --only TARGET` on a"
        " machine with CUDA, with onnxruntime-gpu in the recipe's tools"
    )


def _spec(argument: "onnxruntime.NodeArg") -> TensorSpec:
    kind, _, rest = argument.type.partition("(")
    element = rest.removesuffix(")")
    if kind != "tensor" or element not in ELEMENT_TYPES:
        raise ModelRefusedError(
            f"{argument.name!r} is a {argument.type}; a contract speaks of tensors of numbers"
        )
    return TensorSpec(argument.name, ELEMENT_TYPES[element], _shape(argument.shape))


def _shape(shape: list[Any]) -> tuple[Dimension, ...]:
    """Return a shape; onnxruntime gives an empty one both for a scalar and where it
    knows nothing.
    """
    if not shape:
        return UNKNOWN_RANK
    return tuple(
        size if isinstance(size, int | str) and size != "" else UNKNOWN_DIMENSION for size in shape
    )


def _explain_run_error(error: Exception, session: "onnxruntime.InferenceSession") -> str:
    message = str(error)
    if "Numpy type" in message:  # numpy has no bfloat16, int4 or float8
        arguments = (*session.get_inputs(), *session.get_outputs())
        foreign = [f"{a.name!r} ({a.type})" for a in arguments if not _has_numpy_type(a.type)]
        return (
            f"onnxruntime cannot exchange {', '.join(foreign)} with numpy; end the graph with a"
            " Cast to float32"
        )
    return message


def _has_numpy_type(kind: str) -> bool:
    return not any(element in kind for element in ("bfloat16", "int4)", "float8"))


def _build_optimized(source: Path, output: Path, device: Device, options: Options) -> list[Finding]:
    settings = _settings(options)
    settings.optimized_model_filepath = str(output / MODEL_FILE)
    key = "session.optimized_model_external_initializers_"
    settings.add_session_config_entry(f"{key}file_name", f"{MODEL_FILE}.data")
    settings.add_session_config_entry(
        f"{key}min_size_in_bytes", "1024"
    )  # as ONNX's own external data
    _create(source, wanted_providers(device, options), settings)
    level = options.get("optimization", "all")
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
