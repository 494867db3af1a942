import inspect
from typing import get_args

import pytest

from convkit.plan.stages import OWN_JOBS
from convkit.recipe.models import Target
from convkit.runtimes.registry import RUNTIMES, runtime_named
from convkit.worker.context import StageFailedError
from convkit.worker.sessions import Runtime


def test_the_recipes_runtimes_are_the_registrys_and_those_with_jobs_of_their_own():
    union = get_args(get_args(Target)[0])
    named = {
        name for target in union for name in get_args(target.model_fields["runtime"].annotation)
    }
    assert named == {*RUNTIMES, *OWN_JOBS}
    assert not RUNTIMES.keys() & OWN_JOBS.keys()


def test_an_unknown_runtime_is_named_with_the_nearest():
    with pytest.raises(StageFailedError, match="perhaps you meant 'onnxruntime'"):
        runtime_named("onnx-runtime")


@pytest.mark.parametrize("name", list(RUNTIMES))
def test_each_runtime_has_the_protocols_functions(name):
    runtime = RUNTIMES[name]
    assert isinstance(runtime.MODEL_FILE, str)
    for function in ("build", "open"):
        wanted = list(inspect.signature(getattr(Runtime, function)).parameters)[1:]
        assert list(inspect.signature(getattr(runtime, function)).parameters) == wanted
