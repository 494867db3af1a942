"""A stand-in for TensorRT, since its libraries need a GPU: engines that onnxruntime runs, under
TensorRT's own names.

It keeps to what the real bindings have (the contract test holds convkit to those), lists tensors in
reverse, as an engine may, and can be told to be wrong: to cross two bindings, or to compute in
another type than asked.
"""

import ctypes
import enum
import json
import types
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from mocked_device_memory import HostMemory


class Faults:
    """How the mock is to go wrong."""

    def __init__(self) -> None:
        self.crossed: tuple[str, str] | None = None
        self.refuses: str | None = None
        self.fails = False
        self.layer_type = ""
        self.unknown_sizes = False
        self.no_cuda = False
        self.needs_plugin = ""


_TYPES = {
    "float": "FLOAT",
    "float16": "HALF",
    "int64": "INT64",
    "int32": "INT32",
    "bool": "BOOL",
    "double": "DOUBLE",
}
_NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT64": np.int64,
    "INT32": np.int32,
    "BOOL": np.bool_,
}


def mocked_tensorrt(faults: Faults, release: str = "10.16.1") -> types.ModuleType:  # noqa: C901 - a whole library
    """Return the module."""
    trt = types.ModuleType("tensorrt")
    trt.__version__ = release

    def names(title: str, text: str) -> type[enum.IntEnum]:
        made = enum.IntEnum(title, text.split(), start=0)
        setattr(trt, title, made)
        return made

    class ILogger:
        Severity = enum.IntEnum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE", start=0)

        def __init__(self) -> None: ...

    class IProgressMonitor:
        def __init__(self) -> None: ...

    class IOutputAllocator:
        def __init__(self) -> None: ...

    names("NetworkDefinitionCreationFlag", "EXPLICIT_BATCH STRONGLY_TYPED")
    flags = names(
        "BuilderFlag",
        "TF32 VERSION_COMPATIBLE SPARSE_WEIGHTS REFIT STRIP_PLAN GPU_FALLBACK"
        " EDITABLE_TIMING_CACHE",
    )
    names("MemoryPoolType", "WORKSPACE")
    names("ProfilingVerbosity", "LAYER_NAMES_ONLY DETAILED")
    names("HardwareCompatibilityLevel", "NONE AMPERE_PLUS SAME_COMPUTE_CAPABILITY")
    names("DeviceType", "GPU DLA")
    names("LayerInformationFormat", "ONELINE JSON")
    modes = names("TensorIOMode", "NONE INPUT OUTPUT")
    dtypes = names("DataType", "FLOAT HALF INT8 INT32 BOOL UINT8 INT64 DOUBLE")

    class PluginRegistry:
        def __init__(self) -> None:
            self.libraries: list[str] = []

        def load_library(self, plugin_path: str) -> object | None:
            """Refuse empty files, and plugins that are registered already."""
            if not Path(plugin_path).read_bytes() or plugin_path in self.libraries:
                return None
            self.libraries.append(plugin_path)
            return object()

    registry = PluginRegistry()

    class Tensor:
        is_shape_tensor = False

        def __init__(self, name: str, shape: tuple[int, ...]) -> None:
            self.name, self.shape = name, shape

    class Network:
        def __init__(self) -> None:
            self.inputs: list[Tensor] = []
            self.path = ""

        @property
        def num_inputs(self) -> int:
            return len(self.inputs)

        def get_input(self, number: int) -> Tensor:
            return self.inputs[number]

    class ParserError:
        def node_name(self) -> str:
            return "/net/Odd"

        def node_operator(self) -> str:
            return "Odd"

        def desc(self) -> str:
            return faults.refuses or ""

        def code(self) -> int:
            return 8

        def func(self) -> str:
            return "parseNode"

    class OnnxParser:
        num_errors = 1

        def __init__(self, network: Network, logger: ILogger) -> None:
            self.network = network

        def parse_from_file(self, path: str) -> bool:
            if faults.needs_plugin and faults.needs_plugin not in registry.libraries:
                faults.refuses = "no plugin of this name"
            if faults.refuses:
                return False
            for value in onnxruntime.InferenceSession(
                path, providers=["CPUExecutionProvider"]
            ).get_inputs():
                sizes = tuple(size if isinstance(size, int) else -1 for size in value.shape)
                self.network.inputs.append(Tensor(value.name, sizes))
            self.network.path = path
            return True

        def get_error(self, number: int) -> ParserError:
            return ParserError()

    class Profile:
        def __init__(self) -> None:
            self.shapes: dict[str, list[list[int]]] = {}

        def set_shape(self, name: str, least: tuple, typical: tuple, most: tuple) -> None:
            self.shapes[name] = [list(least), list(typical), list(most)]

    class Cache:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def serialize(self) -> bytes:
            return self.data + b"timed;"

    class Config:
        def __init__(self) -> None:
            self.flags = {flags.TF32}
            self.profiles: list[Profile] = []
            self.pools: dict[int, int] = {}
            self.cache: Cache | None = None
            trt.last_config = self

        def set_flag(self, flag: int) -> None:
            self.flags.add(flag)

        def clear_flag(self, flag: int) -> None:
            self.flags.discard(flag)

        def set_memory_pool_limit(self, pool: int, size: int) -> None:
            self.pools[pool] = size

        def add_optimization_profile(self, profile: Profile) -> int:
            self.profiles.append(profile)
            return len(self.profiles) - 1

        def create_timing_cache(self, data: bytes) -> Cache:
            return Cache(data)

        def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
            if cache.data.startswith(b"damaged"):
                return False
            self.cache = cache
            return True

        def get_timing_cache(self) -> Cache | None:
            return self.cache

    class Builder:
        def __init__(self, logger: ILogger) -> None:
            if faults.no_cuda:
                raise TypeError("pybind11::init(): factory function returned nullptr")
            self.logger = logger

        def create_network(self, flags: int) -> Network:
            trt.network_flags = flags
            return Network()

        def create_builder_config(self) -> Config:
            return Config()

        def create_optimization_profile(self) -> Profile:
            return Profile()

        def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
            monitor = config.progress_monitor
            monitor.phase_start("Building", None, 2)
            for step in range(2):
                assert monitor.step_complete("Building", step)
            monitor.phase_finish("Building")
            if faults.fails:
                self.logger.log(ILogger.Severity.ERROR, "no tactic fits the workspace")
                return None
            shapes = [profile.shapes for profile in config.profiles]
            return json.dumps({"graph": network.path, "profiles": shapes}).encode()

    class Inspector:
        def __init__(self, graph: str) -> None:
            self.graph = graph

        def get_engine_information(self, form: int) -> str:
            model = onnx.shape_inference.infer_shapes(onnx.load(self.graph))
            known = {
                value.name: value.type.tensor_type.elem_type for value in [*model.graph.value_info]
            }
            known |= {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
            words = {1: "Row major linear FP32", 10: "Row major linear FP16 format"}
            rows = [
                {
                    "Name": node.name,
                    "LayerType": "Myelin",
                    "Inputs": [],
                    "Outputs": [
                        {
                            "Name": name,
                            "Format/Datatype": faults.layer_type or words.get(known.get(name), ""),
                        }
                    ],
                    "Metadata": f"[ONNX Layer: {node.name}]",
                }
                for node in model.graph.node
                for name in node.output[:1]
            ]
            return json.dumps({"Layers": rows, "Bindings": []})

    class Context:
        active_optimization_profile = 0

        def __init__(self, engine: "Engine") -> None:
            self.engine = engine
            self.addresses: dict[str, int] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}
            self.allocators: dict[str, IOutputAllocator] = {}

        def set_optimization_profile_async(self, number: int, stream: int) -> bool:
            self.active_optimization_profile = number
            return True

        def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
            self.shapes[name] = tuple(shape)
            return True

        def infer_shapes(self) -> list[str]:
            return [name for name in self.engine.inputs if name not in self.shapes]

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            if faults.unknown_sizes:
                return (-1, -1)
            return self.engine.results(self.feeds())[name].shape

        def set_tensor_address(self, name: str, address: int) -> bool:
            self.addresses[name] = address
            return True

        def set_output_allocator(self, name: str, allocator: IOutputAllocator) -> bool:
            self.allocators[name] = allocator
            return True

        def feeds(self) -> dict[str, np.ndarray]:
            found = {}
            for name, kind in self.engine.inputs.items():
                array = np.empty(self.shapes[name], _NUMPY[kind])
                ctypes.memmove(array.ctypes.data, self.addresses[name], array.nbytes)
                found[name] = array
            return found

        def execute_async_v3(self, stream: int) -> bool:
            assert stream == HostMemory.stream
            for name, values in self.engine.results(self.feeds()).items():
                array = np.ascontiguousarray(values)
                address = self.addresses.get(name)
                if name in self.allocators:
                    allocator = self.allocators[name]
                    address = allocator.reallocate_output_async(name, 0, array.nbytes, 256, stream)
                    allocator.notify_shape(name, array.shape)
                ctypes.memmove(address, array.ctypes.data, array.nbytes)
            return True

    class Engine:
        def __init__(self, plan: bytes) -> None:
            told = json.loads(plan)
            self.graph, self.profiles = told["graph"], told["profiles"]
            self.session = onnxruntime.InferenceSession(
                self.graph, providers=["CPUExecutionProvider"]
            )
            self.inputs = {
                v.name: _TYPES[v.type[7:-1]] for v in reversed(self.session.get_inputs())
            }
            self.outputs = {
                v.name: _TYPES[v.type[7:-1]] for v in reversed(self.session.get_outputs())
            }
            self.sizes = {
                v.name: tuple(size if isinstance(size, int) else -1 for size in v.shape)
                for v in (*self.session.get_inputs(), *self.session.get_outputs())
            }
            self.num_io_tensors = len(self.sizes)
            self.num_optimization_profiles = len(self.profiles)

        def results(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            if faults.crossed is not None:
                one, other = faults.crossed
                feeds = feeds | {one: feeds[other], other: feeds[one]}
            listed = [value.name for value in self.session.get_outputs()]
            return dict(zip(listed, self.session.run(listed, feeds), strict=True))

        def get_tensor_name(self, number: int) -> str:
            return [*self.inputs, *self.outputs][number]

        def get_tensor_mode(self, name: str) -> int:
            return modes.INPUT if name in self.inputs else modes.OUTPUT

        def get_tensor_dtype(self, name: str) -> enum.IntEnum:
            return dtypes[(self.inputs | self.outputs)[name]]

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            return self.sizes[name]

        def get_tensor_profile_shape(self, name: str, number: int) -> list[list[int]]:
            return self.profiles[number][name]

        def is_shape_inference_io(self, name: str) -> bool:
            return False

        def create_execution_context(self) -> Context:
            return Context(self)

        def create_engine_inspector(self) -> Inspector:
            return Inspector(self.graph)

    class Runtime:
        engine_host_code_allowed = False

        def __init__(self, logger: ILogger) -> None:
            self.logger = logger

        def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
            if faults.needs_plugin and faults.needs_plugin not in registry.libraries:
                self.logger.log(ILogger.Severity.ERROR, "no creator of the plugin")
                return None
            try:
                return Engine(plan)
            except ValueError:
                self.logger.log(ILogger.Severity.ERROR, "magic tag does not match")
                return None

    trt.get_plugin_registry = lambda: registry
    for kind in (ILogger, IProgressMonitor, IOutputAllocator, OnnxParser, Builder, Runtime):
        setattr(trt, kind.__name__, kind)
    return trt


def graph_of(plan: Path) -> str:
    """Return the graph that a mocked engine was built from."""
    return str(json.loads(plan.read_bytes())["graph"])
