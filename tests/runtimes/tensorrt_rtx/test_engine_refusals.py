"""What TensorRT-RTX says of an engine that the GPU cannot run, in the recipe's words."""

from types import SimpleNamespace

import pytest

from convkit.runtimes.tensorrt_rtx.library import load_refusal

LIBRARY = SimpleNamespace(__version__="1.7.1.116")
# As release 1.7.1 says it on an H100.
SAID = (
    "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine cannot run on this"
    " GPU, which has compute capability 9.0. Supported compute capabilities: {}. TensorRT-RTX does"
    " not support this compute capability, so the engine cannot be rebuilt for it. In"
    " throwUnlessComputeCapSupported at /_src/runtime/dispatch/runtime.cpp:84)"
)


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("8.9", "sm89"),
        ("8.0 8.6 8.9 12.0 12.1 >12.0", "sm80, sm86, sm89, sm120, sm121, later than sm120"),
        ("None", "no other GPU"),
    ],
)
def test_the_gpu_and_what_the_engine_is_for_are_named(stated: str, told: str) -> None:
    assert load_refusal(LIBRARY, SAID.format(stated)) == (
        "TensorRT-RTX 1.7.1.116 does not run this engine on this GPU, whose compute capability is"
        f" sm90: the engine is for {told}"
    )


@pytest.mark.parametrize("message", ["the plan is corrupt", None])
def test_other_reasons_are_the_librarys_own(message: str | None) -> None:
    said = load_refusal(LIBRARY, message)
    assert said.startswith("TensorRT-RTX 1.7.1.116 does not load the engine: ")
    assert said.endswith(message or "it gave no reason")
