import pytest

from convkit.worker.bench.built_node_modules import module_of
from convkit.worker.bench.runtime_profiles import Kernel, profile_of
from convkit.worker.cases.case import Feeds
from convkit.worker.job_context import StageFailedError

MODULES = {"node_linear": "body.0", "node_linear_1": "body.2", "/encoder/MatMul": "encoder"}


@pytest.mark.parametrize(
    ("node", "module"),
    [
        ("node_linear", "body.0"),
        ("node_linear_1", "body.2"),
        ("fused node_linear_1", "body.2"),
        ("node_linear_1_token_5", "body.2"),
        ("node_linear_1/Fusion/", "body.2"),
        ("/encoder/MatMul_quant", "encoder"),
        ("node_linear_7", ""),
        ("node_linear_12", ""),
        ("other_node_linearity", ""),
        ("", ""),
    ],
)
def test_a_rewritten_node_belongs_to_the_module_of_its_origin(node, module):
    assert module_of(node, MODULES) == module


def test_a_call_that_lost_its_processor_moves_no_figure():
    calm, lost = Kernel("n", "MatMul", "CPU", 1.0), Kernel("n", "MatMul", "CPU", 900.0)
    assert profile_of("typical", [calm, calm, lost], {}, calls=3).kinds == {"MatMul": 1.0}
    # Two runs per call; then a run too many for that, as in a loop.
    twice = [calm, calm, lost, calm, calm, calm]
    assert profile_of("typical", twice, {}, calls=3).kinds == {"MatMul": 2.0}
    assert profile_of("typical", [calm] * 4, {}, calls=3).kinds == {"MatMul": 4 / 3}


def test_a_profile_is_per_call_with_the_most_expensive_first():
    kernels = [Kernel(f"n{i}", "MatMul", "CPU", float(i)) for i in range(12)] * 2
    kernels += [Kernel("cast", "Cast", "Other", 34.0)] * 2
    found = profile_of("typical", kernels, {"n11": "head"}, calls=2, wanted="CPU")
    assert len(found.operators) == 10
    assert [each.node for each in found.operators[:2]] == ["cast", "n11"]
    assert (found.operators[0].seconds, found.operators[0].share) == (34.0, 0.34)
    assert found.operators[1].module == "head"
    assert found.kinds == {"MatMul": 66.0, "Cast": 34.0}
    assert found.fallbacks == 1


def test_nothing_that_ran_is_an_empty_profile():
    found = profile_of("typical", [], {})
    assert (found.operators, found.kinds, found.fallbacks) == ((), {}, 0)


class TestTheChannel:
    def test_a_host_that_is_gone_ends_the_worker(self, tmp_path):
        from convkit.worker.bench.session_channel import answer_orders

        with pytest.raises(StageFailedError, match="does not answer"):
            answer_orders(str(tmp_path / "nobody"), dict, {"typical": {}}, 0.1)

    def test_a_model_that_cannot_run_is_named_before_any_round(self, tmp_path):
        from convkit.worker.bench.session_channel import answer_orders
        from convkit.worker.runtime_interface.sessions import RunFailedError

        def fail(feeds: Feeds) -> None:
            raise RunFailedError("too large")

        with pytest.raises(StageFailedError, match="the first call failed: too large"):
            answer_orders(str(tmp_path / "nobody"), fail, {"typical": {}}, 0.1)


def test_a_profiler_that_fails_costs_no_timings(tmp_path, monkeypatch):
    import numpy as np

    from convkit.protocol.contract import Contract, TensorSpec
    from convkit.protocol.messages import BenchRequest, BenchSize
    from convkit.worker.bench import timed_target
    from convkit.worker.cases.case_files import write_tensors
    from convkit.worker.job_context import Context

    contract = Contract((TensorSpec("x", "float32", (2,)),), (), ())
    write_tensors(tmp_path, "typical", "inputs", {"x": np.ones(2, np.float32)})
    sizes = (BenchSize("typical", {}),)
    request = BenchRequest(contract, None, "cpu", "", str(tmp_path), sizes, "", "ort")
    timed = []
    monkeypatch.setattr(timed_target, "answer_orders", lambda *given: timed.append(given))

    class Loaded:
        def run(self, feeds):
            return feeds

    def fail(inputs):
        raise ValueError("no events")

    found = timed_target.bench_built(request, Loaded, Context(tmp_path), fail)
    assert timed
    assert (found.profile, found.unprofiled) == (None, "the runtime's profiler failed: no events")
    assert found.peak_memory_bytes > 0
