"""All reports."""

from reports.report import Report
from reports.threads import coremltools, onnxruntime, onnxscript, openvino, pytorch

REPORTS: tuple[Report, ...] = (
    *coremltools.REPORTS,
    *onnxruntime.REPORTS,
    *onnxscript.REPORTS,
    *openvino.REPORTS,
    *pytorch.REPORTS,
)
