"""Every fault of the corpus is detected, named and repaired; no healthy model raises anything."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from convkit.host.findings.catalog import CATALOG
from faults.confusion import other_causes, recorded_causes
from faults.corpus import Fault, Healthy, faults, healthy_models
from faults.page import PAGE, page
from faults.scoring import score_fault, score_healthy

WHOLE = {"architectures:convnext"}
# Judged with the processor's integer kernels.
INTEGERS = {"quantized:outlier_channel", "healthy:mlp_quantized"}


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One store for the whole corpus: faults that share a model share its export."""
    folder = tmp_path_factory.getbasetemp()
    return (folder if worker_id == "master" else folder.parent) / "corpus-home"


def fault_params() -> Iterator[object]:
    """Yield every fault. The first of each family and ending is the sample in `make test`: every
    finding also has a test of its own, where it is made.
    """
    seen = set()
    for fault in faults():
        sampled = fault.family, fault.repaired is True
        marks = [pytest.mark.thorough] if sampled in seen else []
        seen.add(sampled)
        if fault.name in INTEGERS:
            marks.append(pytest.mark.processors)
        yield pytest.param(fault, marks=marks, id=fault.name)


def healthy_params() -> Iterator[object]:
    """Yield every healthy model; one whole architecture is a sample in `make test`."""
    for model in healthy_models():
        small = model.name.startswith("healthy:") or model.name in WHOLE
        marks = [] if small else [pytest.mark.thorough]
        if model.name in INTEGERS:
            marks.append(pytest.mark.processors)
        yield pytest.param(model, marks=marks, id=model.name)


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(fault_params()))
def test_fault(fault: Fault, tmp_path: Path, home: Path) -> None:
    score = score_fault(fault, tmp_path / "faults", home)
    found = "\n".join(score.found)
    assert score.detected, found
    assert score.misnamed is None, f"{score.misnamed}\n{found}"
    assert score.repaired is not False, f"{score.ending}\n{found}"
    assert not score.harm, f"the remedy made it worse: {score.harm}\n{found}"
    assert not score.outdated, f"it was repaired, though {fault.repaired}"
    assert score.hidden is not False, "the CPU shows it too"
    assert other_causes(score) == recorded_causes().get(fault.name, []), found
    assert len(list((tmp_path / "faults").iterdir())) == 1, "it wrote outside its own folder"


@pytest.mark.slow
@pytest.mark.parametrize("model", list(healthy_params()))
@pytest.mark.sampled(8)
def test_healthy(model: Healthy, tmp_path: Path, home: Path) -> None:
    score = score_healthy(model, tmp_path / "models", home)
    assert not score.alarms, "\n".join(score.alarms)
    assert len(list((tmp_path / "models").iterdir())) == 1, "it wrote outside its own folder"


def test_the_corpus_names_known_codes_and_threads() -> None:
    names = [each.name for each in (*faults(), *healthy_models())]
    assert len(names) == len(set(names))
    for fault in faults():
        assert fault.code in CATALOG
        assert "#" in fault.source or "PR" in fault.source, fault.name


def test_the_confusion_table_is_of_the_corpus() -> None:
    """`PYTHONPATH=tests python -m faults --record` writes it."""
    known = recorded_causes()
    assert known.keys() <= {fault.name for fault in faults()}
    assert all(code in CATALOG for causes in known.values() for code in causes)


def test_the_page_is_that_of_the_corpus() -> None:
    """`PYTHONPATH=tests python -m faults --page` writes it."""
    assert (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8") == page()
