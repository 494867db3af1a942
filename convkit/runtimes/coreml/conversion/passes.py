"""The passes of coremltools' conversion that convkit runs."""

import traceback
from typing import Any

import numpy as np

from convkit.runtimes.coreml.conversion.quotients import BEFORE, register

# coremltools 9.0 turns a factor and an offset per channel into a batch norm with its default
# epsilon of 1e-5, which makes every value 5e-6 of itself too small.
_INEXACT = frozenset({"common::fuse_elementwise_to_batchnorm"})
# coremltools' folder of passes that write a program's operations as fewer or cheaper ones.
_OPTIMIZATIONS = "coremltools.converters.mil.mil.passes.defs.optimize_"
_NARROWING = "common::add_int16_cast"
_LARGEST = int(np.iinfo(np.int16).max)


def exact_pipeline() -> Any:  # noqa: ANN401 - a PassPipeline; coremltools has no types
    """Return coremltools' default pass pipeline, without passes that change results, and with one
    that keeps quotients by one rounded.
    """
    import coremltools as ct

    pipeline = ct.PassPipeline.DEFAULT
    pipeline.remove_passes(_INEXACT)
    _keep_dividends()
    pipeline.insert_pass(pipeline.passes.index(BEFORE), register())
    return pipeline


def _keep_dividends() -> None:
    """Let coremltools fold a convolution's divisor into its weights, and no dividend; again changes
    nothing. coremltools 9.0 takes a constant over a convolution for the convolution over it.
    """
    from coremltools.converters.mil.mil.passes.defs.optimize_conv import fuse_conv_scale

    own = fuse_conv_scale._try_to_transform  # noqa: SLF001 - where a pair is folded
    if getattr(own, "keeps_dividends", False):
        return

    def folded(convolution: Any, scale: Any) -> bool:  # noqa: ANN401
        is_divisor = scale.op_type == "real_div" and scale.x is not convolution.outputs[0]
        return not is_divisor and own(convolution, scale)

    folded.keeps_dividends = True  # type: ignore[attr-defined]  # patching twice changes nothing
    fuse_conv_scale._try_to_transform = staticmethod(folded)  # noqa: SLF001


def failed_optimization(error: BaseException) -> str | None:
    """Return the name of the pass in which coremltools failed, if a program is complete without it.

    Some passes that look for a pattern fail on what is not that pattern, such as a slice that
    begins at a computed place.
    """
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    names = {
        each: name
        for name, each in PASS_REGISTRY.passes.items()
        if isinstance(each, type) and each.__module__.startswith(_OPTIMIZATIONS)
    }
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = names.get(type(frame.f_locals.get("self")))
        if name is not None:
            return str(name)
    return None


def half_pipeline() -> Any:  # noqa: ANN401
    """Return it for a float16 program, in which integers become int16 where they fit."""
    pipeline = exact_pipeline()
    pipeline.set_options(_NARROWING, {"op_selector": fits_int16})
    return pipeline


def fits_int16(operation: Any) -> bool:  # noqa: ANN401
    """Return True if an operation's integers fit int16, whatever the inputs: constants, and indices
    of an axis of known size.

    coremltools 9.0 narrows all integers of a float16 program's gathers, also those that are picked
    (70000 becomes 4464), and takes uint16 for negative ones if a constant beside them needs it.
    """
    from coremltools.converters.mil.mil import types

    for name, given in operation.inputs.items():
        if not hasattr(given, "dtype") or not types.is_int(given.dtype):
            continue
        if given.val is not None:
            if np.size(given.val) and np.abs(np.int64(given.val)).max() > _LARGEST:
                return False
        elif name != "indices" or not _is_short(operation):
            return False
    return True


def _is_short(operation: Any) -> bool:  # noqa: ANN401
    """Return True if the axes that indices count are known to be short enough."""
    from coremltools.converters.mil.mil.types.symbolic import is_symbolic

    axis = getattr(operation, "axis", None)
    shape = operation.x.shape
    sizes = shape if axis is None else [shape[int(axis.val)]]
    return all(not is_symbolic(size) and int(size) <= _LARGEST for size in sizes)
