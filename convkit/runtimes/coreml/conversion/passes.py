"""The passes of coremltools' conversion that convkit runs."""

from typing import Any

from convkit.runtimes.coreml.conversion.quotients import BEFORE, register

# coremltools 9.0 turns a factor and an offset per channel into a batch norm with its default
# epsilon of 1e-5, which makes every value 5e-6 of itself too small.
_INEXACT = frozenset({"common::fuse_elementwise_to_batchnorm"})


def exact_pipeline() -> Any:  # noqa: ANN401 - a PassPipeline; coremltools has no types
    """Return coremltools' default pass pipeline, without passes that change results, and with one
    that keeps quotients by one rounded.
    """
    import coremltools as ct

    pipeline = ct.PassPipeline.DEFAULT
    pipeline.remove_passes(_INEXACT)
    pipeline.insert_pass(pipeline.passes.index(BEFORE), register())
    return pipeline
