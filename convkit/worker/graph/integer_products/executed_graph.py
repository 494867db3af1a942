"""The graph that onnxruntime executes on the CPU: which nodes it fuses into products of whole
numbers is its decision.
"""

from pathlib import Path

from convkit.worker.runtime_interface.registered_operators import register_libraries
from convkit.worker.runtime_interface.sessions import ModelRefusedError


def write_executed(model: Path, folder: Path, level: str = "ORT_ENABLE_EXTENDED") -> Path:
    """Write the graph that a session of a model executes at an optimization level, with its weights
    next to it; return its file. `ORT_ENABLE_ALL` would add layouts that depend on the processor.

    Raises ModelRefusedError.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    settings.log_severity_level = 4
    file = folder / "executed.onnx"
    settings.optimized_model_filepath = str(file)
    key = "session.optimized_model_external_initializers_"
    settings.add_session_config_entry(f"{key}file_name", f"{file.name}.data")
    settings.add_session_config_entry(f"{key}min_size_in_bytes", "1024")
    settings.add_session_config_entry("session.disable_prepacking", "1")
    register_libraries(settings)
    try:
        onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise ModelRefusedError(f"onnxruntime {onnxruntime.__version__}: {error}") from error
    return file
