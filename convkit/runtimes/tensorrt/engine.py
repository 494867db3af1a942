"""Builds an engine from a typed ONNX graph: always strongly typed, so that the graph's element
types are the plan.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.runtimes.tensorrt.library import TENSORRT_11, MessageLog, make_logger
from convkit.runtimes.tensorrt.optimization_profiles import ShapeRange, shape_profiles
from convkit.runtimes.tensorrt.options import EngineOptions, Sizes
from convkit.runtimes.tensorrt.parser_support import PLUGIN, SUPPORTED
from convkit.runtimes.tensorrt.timing import TimingCache
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.registered_operators import library_files, unusable
from convkit.worker.runtime_interface.sessions import ModelRefusedError

if TYPE_CHECKING:
    import tensorrt as trt


_GIB = 1 << 30


# A plugin cannot be registered twice, and the registry belongs to the process.
_LOADED: set[str] = set()


class GraphRefusedError(ModelRefusedError):
    """TensorRT's parser rejects the graph; `findings` name the nodes."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = findings


@dataclasses.dataclass(frozen=True)
class BuiltEngine:
    """A serialized engine, and its table of layers as the inspector's JSON."""

    plan: bytes
    layers: str


def build_engine(
    graph: Path,
    contract: Contract,
    options: EngineOptions,
    timing: TimingCache | None,
    context: Context,
) -> BuiltEngine:
    """Build an engine from an ONNX file, with the contract's axes.

    Raises GraphRefusedError if the parser rejects the graph, ModelRefusedError if no engine can be
    built from it, StageFailedError with E322 for a plugin library.
    """
    import tensorrt as trt

    messages = MessageLog()
    logger = make_logger(trt, messages)
    builder = trt.Builder(logger)
    load_plugins(messages)
    network = builder.create_network(_network_flags())
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(graph)):
        raise GraphRefusedError(
            [_refused_node(parser.get_error(number)) for number in range(parser.num_errors)]
        )
    config = builder.create_builder_config()
    _configure(config, options)
    add_profiles(builder, network, config, contract, options)
    config.progress_monitor = make_progress_monitor(context)
    if timing is not None:
        timing.load_into(config)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise ModelRefusedError(
            f"TensorRT {trt.__version__} built no engine:"
            f" {messages.last_error() or 'it gave no reason'}"
        )
    if timing is not None:
        timing.keep_from(config)
    plan = bytes(serialized)
    return BuiltEngine(plan, layer_table(plan, options))


def layer_table(plan: bytes, options: EngineOptions) -> str:
    """Return an engine's layers as the inspector's JSON."""
    import tensorrt as trt

    engine = load_engine(plan, options, MessageLog())
    inspector = engine.create_engine_inspector()
    return str(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


def load_engine(plan: bytes, options: EngineOptions, messages: MessageLog) -> "trt.ICudaEngine":
    """Return an engine from its serialized form; raises ModelRefusedError, or StageFailedError with
    E322 for a plugin library.
    """
    import tensorrt as trt

    runtime = trt.Runtime(make_logger(trt, messages))
    load_plugins(messages)
    # A version-compatible plan contains host code, which is trusted in convkit's own builds.
    runtime.engine_host_code_allowed = options.version_compatible
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ModelRefusedError(
            f"TensorRT {trt.__version__} does not load the engine: {messages.last_error()}"
        )
    return engine


def _network_flags() -> int:
    import tensorrt as trt

    if TENSORRT_11:
        return 0  # there, networks are always strongly typed
    return 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


def _configure(config: "trt.IBuilderConfig", options: EngineOptions) -> None:
    """Apply the recipe's settings; everything else is off, including TF32."""
    import tensorrt as trt

    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.builder_optimization_level = options.builder_level
    if options.workspace_gib is not None:
        config.set_memory_pool_limit(
            trt.MemoryPoolType.WORKSPACE, int(options.workspace_gib * _GIB)
        )
    if not options.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)  # on by default
    if options.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if options.sparse_weights:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    match options.hardware_compatible:
        case "none":
            pass
        case "ampere_plus":
            config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
        case "same_compute_capability":
            config.hardware_compatibility_level = (
                trt.HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY
            )
    match options.weights:
        case "fixed":
            pass
        case "refit":
            config.set_flag(trt.BuilderFlag.REFIT)
        case "strip":
            config.set_flag(trt.BuilderFlag.STRIP_PLAN)
    if options.dla is not None:
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = options.dla.core
        if options.dla.fallback:
            config.set_flag(trt.BuilderFlag.GPU_FALLBACK)


def add_profiles(
    builder: "trt.Builder",
    network: "trt.INetworkDefinition",
    config: "trt.IBuilderConfig",
    contract: Contract,
    options: EngineOptions,
) -> None:
    for profile in needed_profiles(network, contract, options.profiles):
        optimization = builder.create_optimization_profile()
        for name, span in profile.items():
            optimization.set_shape(name, span.least, span.typical, span.most)
        if config.add_optimization_profile(optimization) < 0:
            described = "; ".join(f"{name}: {span}" for name, span in profile.items())
            raise ModelRefusedError(f"TensorRT refuses the optimization profile {described}")


def needed_profiles(
    network: "trt.INetworkDefinition", contract: Contract, wanted: Sequence[Mapping[str, Sizes]]
) -> list[dict[str, ShapeRange]]:
    """Return the sizes of the network's inputs, by name, for each profile; none if all are fixed.

    Raises ModelRefusedError for an input whose values decide a shape.
    """
    given = [network.get_input(number) for number in range(network.num_inputs)]
    for tensor in given:
        if tensor.is_shape_tensor:
            raise ModelRefusedError(
                f"input {tensor.name!r} decides a shape by its values, whose range TensorRT must"
                " know in advance; make that size an axis of the recipe instead"
            )
    if not any(size < 0 for tensor in given for size in tensor.shape):
        return []
    names = {tensor.name for tensor in given}
    return [
        {name: span for name, span in profile.items() if name in names}
        for profile in shape_profiles(contract, wanted)
    ]


def _refused_node(error: "trt.ParserError") -> Finding:
    node, operator = error.node_name(), error.node_operator()
    return Finding(
        "E213",
        f"TensorRT's parser refuses {operator or 'the graph'}{f' at {node}' if node else ''}:"
        f" {error.desc()}",
        Place(node=node or None),
        {"operator": operator, "code": str(error.code()), "function": error.func()},
        Remedy(
            "Export with a different opset or exporter, which may use other operators, or rewrite"
            " that computation in the model."
            + (f" For your own operator, {PLUGIN}" if operator not in SUPPORTED else "")
        ),
    )


def load_plugins(messages: MessageLog) -> None:
    """Load this stage's plugin libraries into TensorRT's registry, once per process; `messages` are
    those of a logger in use. Raises StageFailedError with E322.
    """
    import tensorrt as trt

    registry: trt.IPluginRegistry = trt.get_plugin_registry()
    for file, library in library_files("tensorrt"):
        if str(file) in _LOADED:
            continue
        try:
            # The bindings declare no None, but give it for a null handle.
            handle = cast("object | None", registry.load_library(str(file)))
        except Exception as error:  # the bindings do not say which
            raise unusable(library.path, f"TensorRT cannot load it: {error}") from error
        if handle is None:
            why = (
                messages.last_error()
                or "it is not a plugin library, or its plugins are known already"
            )
            raise unusable(library.path, f"TensorRT cannot load it: {why}")
        _LOADED.add(str(file))


def make_progress_monitor(context: Context) -> "trt.IProgressMonitor":
    """Return a monitor that reports the outermost phase and its progress."""
    import tensorrt as trt

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            # pybind11 requires calling the base's own constructor
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            if parent_phase is None:
                self._steps[phase_name] = num_steps
                context.progress(f"TensorRT: {phase_name}", done=0.0)

        def step_complete(self, phase_name: str, step: int) -> bool:
            if steps := self._steps.get(phase_name):
                context.progress(f"TensorRT: {phase_name}", done=min((step + 1) / steps, 1.0))
            return True  # continue: canceling a run ends the whole process

        def phase_finish(self, phase_name: str) -> None:
            self._steps.pop(phase_name, None)

    return Monitor()
