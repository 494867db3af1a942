"""What of a processor can change a result, as runs record it, and which records agree. Pure.

Kernels are selected by instruction sets, some libraries select by the vendor as well, and different
kernels round differently. The model's name selects nothing.
"""

import dataclasses
from collections.abc import Mapping

from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ProductFamily

# Kernels that multiply uint8 by int8: `exact` ones sum the products in 32 bits, `saturating-pairs`
# clip each pair of products to 16 bits (VPMADDUBSW, if AVX2 has no VNNI beside it).
IntegerKernels = ProductFamily

# By these instruction sets, onnxruntime (MLAS), oneDNN, MKL and torch select kernels. Names are
# those of Linux.
INSTRUCTION_SETS = (
    "sse4_1",
    "avx",
    "fma",
    "f16c",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
    "sme",
)
# The instruction sets that earlier releases recorded, behind the model's name.
_EARLIER = frozenset(
    {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "asimd", "i8mm", "bf16"}
)
_SUM_IN_32_BITS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})


@dataclasses.dataclass(frozen=True)
class RecordedProcessor:
    """A processor on record.

    `features` are its architecture, its vendor and its instruction sets; `name` is for information.
    `is_partial`: an earlier release recorded it, which knew fewer features.
    """

    name: str
    features: frozenset[str]
    is_partial: bool = False

    @property
    def integer_kernels(self) -> IntegerKernels | None:
        """The kernels for uint8 times int8; None if no instruction set is known."""
        if self.features.isdisjoint(INSTRUCTION_SETS):
            return None
        has_pairs = "avx2" in self.features and not self.features & _SUM_IN_32_BITS
        return "saturating-pairs" if has_pairs else "exact"

    def computes_as(self, other: "RecordedProcessor") -> bool:
        """Return True if kernels selected on one processor are selected on the other.

        If one record is partial, what both can know decides: the instruction sets that earlier
        releases recorded, or the names if there are none.
        """
        if not (self.is_partial or other.is_partial):
            return self.features == other.features
        mine, theirs = self.features & _EARLIER, other.features & _EARLIER
        return mine == theirs and bool(mine or self.name == other.name)


def processor_on_record(name: str, features: str) -> RecordedProcessor:
    """Return the processor that a record describes by its name and its features.

    Earlier releases recorded no features, but a few instruction sets behind the name.
    """
    if features:
        return RecordedProcessor(name, frozenset(features.split()))
    words = name.split()
    known = [word for word in words if word in _EARLIER]
    rest = " ".join(word for word in words if word not in _EARLIER)
    return RecordedProcessor(rest, frozenset(known), is_partial=True)


def processor_of(host: Mapping[str, Json]) -> RecordedProcessor:
    """Return the processor of a run's host, as `result.json` describes it."""
    name, features = host.get("processor", ""), host.get("processor_features", "")
    return processor_on_record(str(name), str(features))
