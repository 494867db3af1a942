"""Calls TensorRT as convkit does; what the contract's own tests are tried on. It is type-checked
and never run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorrt as trt


def progress() -> trt.IProgressMonitor:
    """Return what may stop a build."""
    import tensorrt as trt

    class Progress(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self.steps = num_steps

        def phase_finish(self, phase_name: str) -> None:
            pass

        def step_complete(self, phase_name: str, step: int) -> bool:
            return step < self.steps

    return Progress()


def quiet_logger() -> trt.ILogger:
    """Return a logger that keeps its lines."""
    import tensorrt as trt

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[str] = []

        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            if severity in {trt.ILogger.ERROR, trt.ILogger.Severity.WARNING}:
                self.lines.append(msg)

    return Log()


def build(
    model: Path, shapes: dict[str, tuple[list[int], list[int], list[int]]], workspace: int
) -> bytes:
    """Build a version-compatible engine."""
    import tensorrt as trt

    tensorrt_11 = int(trt.__version__.partition(".")[0]) >= 11

    logger = quiet_logger()
    builder = trt.Builder(logger)
    flags = 0
    if not tensorrt_11:
        flags |= 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        flags |= 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    parser.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    if not parser.parse_from_file(str(model)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise ValueError("; ".join(f"{error.node_name()}: {error.desc()}" for error in errors))
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace)
    config.clear_flag(trt.BuilderFlag.TF32)
    config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if not tensorrt_11:
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.progress_monitor = progress()
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, ignore_mismatch=False)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        lower, usual, upper = shapes[tensor.name]
        if tensor.is_shape_tensor:
            profile.set_shape_input(tensor.name, min=lower, opt=usual, max=upper)
        else:
            profile.set_shape(tensor.name, min=tuple(lower), opt=tuple(usual), max=tuple(upper))
    if config.add_optimization_profile(profile) < 0:
        raise ValueError("the profile is refused")
    network.mark_unfused_tensors_as_debug_tensors()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ValueError(
            "; ".join(parser.get_error(index).desc() for index in range(parser.num_errors))
        )
    return bytes(memoryview(plan))


def load(plan: bytes) -> trt.ICudaEngine:
    """Open an engine."""
    import tensorrt as trt

    runtime = trt.Runtime(trt.Logger(trt.Logger.Severity.ERROR))
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ValueError("the engine is not of this release")
    return engine


def run(engine: trt.ICudaEngine, addresses: dict[str, int], stream: int) -> dict[str, list[int]]:
    """Run an engine on memory of the device; return the outputs' shapes."""
    import tensorrt as trt

    class Output(trt.IOutputAllocator):
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: list[int] = []

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            return memory

        def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
            self.shape = list(shape)

    context = engine.create_execution_context()
    context.set_optimization_profile_async(0, stream)
    outputs: dict[str, Output] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            lower, _, _ = engine.get_tensor_profile_shape(name, 0)
            if not engine.is_shape_inference_io(name):
                context.set_input_shape(name, tuple(lower))
            context.set_tensor_address(name, addresses[name])
        else:
            outputs[name] = Output()
            context.set_output_allocator(name, outputs[name])
            assert engine.get_tensor_dtype(name) in {trt.DataType.FLOAT, trt.float16}
        if -1 in context.get_tensor_shape(name) or context.get_tensor_shape(name) == (0,):
            raise ValueError(f"{name} is dynamic or empty")
    if missing := context.infer_shapes():
        raise ValueError(f"no shape for {missing}")
    if not context.execute_async_v3(stream_handle=stream):
        raise ValueError("the run failed")
    return {
        name: output.shape or list(context.get_tensor_shape(name))
        for name, output in outputs.items()
    }


def layers(engine: trt.ICudaEngine) -> list[object]:
    """Return what the inspector tells of each layer."""
    import tensorrt as trt

    inspector = engine.create_engine_inspector()
    told = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    return list(told["Layers"])
