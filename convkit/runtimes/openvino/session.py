"""An OpenVINO target's models: built, loaded and run by name. Needs only openvino and numpy."""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract, Dimension, DType, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import BuildRequest, Device, Fallback, LowPrecision, Quantization
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS, dtype_name
from convkit.runtimes.openvino.ir import (
    CONTRACT_PATH,
    MODULE_PATH,
    PRECISION_PATH,
    read_graph,
    save_ir,
)
from convkit.runtimes.openvino.large_whole_numbers import keep_whole_numbers_exact
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.separate_operators import separate
from convkit.runtimes.openvino.sequence_lengths import respect_lengths
from convkit.runtimes.openvino.supported_operators import check_operators
from convkit.worker.graph.file_links import link_model
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_DIMENSION, UNKNOWN_RANK
from convkit.worker.runtime_interface.distinct_operators import Operators, low_type, read_operators
from convkit.worker.runtime_interface.sessions import ModelRefusedError, OpenedModel, RunFailedError

if TYPE_CHECKING:
    import openvino

MODEL_FILE = "model.xml"
# The graph from which an IR was quantized, or one that was already in low precision: its effects
# are simulated and traced in this graph.
GRAPH_FOLDER = "graph"

_DTYPES: dict[str, DType] = {
    "boolean": "bool",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
# A precision's name in INFERENCE_PRECISION_HINT and among a device's capabilities.
_HINTS: dict[str, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_CAPABILITIES: dict[str, str] = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}


def build(graph: Path, request: BuildRequest[OpenVINOOptions], context: Context) -> list[Finding]:
    """Write `model.xml` and `model.bin`; next to them the graph, unless it can be recreated from
    the exported one.
    """
    require_openvino()
    asked = request.precision
    operators = read_operators(graph.parent)
    came_low = low_type(operators)
    low = asked.default if isinstance(asked, LowPrecision) else came_low
    model = read_graph(graph, operators)
    respect_lengths(model)
    keep_whole_numbers_exact(model)
    if request.options.separate:
        separate(model, request.options.separate)
    save_ir(model, context.output / MODEL_FILE, request.contract, low or "float32")
    if isinstance(asked, Quantization) or (asked is None and came_low):
        folder = context.output / GRAPH_FOLDER
        folder.mkdir()
        link_model(graph, folder / "model.onnx")
    return []


def keeps_operators(options: OpenVINOOptions) -> bool:
    """True: the IR retains the graph's operators, in its own opset."""
    del options
    return True


def refusals(operators: Operators, device: Device) -> list[Finding]:
    """Return the operators that the installed release cannot convert, or has no kernels for."""
    del device
    require_openvino()
    return check_operators(operators)


def plain(options: OpenVINOOptions) -> tuple[tuple[str, OpenVINOOptions], ...]:
    """Return an empty sequence: OpenVINO has no optimization levels."""
    del options
    return ()


def executed_graph(path: Path, options: OpenVINOOptions, folder: Path) -> None:
    """Return None: OpenVINO shows no ONNX graph of what it executes."""
    del path, options, folder


def open_built(path: Path, device: Device, optimization: str) -> OpenedModel:
    """Load a built model for `convkit.load`; raises the same errors as `open`, such as
    ModelRefusedError.
    """
    del optimization
    session = open(path, device, OpenVINOOptions())
    return OpenedModel(session, session.contract())


def open(  # noqa: A001 - the protocol's name
    path: Path, device: Device, options: OpenVINOOptions, wanted: Collection[str] = ()
) -> "OpenVINOSession":
    """Load an IR, with the `wanted` names for tensors that have several; raises ModelRefusedError,
    or StageSkippedError if OpenVINO or the device is absent.
    """
    require_openvino()
    if device != "cpu":
        raise StageSkippedError(f"OpenVINO targets run on the cpu, not on {device}")
    return OpenVINOSession(read_graph(path), options, known=wanted)


class OpenVINOSession:
    """An IR compiled for the CPU, in the precision it was built for, never a lower one."""

    providers: tuple[str, ...] = ("CPU",)

    def __init__(
        self,
        model: "openvino.Model",
        options: OpenVINOOptions,
        known: Collection[str] = (),
        *,
        profiled: bool = False,
    ) -> None:
        self._texts = _texts(model)
        self._carried = _carried(self._texts)
        self._known = tuple(known)
        self.precision = _text(model, PRECISION_PATH) or "float32"
        self.from_module = _text(model, MODULE_PATH) is not None
        self._compiled = _compile(model, self.precision, options, profiled=profiled)
        self._inputs = [_name(port, self._names("inputs")) for port in self._compiled.inputs]
        self._outputs = [_name(port, self._names("outputs")) for port in self._compiled.outputs]
        self._request = self._compiled.create_infer_request()

    def contract(self) -> Contract:
        """Return names, types and shapes as reported by OpenVINO.

        It drops the names of axes, which are restored from the embedded contract. Raises
        ModelRefusedError for an element type that contracts do not support.
        """
        return Contract(
            tuple(map(self._spec, self._compiled.inputs, self._inputs)),
            tuple(map(self._spec, self._compiled.outputs, self._outputs)),
            (),
        )

    def metadata(self) -> Mapping[str, str]:
        """Return the IR's metadata strings."""
        return self._texts

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name; raises RunFailedError, also for feeds whose type or shape
        differs from the model's: OpenVINO would convert the type, and read beyond memory for the
        shape.
        """
        self._check(feeds)
        try:
            # Not `infer`: with one thread, it loses errors and keeps the last run's outputs
            # (2026.4).
            self._request.start_async({name: _tensor(feeds[name]) for name in self._inputs})
            self._request.wait()
            values = [
                _array(self._request.get_output_tensor(place))
                for place in range(len(self._outputs))
            ]
        except RuntimeError as error:
            raise RunFailedError(f"OpenVINO: {error}") from error
        return dict(zip(self._outputs, values, strict=True))

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: the CPU is the only device."""
        return ()

    def names_of_outputs(self) -> list[set[str]]:
        """Return all names of each output: values that compile to the same one share it."""
        return [set(port.get_names()) for port in self._compiled.outputs]

    @property
    def computes(self) -> DType | None:
        """The type for which low-precision operators were compiled, as OpenVINO reports it; None
        for any other.
        """
        hint = self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        return _DTYPES.get(hint)

    def executed(self) -> list["openvino.ProfilingInfo"]:
        """Return what each node cost in the last run of a session that was opened `profiled`."""
        return list(self._request.profiling_info)

    def _names(self, side: str) -> tuple[str, ...]:
        carried = self._carried
        known = () if carried is None else tuple(spec.name for spec in getattr(carried, side))
        return (*known, *self._known)

    def _spec(self, port: "openvino.ConstOutput", name: str) -> TensorSpec:
        kind = port.element_type.get_type_name()
        if kind not in _DTYPES:
            raise ModelRefusedError(f"{name!r} is {kind}; a contract describes tensors of numbers")
        return TensorSpec(name, _DTYPES[kind], self._shape(port, name))

    def _shape(self, port: "openvino.ConstOutput", name: str) -> tuple[Dimension, ...]:
        shape = port.partial_shape
        if shape.rank.is_dynamic:
            return UNKNOWN_RANK
        sizes = [None if each.is_dynamic else each.get_length() for each in shape]
        declared: Sequence[Dimension] = ()
        if self._carried is not None:
            specs = (*self._carried.inputs, *self._carried.outputs)
            declared = next((spec.shape for spec in specs if spec.name == name), ())
        if len(declared) != len(sizes):
            declared = [UNKNOWN_DIMENSION] * len(sizes)
        return tuple(
            size if size is not None else axis if isinstance(axis, str) else UNKNOWN_DIMENSION
            for size, axis in zip(sizes, declared, strict=True)
        )

    def _check(self, feeds: Mapping[str, np.ndarray]) -> None:
        import openvino

        missing = [name for name in self._inputs if name not in feeds]
        unknown = [name for name in feeds if name not in self._inputs]
        if missing or unknown:
            parts = [f"missing: {', '.join(missing)}"] if missing else []
            parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
            raise RunFailedError(f"{'; '.join(parts)}; inputs: {', '.join(self._inputs)}")
        for name, port in zip(self._inputs, self._compiled.inputs, strict=True):
            wanted = _DTYPES[port.element_type.get_type_name()]
            if (found := dtype_name(feeds[name].dtype)) != wanted:
                raise RunFailedError(f"{name!r} is {found}; the model's input is {wanted}")
            shape, served = feeds[name].shape, port.partial_shape
            if not served.compatible(openvino.PartialShape(list(shape))):
                raise RunFailedError(
                    f"{name!r} has the shape {list(shape)}; the model's is {served}"
                )
        self._check_axes(feeds)

    def _check_axes(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Raise RunFailedError if an axis of the embedded contract has two sizes."""
        carried = self._carried
        if carried is None:
            return
        named = {axis.name for axis in carried.axes}
        sizes: dict[str, tuple[int, str]] = {}
        for spec in carried.inputs:
            if spec.name not in feeds:
                continue
            for axis, size in zip(spec.shape, feeds[spec.name].shape, strict=False):
                if not isinstance(axis, str) or axis not in named:
                    continue
                first, where = sizes.setdefault(axis, (size, spec.name))
                if first != size:
                    raise RunFailedError(
                        f"axis {axis!r} has the size {first} in {where!r} and {size} in"
                        f" {spec.name!r}"
                    )


def _tensor(values: np.ndarray) -> "np.ndarray | openvino.Tensor":
    """Return values in the form that OpenVINO accepts; it takes bfloat16 as bits (2026.4)."""
    import openvino

    values = np.asarray(values, order="C")
    if dtype_name(values.dtype) != "bfloat16":
        return values
    bits = np.atleast_1d(values).view(np.float16)
    return openvino.Tensor(bits, openvino.Shape(list(values.shape)), openvino.Type.bf16)


def _array(tensor: "openvino.Tensor") -> np.ndarray:
    """Return a copy of a tensor's values; OpenVINO shows bfloat16's bits as float16 (2026.4)."""
    values = np.array(tensor.data)
    return values.view(BFLOAT16_BITS) if tensor.element_type.get_type_name() == "bf16" else values


def can_compute(dtype: DType) -> bool:
    """Return True if this CPU has instructions for a type, as OpenVINO reports it."""
    import openvino

    listed = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return _CAPABILITIES[dtype] in listed


def _compile(
    model: "openvino.Model", precision: str, options: OpenVINOOptions, *, profiled: bool
) -> "openvino.CompiledModel":
    """Compile for the CPU; a type that it lacks is computed in float32, never in a third type."""
    import openvino

    core = openvino.Core()
    known = _HINTS.get(precision)
    if known is None:
        raise ModelRefusedError(
            f"the IR was built for the precision {precision!r}, which this convkit does not know"
        )
    hint = known if precision == "float32" or can_compute(precision) else "f32"  # type: ignore[arg-type]
    settings: dict[str, object] = {**options.plugin_properties, "PERF_COUNT": profiled}
    settings["INFERENCE_PRECISION_HINT"] = hint
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        settings["INFERENCE_NUM_THREADS"] = int(threads)
    try:
        compiled = core.compile_model(model, "CPU", settings)
    except RuntimeError as error:
        raise ModelRefusedError(f"OpenVINO {openvino.__version__}: {error}") from error
    found = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    if found != hint:
        raise ModelRefusedError(
            f"OpenVINO {openvino.__version__} computes in {found}; the recipe asks for {hint}"
        )
    return compiled


def _name(port: "openvino.ConstOutput", declared: Sequence[str]) -> str:
    """Return a tensor's name: the contract's name, among those in OpenVINO."""
    names = port.get_names()
    if not names:
        raise ModelRefusedError("the IR has an input or output without a name")
    return next((name for name in declared if name in names), min(names))


def _text(model: "openvino.Model", path: Sequence[str]) -> str | None:
    if not model.has_rt_info(list(path)):
        return None
    return str(model.get_rt_info(list(path)).astype(str))


def _texts(model: "openvino.Model") -> dict[str, str]:
    texts = {CONTRACT_KEY: CONTRACT_PATH, ".".join(PRECISION_PATH): PRECISION_PATH}
    found = {key: _text(model, path) for key, path in texts.items()}
    return {key: text for key, text in found.items() if text is not None}


def _carried(texts: Mapping[str, str]) -> Contract | None:
    """Return the embedded contract; None if it has no readable one (C301)."""
    try:
        return decode(Contract, json.loads(texts.get(CONTRACT_KEY, "")))
    except (ValueError, CodecError):
        return None


def require_openvino() -> None:
    """Raise StageSkippedError if OpenVINO cannot be imported."""
    try:
        import openvino  # noqa: F401
    except ImportError as error:
        raise StageSkippedError(
            f"OpenVINO cannot be imported: {error}. Run without --toolchain host, or install"
            " openvino in this environment"
        ) from error
