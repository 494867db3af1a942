"""Checks the contract's inputs against the signature of the model's forward and the model's own
tokenizer.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Literal

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.spelling import nearest_name, suggestion
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import in_order
from convkit.worker.original.input_structure import parameter_of
from convkit.worker.original.loading.loaded_model import LoadedModel

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def forward_parameters(loaded: LoadedModel) -> dict[str, inspect.Parameter]:
    """Return forward's named parameters, in order; raises StageFailedError if forward cannot be
    called with keywords.
    """
    parameters = inspect.signature(loaded.module.forward).parameters
    named = {name: parameter for name, parameter in parameters.items() if parameter.kind in _NAMED}
    if not named and not takes_any_name(loaded):
        raise StageFailedError(
            f"model: forward of {type(loaded.module).__name__} has no named parameters "
            f"({inspect.signature(loaded.module.forward)}), so inputs cannot be bound by name. "
            "Give forward a parameter for each input."
        )
    return named


def takes_any_name(loaded: LoadedModel) -> bool:
    """Return whether forward takes arguments by any name (`**kwargs`)."""
    parameters = inspect.signature(loaded.module.forward).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def signature_findings(
    loaded: LoadedModel,
    contract: Contract,
    input_order: Literal["signature", "recipe"] = "signature",
    omit: Sequence[str] = (),
) -> list[Finding]:
    """Return C101, C102, C103 and C104: the contract's inputs compared with forward's parameters.

    An input without its own parameter that forward would accept through **kwargs is not reported
    here: `probe.ignored_inputs` tests whether it has any effect.
    """
    parameters = forward_parameters(loaded)
    for name in omit:
        if name not in parameters and not takes_any_name(loaded):
            raise StageFailedError(
                f"model.omit: forward has no parameter {name!r}{suggestion(name, parameters)}"
            )
    declared: dict[str, list[TensorSpec]] = {}
    for spec in contract.inputs:
        declared.setdefault(parameter_of(spec, parameters), []).append(spec)
    findings = []
    if not takes_any_name(loaded):
        free = [name for name in parameters if name not in declared]
        unknown = [
            spec for key, specs in declared.items() if key not in parameters for spec in specs
        ]
        findings += [unknown_input(spec, free, parameters, contract) for spec in unknown]
    findings += [
        _undeclared_input(name, parameters)
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and name not in declared
        and not _renamed(name, findings)
    ]
    if input_order == "signature":
        findings += _order_findings(declared, list(parameters))
    return findings


def unknown_input(
    spec: TensorSpec,
    free: Sequence[str],
    parameters: Mapping[str, inspect.Parameter],
    contract: Contract,
) -> Finding:
    """Return C104 if an undeclared parameter has a similar name, otherwise C101."""
    key = spec.origin or spec.name
    text = (
        f"The recipe declares input {key!r}; the model's forward has the parameters"
        f" {', '.join(parameters)}."
    )
    nearest = nearest_name(key, free)
    evidence = {"parameters": list(parameters)}
    if nearest is None and (only := _only_candidate(free, parameters, contract)) is not None:
        remedy = Remedy(
            f"If {key!r} is the model's {only!r}, the only parameter without an input: add from:"
            f" {only}.",
            {f"inputs.{contract.inputs.index(spec)}.from": only},
        )
        return Finding("C101", text, Place(tensor=spec.name), {**evidence, "only": only}, remedy)
    if nearest is None:
        remedy = Remedy(
            f"Remove {key!r} from inputs, or name the parameter it belongs to with from: NAME."
        )
        return Finding("C101", text, Place(tensor=spec.name), evidence, remedy)
    return Finding(
        "C104",
        f"{text} Did you mean {nearest!r}?",
        Place(tensor=spec.name),
        {**evidence, "nearest": nearest},
        Remedy(
            f"Use the name {nearest!r}, or keep {spec.name!r} and add from: {nearest}.",
            {f"inputs.{contract.inputs.index(spec)}.{'from' if spec.origin else 'name'}": nearest},
        ),
    )


def _only_candidate(
    free: Sequence[str], parameters: Mapping[str, inspect.Parameter], contract: Contract
) -> str | None:
    """Return the only required parameter without an input, if only one input is unknown."""
    required = [name for name in free if parameters[name].default is inspect.Parameter.empty]
    unknown = [
        other for other in contract.inputs if parameter_of(other, parameters) not in parameters
    ]
    return required[0] if len(required) == 1 and len(unknown) == 1 else None


def _renamed(name: str, findings: Sequence[Finding]) -> bool:
    """Say whether an unknown input was found to be this parameter under another name."""
    return any(
        name in (finding.evidence.get("nearest"), finding.evidence.get("only"))
        for finding in findings
    )


def _undeclared_input(name: str, parameters: dict[str, inspect.Parameter]) -> Finding:
    order = ", ".join(parameters)
    return Finding(
        "C102",
        f"The model's forward requires {name!r}, which the recipe does not declare. Its parameters:"
        f" {order}.",
        Place(tensor=name),
        {"parameters": list(parameters)},
        Remedy(f"Declare {name!r} under inputs, in its position."),
    )


def _order_findings(
    declared: Mapping[str, Sequence[TensorSpec]], parameters: list[str]
) -> list[Finding]:
    known = [name for name in declared if name in parameters]
    expected = sorted(known, key=parameters.index)
    if known == expected:
        return []
    moved = next(name for name, other in zip(known, expected, strict=True) if name != other)
    return [
        Finding(
            "C103",
            f"The recipe lists the inputs as {', '.join(known)}; the model's forward has"
            f" {', '.join(expected)}.",
            Place(tensor=moved),
            {"declared": known, "signature": expected},
            Remedy(
                "List the recipe's inputs in the model's order. If you want the recipe's order,"
                " set export.input_order: recipe.",
                {
                    "inputs": in_order(
                        [spec.name for specs in declared.values() for spec in specs],
                        [spec.name for name in expected for spec in declared[name]],
                    )
                },
                proven=True,
            ),
        )
    ]
