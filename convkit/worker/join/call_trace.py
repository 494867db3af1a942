"""What every call of the joined originals returned, as files of the reference."""

from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Call
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors, write_tensors

_FOLDER = "calls"


def write_call(reference: Path, case: str, call: Call, number: int, outputs: Feeds) -> None:
    """Write what a call returned in a loop's pass `number` (0 outside of loops) of a case."""
    write_tensors(reference / _FOLDER, _name(case, call, number), "outputs", outputs)


def read_call(reference: Path, case: str, call: Call, number: int, contract: Contract) -> Feeds:
    """Return what a call returned, by output; raises StageFailedError if it was not written."""
    name = _name(case, call, number)
    return dict(read_tensors(reference / _FOLDER, name, "outputs", contract.outputs))


def _name(case: str, call: Call, number: int) -> str:
    return f"{case}:{call.name}:{number}"
