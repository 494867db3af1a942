"""Every fault of the corpus is detected, named and repaired; no healthy model raises anything."""

import concurrent.futures
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from convkit.findings.catalogue import CATALOGUE
from faults.corpus import Fault, Healthy, faults, healthy_models
from faults.page import PAGE, page
from faults.scoring import FaultScore, HealthyScore, score_fault, score_healthy


@pytest.fixture(scope="module")
def pool() -> Iterator[concurrent.futures.Executor]:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def scores(
    request: pytest.FixtureRequest,
    pool: concurrent.futures.Executor,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Future]:
    """Run all that was chosen, two at a time.

    All end before the first is judged: Python 3.11 cannot format a failure while other threads
    compile.
    """
    folder = tmp_path_factory.mktemp("faults")
    started: dict[str, Future] = {}
    for item in request.session.items:
        for each in (
            getattr(item, "callspec", None).params.values() if hasattr(item, "callspec") else ()
        ):
            if isinstance(each, Fault):
                started[each.name] = pool.submit(score_fault, each, folder, folder / "home")
            elif isinstance(each, Healthy):
                started[each.name] = pool.submit(score_healthy, each, folder, folder / "home")
    concurrent.futures.wait(started.values())
    return started


@pytest.mark.slow
@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_fault(fault: Fault, scores: dict[str, Future]) -> None:
    score: FaultScore = scores[fault.name].result()
    found = "\n".join(score.found)
    assert score.detected, found
    assert score.misnamed is None, f"{score.misnamed}\n{found}"
    assert score.repaired is not False, f"{score.ending}\n{found}"
    assert not score.outdated, f"it was repaired, though {fault.repaired}"
    assert score.hidden is not False, "the CPU shows it too"


@pytest.mark.slow
@pytest.mark.parametrize("model", healthy_models(), ids=lambda model: model.name)
def test_healthy(model: Healthy, scores: dict[str, Future]) -> None:
    score: HealthyScore = scores[model.name].result()
    assert not score.alarms, "\n".join(score.alarms)


def test_the_corpus_names_known_codes_and_threads() -> None:
    names = [each.name for each in (*faults(), *healthy_models())]
    assert len(names) == len(set(names))
    for fault in faults():
        assert fault.code in CATALOGUE
        assert "#" in fault.source or "PR" in fault.source, fault.name


def test_the_page_is_that_of_the_corpus() -> None:
    """`PYTHONPATH=tests python -m faults --page` writes it."""
    assert (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8") == page()


def test_paths_are_not_shared(tmp_path: Path) -> None:
    """A fault writes into its own folder alone."""
    for fault in faults():
        recipe = fault.write(tmp_path / fault.name.replace(":", "-"))
        assert recipe.parent.parent == tmp_path
