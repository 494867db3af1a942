"""What the original returned for the cases of an earlier reference."""

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import EarlierCases
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import StageFailedError


class EarlierOutputs:
    """Finds outputs by the bytes of the inputs. `used` counts the cases that were found."""

    def __init__(self, earlier: EarlierCases | None, contract: Contract) -> None:
        self._earlier = earlier
        self._contract = contract
        self.used = 0

    def find(self, feeds: Feeds) -> tuple[Feeds, float] | None:
        """Return the outputs for these inputs, and the seconds that the original took for them;
        None if it must run.
        """
        if self._earlier is None:
            return None
        case = self._cases.get(_digest({name: feeds[name] for name in self._names}))
        outputs = self._outputs(Path(self._earlier.folder), case) if case is not None else None
        if case is None or outputs is None:
            return None
        self.used += 1
        return outputs, self._earlier.seconds[case]

    @functools.cached_property
    def _names(self) -> list[str]:
        return [spec.name for spec in self._contract.inputs]

    @functools.cached_property
    def _cases(self) -> Mapping[str, str]:
        """The names of the earlier cases, by the digest of their inputs."""
        assert self._earlier is not None
        found = {}
        for name in self._earlier.seconds:
            try:
                inputs = read_tensors(
                    Path(self._earlier.folder), name, "inputs", self._contract.inputs
                )
            except StageFailedError:  # a case that has no inputs: it could not run
                continue
            found[_digest(inputs)] = name
        return found

    def _outputs(self, folder: Path, case: str) -> Feeds | None:
        try:
            found = read_tensors(folder, case, "outputs", self._contract.outputs)
        except StageFailedError:
            return None
        if any(values.dtype == BFLOAT16_BITS for values in found.values()):
            return None  # the file does not say whether these are numbers or their bits
        return {name: np.array(values) for name, values in found.items()}


def _digest(inputs: Mapping[str, np.ndarray]) -> str:
    """Return the digest of inputs, by name: their element types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, values in inputs.items():
        digest.update(f"{name} {values.dtype} {values.shape} ".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
