"""Inspects a Core ML package: contract, format, element types, operations, metadata, modules."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import InspectRequest, InspectResult, ModuleTypes
from convkit.runtimes.coreml.packages.module_sidecar import read_modules
from convkit.runtimes.coreml.packages.package_metadata import read_metadata
from convkit.runtimes.coreml.session import stated_contract
from convkit.worker.job_context import Context
from convkit.worker.mil.element_values import CONTRACT_NAMES, type_name
from convkit.worker.mil.evaluation.execution_plan import is_constant
from convkit.worker.mil.package_files import read_model, read_package
from convkit.worker.mil.program import Program, load_program, walk
from convkit.worker.original.contract_check import CONTRACT_KEY

_VERSION_KEY = "com.github.apple.coremltools.version"


def run(request: InspectRequest, _context: Context) -> tuple[InspectResult, list[Finding]]:
    """Return a summary of the package; raises StageFailedError if it is not a sound ML program."""
    path = Path(request.model)
    program = load_program(path)
    texts = read_metadata(path)
    version = read_model(read_package(path)).specificationVersion
    operators: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    for operation in walk(program.function):
        if not is_constant(operation.op_type):
            operators[operation.op_type] += 1
        elif operation.op_type != "const" or _is_weight(operation.outputs[0]):
            elements[_dtype(operation.outputs[0])] += _size(operation.outputs[0])
    result = InspectResult(
        graph=stated_contract(program),
        carried=_carried(texts),
        opsets={"Core ML": version},
        ir_version=version,
        producer=f"coremltools {texts[_VERSION_KEY]}" if _VERSION_KEY in texts else "",
        size_bytes=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        elements=dict(elements.most_common()),
        operators=dict(operators.most_common()),
        metadata={
            key: text for key, text in texts.items() if key not in (CONTRACT_KEY, _VERSION_KEY)
        },
        modules=module_types(program, read_modules(path.parent)) if request.modules else (),
    )
    return result, []


def module_types(program: Program, modules: dict[str, str]) -> tuple[ModuleTypes, ...]:
    """Return the element types of a program by module; an operation counts by its first result."""
    nodes: dict[str, Counter[str]] = {}
    weights: dict[str, Counter[str]] = {}
    counted: set[int] = set()
    for operation in walk(program.function):
        if is_constant(operation.op_type) or not operation.outputs:
            continue
        module = modules.get(operation.outputs[0].name, "")
        nodes.setdefault(module, Counter())[_dtype(operation.outputs[0])] += 1
        for given in operation.inputs.values():
            for variable in given if isinstance(given, list | tuple) else (given,):
                if variable is None or id(variable) in counted or not _is_weight(variable):
                    continue
                counted.add(id(variable))
                weights.setdefault(module, Counter())[_dtype(variable)] += _size(variable)
    return tuple(
        ModuleTypes(
            module, dict(own.most_common()), dict(weights.get(module, Counter()).most_common())
        )
        for module, own in nodes.items()
    )


def _carried(texts: dict[str, str]) -> Contract | None:
    try:
        return decode(Contract, json.loads(texts[CONTRACT_KEY])) if CONTRACT_KEY in texts else None
    except (ValueError, CodecError):
        return None


def _is_weight(variable: Any) -> bool:  # noqa: ANN401 - coremltools' Var
    """Return True for a constant with floats: other constants are shapes, axes and modes."""
    constant = variable.op is not None and is_constant(variable.op.op_type)
    return constant and any(
        variable.is_tensor_or_scalar_of(dtype=kind) for kind in ("fp16", "fp32")
    )


def _dtype(variable: Any) -> str:  # noqa: ANN401
    name = type_name(variable.sym_type)
    return CONTRACT_NAMES.get(name, name)


def _size(variable: Any) -> int:  # noqa: ANN401
    size = 1
    for length in variable.shape:
        size *= int(length)
    return size
