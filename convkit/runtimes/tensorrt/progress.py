"""Reports a build's progress from TensorRT's own phases."""

from typing import TYPE_CHECKING

from convkit.worker.context import Context

if TYPE_CHECKING:
    import tensorrt as trt


def make_progress_monitor(context: Context) -> "trt.IProgressMonitor":
    """Return a monitor that reports the outermost phase and its progress."""
    import tensorrt as trt

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            # pybind11 requires calling the base's own constructor
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            if parent_phase is None:
                self._steps[phase_name] = num_steps
                context.progress(f"TensorRT: {phase_name}", done=0.0)

        def step_complete(self, phase_name: str, step: int) -> bool:
            if steps := self._steps.get(phase_name):
                context.progress(f"TensorRT: {phase_name}", done=min((step + 1) / steps, 1.0))
            return True  # continue: canceling a run ends the whole process

        def phase_finish(self, phase_name: str) -> None:
            self._steps.pop(phase_name, None)

    return Monitor()
