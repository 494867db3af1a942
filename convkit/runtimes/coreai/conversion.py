"""torch.export's programs become a Core AI file, in a process of its own: coreai-torch's optimizer
can end it (its issue 33).
"""

import contextlib
import dataclasses
import itertools
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import encode
from convkit.runtimes.coreai.compression import IncompressibleError, compressed
from convkit.runtimes.coreai.file_contract import METADATA_FILE
from convkit.runtimes.coreai.options import CompressionOptions
from convkit.runtimes.coreai.traced_program import is_decomposable, origin_of
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.cause.graphs.isolated_trials import survived
from convkit.worker.exporters.dynamic_trace import innermost
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import CONTRACT_KEY

if TYPE_CHECKING:
    from torch.fx import Node

# Keys of metadata.json that change with every conversion.
_DATE = "creationDate"
_MOST_REFUSED = 8

ConvertedT = TypeVar("ConvertedT")


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """A function of a file: a program, with the names of its inputs, outputs and states."""

    name: str
    program: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[str, ...] = ()


def entry_point(name: str, program: ExportedProgram, contract: Contract) -> EntryPoint:
    """Return an entry point with a contract's inputs and outputs, and the program's states under
    their buffers' names.
    """
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    states = (
        str(spec.target).rpartition(".")[2]
        for spec in signature.input_specs
        if spec.kind is InputKind.BUFFER and spec.target in changed
    )

    def names(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
        return tuple(spec.name for spec in specs)

    return EntryPoint(name, program, names(contract.inputs), names(contract.outputs), tuple(states))


def save_converted(
    entries: Sequence[EntryPoint],
    file: Path,
    texts: Mapping[str, str],
    root: str | None = None,
    compression: CompressionOptions | None = None,
) -> None:
    """Convert programs and write one file with all of them; `texts` is its metadata.

    Two conversions of the same programs write the same bytes. Raises UnexportableError with V103 or
    T108 at the operator that coreai-torch refuses, and StageFailedError if its process dies.
    """

    def convert(report: object, deadly: frozenset[int]) -> _Refusal | None:
        assert callable(report)
        if deadly:
            return _Refusal("coreai-torch crashes when it converts the model", None)
        report(0)
        return _convert(entries, file, texts, root, compression)

    refusal = survived(convert)
    if refusal is not None:
        shutil.rmtree(file, ignore_errors=True)
        raise refusal.as_error()
    if not (file / METADATA_FILE).is_file():
        raise StageFailedError("coreai-torch crashes when it converts the model")


def simplifying(
    convert: Callable[[tuple[str, ...]], ConvertedT], decompose: tuple[str, ...]
) -> tuple[ConvertedT, tuple[str, ...]]:
    """Convert, with the operators decomposed that coreai-torch refuses for their arguments, if
    torch defines them by others. Return what `convert` does, and all decomposed operators.
    """
    for _ in range(_MOST_REFUSED):
        try:
            return convert(decompose), decompose
        except UnexportableError as error:
            operator = str(error.findings[0].evidence.get("operation", ""))
            if error.findings[0].code != "V103" or operator in ("", *decompose):
                raise
            if not is_decomposable(operator):
                raise
            decompose = (*decompose, operator)
    return convert(decompose), decompose


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """Why coreai-torch does not convert a program, and the node where it stopped, if known."""

    message: str
    origin: OperationOrigin | None
    is_integer: bool = False

    def as_error(self) -> StageFailedError:
        """Return the error that a stage raises."""
        if self.origin is None:
            return StageFailedError(self.message)
        code = "T108" if self.is_integer else "V103"
        remedy = (
            "Keep whole numbers within int32, or compute with floats where they are exact"
            if self.is_integer
            else "Write this line of the model with other operations or arguments, or use a"
            " different release of coreai-torch (tools.coreai-torch). convkit has tried neither"
        )
        evidence = {"operation": self.origin.operator, "operators": [self.origin.operator]}
        finding = Finding(
            code, self.message, self.origin.place(), dict(evidence), Remedy(f"{remedy}.")
        )
        return UnexportableError([finding])


def _convert(
    entries: Sequence[EntryPoint],
    file: Path,
    texts: Mapping[str, str],
    root: str | None,
    compression: CompressionOptions | None,
) -> _Refusal | None:
    """Convert in this process, and return why that is impossible, if it is."""
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    with warnings.catch_warnings(), contextlib.redirect_stderr(None):
        warnings.simplefilter("ignore")
        import coreai_torch
        from coreai.runtime import AIModelAssetMetadata
        from coreai_torch import TorchConverter

        converter = TorchConverter()
        reached: list[Node] = []
        _watch(converter, reached)
        try:
            with _steady_names():
                for entry in entries:
                    converter.add_exported_program(
                        entry.program,
                        input_names=entry.inputs,
                        output_names=entry.outputs,
                        state_names=entry.states,
                        entrypoint_name=entry.name,
                    )
                program = converter.to_coreai()
                if compression is not None:
                    program = compressed(program, compression)
                metadata = AIModelAssetMetadata()
                for name, text in texts.items():
                    metadata.set_custom(name, text)
                program.save_asset(file, metadata)
        except IncompressibleError as error:
            return _Refusal(f"{error}; remove compression", None)
        except Exception as error:  # noqa: BLE001 - the converter has exceptions of its own
            origin = origin_of(reached[-1], root) if reached else None
            what = str(origin) if origin is not None else "the model"
            version = coreai_torch.__version__
            return _Refusal(
                f"coreai-torch {version} cannot convert {what}: {innermost(error)}",
                origin,
                isinstance(error, OverflowError) or (bool(reached) and _has_large(reached[-1])),
            )
    _drop_date(file)
    return None


def _has_large(node: "Node") -> bool:
    """Say whether an operator is called with a whole number that int32 cannot hold."""
    return any(isinstance(each, int) and not -(2**31) <= each < 2**31 for each in node.args)


def _watch(converter: Any, reached: "list[Node]") -> None:  # noqa: ANN401 - coreai-torch's
    """Note each node that is converted, so that the one that fails is known."""
    convert = converter._get_operation  # noqa: SLF001 - no public hook

    def noted(node: "Node") -> None:
        reached.append(node)
        convert(node)
        reached.pop()

    converter._get_operation = noted  # noqa: SLF001


@contextlib.contextmanager
def _steady_names() -> Iterator[None]:
    """Let the parts of a program be numbered, inside the block: coreai draws their names."""
    from coreai.authoring import func, graph_builder

    numbers = itertools.count()

    def numbered(name: str) -> str:
        return f"{name}_{next(numbers)}"

    drawn = [(each, each._randomize_fn_name) for each in (func, graph_builder)]  # noqa: SLF001
    for module, _ in drawn:
        module._randomize_fn_name = numbered  # noqa: SLF001
    try:
        yield
    finally:
        for module, function in drawn:
            module._randomize_fn_name = function  # noqa: SLF001


def _drop_date(file: Path) -> None:
    """Remove the date from a file's metadata: the same model is the same file."""
    path = file / METADATA_FILE
    stated = json.loads(path.read_text(encoding="utf-8"))
    stated.pop(_DATE, None)
    path.write_text(json.dumps(stated, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def contract_texts(contract: Contract) -> dict[str, str]:
    """Return the metadata that carries a contract."""
    return {CONTRACT_KEY: json.dumps(encode(contract.carried()), sort_keys=True)}
