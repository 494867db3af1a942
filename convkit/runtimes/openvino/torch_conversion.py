"""A torch module becomes an OpenVINO model through OpenVINO's own PyTorch front end."""

import functools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.runtimes.openvino.masked_rows import guard_masked_rows
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.refusal_texts import in_brief
from convkit.runtimes.openvino.session import OpenVINOSession
from convkit.runtimes.openvino.trial_runs import accepted_examples, problem
from convkit.worker.exporters.decompositions import resampling, windows
from convkit.worker.exporters.decompositions.complex_pairs import has_complex, without_complex
from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.graph_rewriting import decomposed_where
from convkit.worker.exporters.dynamic_trace import trace
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.operation_places import place_of_operator
from convkit.worker.original.probing.prepared_model import PreparedModel
from convkit.worker.original.probing.value_branches import value_dependent_lines
from convkit.worker.runtime_interface.sessions import ModelRefusedError

if TYPE_CHECKING:
    import openvino

# How the front end names operators that it cannot convert: `aten.polar.default`, `aten::polar`.
_OPERATOR = re.compile(r"\baten(?:\.|::)(?P<name>\w+)")

# What the front end converts wrongly, or not, in other operations.
_REWRITTEN: dict[Any, Callable[..., object]] = {
    torch.ops.aten.unfold.default: windows.unfold,
    torch.ops.aten.unfold_backward.default: windows.unfold_backward,
    torch.ops.aten.grid_sampler.default: resampling.sampled_at,
    torch.ops.aten.grid_sampler_3d.default: resampling.sampled_at,
}


def convert_module(
    prepared: PreparedModel, contract: Contract, options: OpenVINOOptions
) -> "openvino.Model":
    """Convert a model, with the contract's names, order and axes.

    torch.export's program is converted, which keeps branches and sizes; then one without complex
    numbers and windows, in other operations; and at last a trace on the examples, unless values
    decide what the model computes. The first of them that OpenVINO converts and runs is returned.

    Raises UnexportableError with V103 for an operator that the front end lacks, StageFailedError
    for anything else that it refuses, and for a model that it converts and cannot run.
    """
    refused: StageFailedError | None = None
    for way, make in _ways(prepared, contract):
        try:
            model = _named(make(), contract)
            if (failure := _failure(model, prepared, options)) is None:
                return model
            error = StageFailedError(f"OpenVINO converts the module, and cannot run it: {failure}")
        except StageFailedError as stopped:
            error = stopped
        except Exception as stopped:  # noqa: BLE001 - the front end has exceptions of its own
            error = _refusal(stopped, prepared)
        # An operator's line says most.
        if refused is None:
            refused = error
        elif not isinstance(refused, UnexportableError):
            refused = StageFailedError(f"{refused}; {way}: {_shortened(error)}")
    assert refused is not None
    raise refused


def _ways(
    prepared: PreparedModel, contract: Contract
) -> Iterator[tuple[str, Callable[[], "openvino.Model"]]]:
    """Yield ways to convert a module, best first, each with what it is called in a sentence."""
    module, inputs = prepared.module, prepared.probe.inputs
    root = prepared.loaded.source_root
    programs: list[torch.export.ExportedProgram] = []

    def exported() -> "openvino.Model":
        programs.append(decomposed(trace(module, inputs, contract, root)))
        return _converted(programs[0])

    yield "from torch.export's program", exported
    for program in programs:
        if has_complex(program) or any(each.target in _REWRITTEN for each in program.graph.nodes):
            yield "in other operations", functools.partial(_converted_otherwise, program)

    def traced() -> "openvino.Model":
        if lines := value_dependent_lines(module, inputs, root):
            raise StageFailedError(f"it would keep one side of the branch at {lines[0]}")
        return _converted(module, inputs)

    yield "from a trace", traced


def _converted_otherwise(program: torch.export.ExportedProgram) -> "openvino.Model":
    return _converted(_rewritten(program))


def _rewritten(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        if has_complex(program):
            program = decomposed(without_complex(program, keeps_transforms=False))
        return decomposed_where(program, lambda _: True, _REWRITTEN)


def _failure(
    model: "openvino.Model", prepared: PreparedModel, options: OpenVINOOptions
) -> str | None:
    contract = prepared.module.contract
    names = [spec.name for spec in (*contract.inputs, *contract.outputs)]
    try:
        session = OpenVINOSession(model, options, names)
    except ModelRefusedError as error:
        return in_brief(error)
    return problem(session, accepted_examples(prepared))


def _converted(
    source: torch.nn.Module | torch.export.ExportedProgram,
    example: Sequence[torch.Tensor] | None = None,
) -> "openvino.Model":
    """Convert as OpenVINO's users do, with masked rows as in torch. Raises what it raises."""
    import openvino

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own deprecations
        if example is None:
            model = openvino.convert_model(source)
        else:
            model = openvino.convert_model(source, example_input=tuple(example))
    guard_masked_rows(model)
    return model


def _named(model: "openvino.Model", contract: Contract) -> "openvino.Model":
    """Give inputs and outputs the contract's names and sizes: the front end has others, or none."""
    import openvino

    for side, ports, specs in (
        ("inputs", model.inputs, contract.inputs),
        ("outputs", model.outputs, contract.outputs),
    ):
        if len(ports) != len(specs):
            raise StageFailedError(
                f"OpenVINO's model has {len(ports)} {side}, and the contract {len(specs)}"
            )
    model.set_friendly_name("model")  # its own is a counter, and so are names of values
    for node in model.get_ordered_ops():
        for port in node.outputs():
            port.get_tensor().set_names(set())
    for port, spec in zip(model.inputs, contract.inputs, strict=True):
        port.get_tensor().set_names({spec.name})
        port.get_node().set_friendly_name(spec.name)
    taken = {spec.name for spec in contract.inputs}
    for port, spec in zip(model.outputs, contract.outputs, strict=True):
        names = port.get_tensor().get_names()
        if names & taken:  # two outputs of one value, or an input that is an output
            _apart(port, spec)
        else:
            port.get_tensor().set_names({spec.name})
        taken.add(spec.name)
    model.reshape(
        {
            spec.name: openvino.PartialShape(
                [size if isinstance(size, int) else -1 for size in spec.shape]
            )
            for spec in contract.inputs
        }
    )
    return model


def _apart(port: "openvino.Output", spec: TensorSpec) -> None:
    """Let an output have a value of its own."""
    from openvino import opset13

    result = port.get_node()
    source = result.input(0).get_source_output()
    own = opset13.reshape(source, opset13.shape_of(source), special_zero=False)
    own.output(0).get_tensor().set_names({spec.name})
    result.input(0).replace_source_output(own.output(0))


def _refusal(error: Exception, prepared: PreparedModel) -> StageFailedError:
    """Return V103 at the operator's line, if the front end names one."""
    import openvino

    release = str(openvino.__version__).partition("-")[0]
    failed = f"OpenVINO {release} cannot convert the module"
    names = list(dict.fromkeys(match["name"] for match in _OPERATOR.finditer(str(error))))
    if not names:
        return StageFailedError(f"{failed}: {in_brief(error)}")
    root = prepared.loaded.source_root
    places = (
        place_of_operator(prepared.module, prepared.probe.inputs, name, root) for name in names
    )
    source, module = next(filter(None, places), (None, ""))
    where = f", at {source}" if source else ""
    return UnexportableError(
        [
            Finding(
                "V103",
                f"{failed}: it does not convert {', '.join(f'aten::{name}' for name in names)}"
                f"{where}",
                Place(module=module or None, source=source),
                {"operators": [f"aten::{name}" for name in names]},
                Remedy(
                    "Write this line of the model with other operations, use an OpenVINO release"
                    " that converts it (tools.openvino), or serve the model with runtime:"
                    " onnxruntime. None of these was tried."
                ),
            )
        ]
    )


def _shortened(error: StageFailedError) -> str:
    """Return an error without what the one before it said: which release cannot do what."""
    return (
        str(error).partition(" the module: ")[2]
        or str(error).partition("cannot run it: ")[2]
        or str(error)
    )
