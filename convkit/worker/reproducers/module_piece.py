"""The fewest of the original's operations that an exporter or converter gets wrong, as a module."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from convkit.worker.cause.recording.operation_replay import TorchReplay
from convkit.worker.cause.recording.recorded_call import Operation, Recording
from convkit.worker.reproducers.script_text import (
    MOST_LINES,
    SCRIPT,
    Arrays,
    script,
    shows_difference,
)

# Operations at the place that are tried, each with so many steps before it.
_ENDS, _DEPTHS = 8, (1, 2, 4, 8)
_EXPORT = """\
def exported(model, inputs):
    names = {{"input_names": list(inputs), "output_names": ["y"], "opset_version": {opset}}}
    return torch.onnx.export(model, tuple(inputs.values()), dynamo=True, **names).model_proto
"""
_TENSORS = "tensors = {name: torch.from_numpy(each) for name, each in inputs.items()}"


def wrong_module(
    recording: Recording,
    line: str | None,
    near: np.ndarray | None,
    runtime: ModuleType,
    versions: Mapping[str, str],
    opset: int,
    folder: Path,
) -> list[str] | None:
    """Write the script of the fewest operations whose exported graph is wrong; return their names,
    None if none is. They are at a `line` of the model's code, or compute the value `near`.
    """
    for end in list(_ends(recording, line, near))[:_ENDS]:
        seen: list[int] = []
        for depth in _DEPTHS:
            indices = _behind(recording, end, depth)
            if indices == seen or any(_replay(recording, each) is None for each in indices):
                break
            seen = indices
            text, arrays = _script(recording, indices, end, runtime, versions, opset)
            if text.count("\n") >= MOST_LINES:
                break
            arrays.save(folder)
            (folder / SCRIPT).write_text(text, encoding="utf-8")
            if shows_difference(folder / SCRIPT):
                return [recording.operations[each].kind for each in indices]
    return None


def _ends(recording: Recording, line: str | None, near: np.ndarray | None) -> Iterator[Operation]:
    def equals(operation: Operation) -> bool:
        values = [recording.values[each].array for each in operation.outputs]
        return near is not None and any(
            each.shape == near.shape and np.allclose(each, near, equal_nan=True) for each in values
        )

    needed = [recording.operations[each] for each in sorted(recording.needed)]
    at_line = [each for each in needed if line is not None and each.source == line]
    yield from dict.fromkeys((*filter(equals, at_line), *at_line, *filter(equals, needed)))


def _behind(recording: Recording, end: Operation, depth: int) -> list[int]:
    found, last = {end.index}, [end]
    for _ in range(depth - 1):
        producers = {recording.values[v].producer for each in last for v in each.inputs}
        last = [recording.operations[p] for p in producers if p is not None and p not in found]
        found |= {each.index for each in last}
    return sorted(found)


def _replay(recording: Recording, index: int) -> TorchReplay | None:
    replay = recording.operations[index].replay
    return replay if isinstance(replay, TorchReplay) else None


def _script(
    recording: Recording,
    indices: Sequence[int],
    end: Operation,
    runtime: ModuleType,
    versions: Mapping[str, str],
    opset: int,
) -> tuple[str, Arrays]:
    names, inputs, lines = dict[int, str](), dict[str, np.ndarray](), list[str]()
    for index in indices:
        operation, replay = recording.operations[index], _replay(recording, index)
        assert replay is not None
        for value in operation.inputs:
            if value not in names:
                names[value] = f"x{len(inputs)}"
                inputs[names[value]] = np.ascontiguousarray(recording.values[value].array)
        own = [f"v{each}" for each in operation.outputs]
        names |= dict(zip(operation.outputs, own, strict=True))
        lines.append(f"        {', '.join(own)} = {replay.call(names)}")
    definitions = [
        "\n".join(
            [
                "class Model(torch.nn.Module):",
                f"    def forward(self, {', '.join(inputs)}):",
                *lines,
                f"        return v{end.outputs[0]}",
            ]
        ),
        _EXPORT.format(opset=opset),
        runtime.RUN,
    ]
    arrays = Arrays(inputs, recording.values[end.outputs[0]].array)
    statements = [
        *Arrays(inputs, None).lines(),
        _TENSORS,
        "model = Model().eval()",
        "expected = model(**tensors).numpy()",
        'found = run(exported(model, tensors), inputs)["y"]',
        'print("found:", found)',
        'print("expected:", expected)',
        arrays.check(),
    ]
    kinds = ", ".join(dict.fromkeys(recording.operations[each].kind for each in indices))
    claim = f"torch.onnx.export of torch {versions.get('torch', '')} exports {kinds} wrong."
    packages = ("torch", "onnxscript", *runtime.PACKAGES, "numpy")
    imports = ("import torch", *runtime.IMPORTS)
    return script(claim, versions, packages, imports, definitions, statements), Arrays(inputs, None)
