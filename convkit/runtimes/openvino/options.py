"""An OpenVINO target's session options, as passed to a worker."""

import dataclasses

# Set by convkit from the target's precision and the worker's share of the machine.
RESERVED = ("INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT", "INFERENCE_NUM_THREADS")


@dataclasses.dataclass(frozen=True)
class OpenVINOOptions:
    """`plugin_properties` are the CPU plugin's own, by OpenVINO's names, excluding those in
    RESERVED. `separate` are the kinds of operators that OpenVINO gets separately (see
    `separate_operators`), which a build finds out by itself.
    """

    plugin_properties: dict[str, bool | int | float | str] = dataclasses.field(default_factory=dict)
    separate: tuple[str, ...] = ()
