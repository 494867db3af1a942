"""The built parts of a model, opened and called as one model."""

import json
from collections.abc import Mapping

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Call, Fallback
from convkit.worker.cases.case import Feeds
from convkit.worker.join.part_flow import Wiring
from convkit.worker.original.contract_check import CONTRACT_KEY
from convkit.worker.runtime_interface.sessions import RuntimeSession


class JoinedSession:
    """A `RuntimeSession` over the sessions of all parts, by part."""

    def __init__(self, wiring: Wiring, parts: Mapping[str, RuntimeSession]) -> None:
        self.wiring = wiring
        self._parts = dict(parts)

    def contract(self) -> Contract:
        """Return the contract of the whole."""
        return self.wiring.contract

    def metadata(self) -> Mapping[str, str]:
        """Return the contract of the whole, as a single model's file would carry it."""
        return {CONTRACT_KEY: json.dumps(encode(self.wiring.contract.carried()))}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the whole's outputs; raises RunFailedError."""
        return self.wiring.run(dict(feeds), self.call)

    def call(self, call: Call, number: int, feeds: Feeds) -> Feeds:
        """Run one call of a part on its inputs; raises RunFailedError."""
        del number
        return self._parts[call.part].run(feeds)

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers of all parts, each once."""
        return tuple(
            dict.fromkeys(each for part in self._parts.values() for each in part.providers)
        )

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the nodes of all parts that did not run on the requested device."""
        return tuple(each for part in self._parts.values() for each in part.fallbacks())
