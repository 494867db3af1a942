"""Torch modules converted with coremltools, saved, and loaded again as a Mac-less reader finds
them.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mil_programs import convert_and_save, ct

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program import load_program


def exported(
    module: torch.nn.Module, example: Sequence[torch.Tensor], **options: Any
) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's exporter warns of its own parts
        return torch.export.export(module.eval(), tuple(example), **options).run_decompositions({})


def converted(
    program: torch.export.ExportedProgram,
    path: Path,
    *,
    half: bool = False,
    target: Any = None,
    **options: Any,
) -> Path:
    """Convert and save."""
    return convert_and_save(
        program,
        path,
        compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
        minimum_deployment_target=target or ct.target.iOS17,
        **options,
    )


def evaluated(
    path: Path, inputs: Sequence[torch.Tensor] | Mapping[str, torch.Tensor]
) -> list[np.ndarray]:
    """Evaluate a package on inputs in the program's order, in the types that it takes."""
    program = load_program(path)
    names = [each.name for each in program.inputs]
    arrays = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
    feeds = {each.name: arrays[each.name].numpy().astype(each.dtype) for each in program.inputs}
    return list(Evaluator(program).run(feeds).outputs.values())


def outputs_of(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Return what torch gives, every output in float32 or as whole numbers."""
    with torch.inference_mode():
        given = module.eval()(*inputs)
    found = given if isinstance(given, tuple | list) else (given,)
    return [each.float().numpy() if each.is_floating_point() else each.numpy() for each in found]
