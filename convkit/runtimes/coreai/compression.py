"""Weights stored in fewer bits, by coreai-opt's pass on the converted program."""

import logging
from typing import Any

from convkit.runtimes.coreai.options import CompressionOptions

# What the pass puts in a weight's place.
_UNPACKS = "coreai.blockwise_shift_scale"
_DEFAULT_BLOCK = 32


class IncompressibleError(Exception):
    """No weight could be compressed; the message says why."""


def compressed(program: Any, options: CompressionOptions) -> Any:  # noqa: ANN401 - coreai's
    """Return a program whose matrices and convolutions read packed weights; each is unpacked where
    it is used, so the arithmetic keeps its type.

    Weights with up to 1,024 elements, coreai-opt's threshold, stay as they are. Raises
    IncompressibleError if all of them do.
    """
    from coreai_opt.coreai_utils import CompressionGranularity, DType, quantize_weights

    heard = _Heard()
    logger = logging.getLogger("coreai_opt")
    logger.addHandler(heard)
    try:
        if options.weights == "int8":
            made = quantize_weights(
                program, dtype=DType.INT8, granularity=CompressionGranularity.PER_CHANNEL
            )
        else:
            made = quantize_weights(
                program,
                dtype=DType.INT4,
                granularity=CompressionGranularity.PER_BLOCK,
                block_size=options.block_size or _DEFAULT_BLOCK,
            )
    finally:
        logger.removeHandler(heard)
    if not _unpacks(made):
        why = f": {heard.messages[0]}" if heard.messages else ", as each is small"
        raise IncompressibleError(f"coreai-opt compresses none of the weights{why}")
    return made


class _Heard(logging.Handler):
    """Keeps what the pass says of weights that it skips."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(" ".join(record.getMessage().split()))


def _unpacks(program: Any) -> bool:  # noqa: ANN401 - coreai's
    """Say whether a program has a packed weight."""
    from coreai._compiler.ir import WalkResult

    found = False

    def look(operation: Any) -> Any:  # noqa: ANN401 - coreai's
        nonlocal found
        found = found or operation.name == _UNPACKS
        return WalkResult.INTERRUPT if found else WalkResult.ADVANCE

    program._module._mlir_module.operation.walk(look)  # noqa: SLF001 - no public way
    return found
