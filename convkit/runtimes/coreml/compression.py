"""Weight compression by coremltools' own passes, on a model in memory."""

from collections.abc import Iterator, Mapping
from typing import Any

from convkit.protocol.module_patterns import matches
from convkit.runtimes.coreml.packages.options import CompressionOptions
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.coremltools_import import quiet
from convkit.worker.mil.evaluation.execution_plan import is_constant
from convkit.worker.mil.program import Program, walk

_DEFAULT_BITS, _DEFAULT_BLOCK = 4, 32


def compress(
    model: Any,  # noqa: ANN401 - coremltools has no types
    program: Program,
    options: CompressionOptions,
    modules: Mapping[str, str],
) -> Any:  # noqa: ANN401
    """Return a model (coremltools' MLModel) with compressed weights; `program` and `modules` belong
    to it.

    Weights with fewer than 2,048 elements (coremltools' threshold) are not compressed, nor are
    those of modules in `keep`. Raises StageFailedError if coremltools refuses.
    """
    kept: dict[str, None] = dict.fromkeys(_kept(program, options, modules))
    try:
        with quiet():
            return _compressed(model, options, kept)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise StageFailedError(f"coremltools cannot compress the weights: {error}") from error


def _compressed(model: Any, options: CompressionOptions, kept: Mapping[str, None]) -> Any:  # noqa: ANN401
    from coremltools.optimize import coreml as cto

    if options.prune is not None:
        config = cto.OpMagnitudePrunerConfig(target_sparsity=options.prune)
        model = cto.prune_weights(model, _configured(config, kept))
    joint = {"joint_compression": True} if options.prune is not None else {}
    match options.weights:
        case "int8":
            linear = cto.OpLinearQuantizerConfig(
                mode="linear_symmetric", dtype="int8", granularity="per_channel"
            )
            model = cto.linear_quantize_weights(model, _configured(linear, kept), **joint)
        case "int4":
            size = options.block_size or _DEFAULT_BLOCK
            blocks = cto.OpLinearQuantizerConfig(
                mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=size
            )
            model = cto.linear_quantize_weights(model, _configured(blocks, kept), **joint)
        case "palette":
            # One worker, so that the k-means clusters depend only on the weights.
            palette = cto.OpPalettizerConfig(
                mode="kmeans", nbits=options.bits or _DEFAULT_BITS, num_kmeans_workers=1
            )
            model = cto.palettize_weights(model, _configured(palette, kept), **joint)
        case None:
            pass
    return model


def _configured(config: Any, kept: Mapping[str, None]) -> Any:  # noqa: ANN401
    from coremltools.optimize import coreml as cto

    return cto.OptimizationConfig(global_config=config, op_name_configs=dict(kept))


def _kept(
    program: Program, options: CompressionOptions, modules: Mapping[str, str]
) -> Iterator[str]:
    """Yield the names of constants used by any module in `keep`."""
    for operation in walk(program.function):
        results = [variable.name for variable in operation.outputs]
        if is_constant(operation.op_type) or not results:
            continue
        module = next((modules[name] for name in results if name in modules), "")
        if not any(matches(pattern, module) for pattern in options.keep):
            continue
        for given in operation.inputs.values():
            for variable in given if isinstance(given, list | tuple) else (given,):
                if (
                    variable is not None
                    and variable.op is not None
                    and is_constant(variable.op.op_type)
                ):
                    yield variable.op.name
