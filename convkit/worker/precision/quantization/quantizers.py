"""Calls onnxruntime's quantizers as the installed release requires.

The int4 quantizer has had two names (`MatMul4BitsQuantizer` up to 1.21, `MatMulNBitsQuantizer`
since). All of them write to the root logger on import or in use, with advice on preprocessing that
an exported graph does not need.
"""

import contextlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from convkit.protocol.messages import DEFAULT_BLOCK_SIZE, DEFAULT_PERCENTILE, Quantization
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.quantization.node_selection import quantized_operators
from convkit.worker.precision.quantization.preparation import PreparedGraph
from convkit.worker.precision.quantization.weight_by_weight import WeightByWeight
from convkit.worker.runtime_interface.registered_operators import register_libraries

if TYPE_CHECKING:
    import onnxruntime

Feeds = Mapping[str, np.ndarray]

_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
# The lowest opset with DynamicQuantizeLinear; with a QuantizeLinear that has an axis; with 4-bit
# integers.
_LEAST_OPSET = 11
_AXIS_OPSET = 13
INT4_OPSET = 21
INT4_IR_VERSION = 10


def run_quantizer(
    prepared: PreparedGraph,
    destination: Path,
    quantization: Quantization,
    exclude: Sequence[str],
    feeds: Iterable[Feeds],
) -> None:
    """Quantize a prepared model file into another in the same folder, with new weights next to it;
    `exclude` are node names. A 4-bit model refers to the weights that it keeps as `prepared` does.

    Raises StageFailedError with the quantizer's message if it fails.
    """
    try:
        with (
            quiet_root_logger(),
            contextlib.redirect_stdout(sys.stderr),
        ):  # histograms are announced with print
            match quantization.quantize:
                case "dynamic-int8":
                    _dynamic(prepared.file, destination, quantization, exclude)
                case "static-int8":
                    _static(prepared.file, destination, quantization, exclude, feeds)
                case "int4-weights":
                    _four_bits(prepared, destination, quantization, exclude)
    except (MemoryError, StageFailedError):
        raise
    except (
        Exception
    ) as error:  # the quantizers raise arbitrary exceptions: KeyError, IndexError, RuntimeError
        import onnxruntime

        release = f"onnxruntime {onnxruntime.__version__}"
        raise StageFailedError(
            f"{release} cannot quantize the graph ({quantization.quantize}):"
            f" {type(error).__name__}: {error}"
        ) from error


def _dynamic(
    prepared: Path, destination: Path, quantization: Quantization, exclude: Sequence[str]
) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        prepared,
        destination,
        op_types_to_quantize=quantized_operators("dynamic-int8"),
        per_channel=quantization.per_channel,
        reduce_range=bool(quantization.reduce_range),
        weight_type=QuantType.QInt8,
        nodes_to_exclude=list(exclude),
        use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True, "EnableSubgraph": True},
    )


def _static(
    prepared: Path,
    destination: Path,
    quantization: Quantization,
    exclude: Sequence[str],
    feeds: Iterable[Feeds],
) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    reader = OneByOne(list(feeds))
    method = quantization.calibrated.method
    percentile = quantization.calibrated.percentile
    # One case at a time: shapes differ, and a histogram calibrator keeps all tensors of its batch
    # in memory.
    options: dict[str, object] = {"CalibStridedMinMax": 1}
    if method == "percentile":
        options["CalibPercentile"] = percentile if percentile is not None else DEFAULT_PERCENTILE
    if quantization.symmetric:
        # A quantized bias would be int32, which not every runtime dequantizes.
        options |= {"ActivationSymmetric": True, "QuantizeBias": False}
    if quantization.uses_qdq:
        # A product's result is usually consumed in float32 (a bias, a residual sum), so quantizing
        # it too would add error.
        options["OpTypesToExcludeOutputQuantization"] = ["Gather", "Gemm", "MatMul"]
    with _calibrating():
        quantize_static(
            prepared,
            destination,
            reader,
            quant_format=QuantFormat.QDQ if quantization.uses_qdq else QuantFormat.QOperator,
            op_types_to_quantize=quantized_operators("static-int8"),
            per_channel=quantization.per_channel,
            reduce_range=bool(quantization.reduce_range),
            # Symmetric ranges waste half of an unsigned type.
            activation_type=QuantType.QInt8 if quantization.symmetric else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(exclude),
            use_external_data_format=True,
            calibrate_method=getattr(CalibrationMethod, _METHODS[method]),
            extra_options=options,
        )


class _CalibrationSession:
    """A session as calibrators use it, which also exchanges bfloat16 inputs and outputs."""

    def __init__(self, session: "onnxruntime.InferenceSession") -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the session has
        return getattr(self._session, name)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, np.ndarray]) -> list[Any]:
        every = [argument.name for argument in self._session.get_outputs()]
        return run_outputs(self._session, every if names is None else names, feeds)


@contextlib.contextmanager
def _calibrating() -> Iterator[None]:
    """Let the sessions that calibrators open know the recipe's custom operators, and bfloat16.

    Calibrators have no parameter for it, so inside the block their method is another one.
    """
    import onnxruntime
    from onnxruntime.quantization.calibrate import CalibraterBase

    def create_inference_session(calibrator: Any) -> None:  # noqa: ANN401 - an untyped class
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        register_libraries(settings)
        session = onnxruntime.InferenceSession(
            calibrator.augmented_model_path,
            sess_options=settings,
            providers=calibrator.execution_providers,
        )
        calibrator.infer_session = _CalibrationSession(session)

    own = CalibraterBase.create_inference_session
    CalibraterBase.create_inference_session = create_inference_session
    try:
        yield
    finally:
        CalibraterBase.create_inference_session = own


def _four_bits(
    prepared: PreparedGraph, destination: Path, quantization: Quantization, exclude: Sequence[str]
) -> None:
    from onnxruntime.quantization import QuantFormat

    quantizer = _four_bit_quantizer()(
        onnx.load(prepared.file, load_external_data=False),
        block_size=quantization.block_size or DEFAULT_BLOCK_SIZE,
        # If not symmetric, each block has a zero point: 1 % more storage, and less error.
        is_symmetric=quantization.symmetric,
        nodes_to_exclude=list(exclude),
        quant_format=QuantFormat.QDQ if quantization.uses_qdq else QuantFormat.QOperator,
        op_types_to_quantize=("MatMul",),
    )
    with destination.with_name(f"{destination.name}.results").open("wb") as results:
        own = quantizer.node_quantizer
        quantizer.node_quantizer = WeightByWeight(own, prepared.weights, results)
        quantizer.process()
    quantizer.model.save_model_to_file(str(destination), use_external_data_format=True)


def _four_bit_quantizer() -> Any:  # noqa: ANN401 - an untyped class
    for module, name in (
        ("matmul_nbits_quantizer", "MatMulNBitsQuantizer"),
        ("matmul_4bits_quantizer", "MatMul4BitsQuantizer"),
    ):
        path = f"onnxruntime.quantization.{module}"
        if importlib.util.find_spec(path) is not None:
            return getattr(importlib.import_module(path), name)
    raise StageFailedError(
        "this onnxruntime has no quantizer for 4-bit weights; use 1.21 or later under tools"
    )


class OneByOne:
    """Calibration data in the quantizers' interface: `set_range`, then `get_next` until None."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._feeds = feeds
        self._next, self._end = 0, len(feeds)

    def __len__(self) -> int:
        return len(self._feeds)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Restrict the following feeds to a range of the data."""
        self._next, self._end = start_index, min(end_index, len(self._feeds))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next feeds; None at the end."""
        if self._next >= self._end:
            return None
        self._next += 1
        return dict(self._feeds[self._next - 1])


@contextlib.contextmanager
def quiet_root_logger() -> Iterator[None]:
    """Suppress everything below errors on the root logger, which the quantizers use, and restore it
    afterwards.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.setLevel(logging.ERROR)
    named = logging.getLogger("onnxruntime.quantization")
    named_level = named.level
    named.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        named.setLevel(named_level)


def least_opset(quantization: Quantization) -> int:
    """Return the lowest opset that can express a kind of quantization."""
    if quantization.quantize == "int4-weights" and quantization.uses_qdq:
        return INT4_OPSET
    return _AXIS_OPSET if quantization.per_channel and quantization.uses_qdq else _LEAST_OPSET
