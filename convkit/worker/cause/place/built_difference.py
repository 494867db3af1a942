"""What a built model computes otherwise than the graph that it was built from."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BuiltDifference:
    """Why a built model differs from its graph. Errors are the outputs', relative to their RMS.

    fused: the outputs are correct once `names` are exposed, which prevents the runtime from fusing
    their producers with later nodes. computed: these tensors are wrong although their inputs are
    correct, and the correct values fix the outputs. wide: more tensors are wrong than were
    corrected, and the first has a number that the runtime's type cannot hold or is computed from
    one. unplaced: none of these. `beyond` is a whole number there that int32 cannot hold.
    `instead` is code that computes that tensor right, tried on the case's values: the outputs are
    then off by `repaired`, if it was tried in the whole graph, in `places` nodes. `loses_nan`: it
    is wrong where an input is NaN. `width` says in which width a kernel computes numbers. `added`
    is how many values a sum adds up for each result, if rounding explains it. `elsewhere` is how
    far onnxruntime's outputs of the same graph are off from the original's, if they are right.
    """

    kind: str
    names: tuple[str, ...]
    before: float
    after: float
    beyond: int | None = None
    instead: str | None = None
    loses_nan: bool = False
    repaired: float | None = None
    places: int = 1
    width: str | None = None
    added: int | None = None
    elsewhere: float | None = None
