"""Metrics of tasks, by scikit-learn, scipy, jiwer and pycocotools, which are well kept and light
enough for every stage; or by the user's own function.
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.messages import Evaluation
from convkit.protocol.postprocessing_constants import Postprocessing
from convkit.worker.cases.case import Feeds
from convkit.worker.evaluate.detection_precision import Detector
from convkit.worker.evaluate.retrieval import retrieved
from convkit.worker.evaluate.row_reading import Predictions
from convkit.worker.evaluate.token_likelihood import perplexity, row_likelihoods
from convkit.worker.job_context import StageFailedError
from convkit.worker.pre_and_postprocessing.results import results
from convkit.worker.process.user_modules import source_spec


@dataclasses.dataclass(frozen=True)
class Scorer:
    """A metric in two steps: what is decided for every row, once, and the score of any of them.

    `scores` gets the decisions and labels of all rows, and returns what scores any of them, by
    number. If a score `rises`, a larger one is worse; if that is `relative`, by a share of the
    original's. Without labels, the original's
    decisions are the labels if `by_original`; `without_labels`, a score needs none. `shown` turns a
    row's decision into what is listed.
    `condense`, if any, reduces the outputs, with their inputs, to what `decide` needs, one entry
    per row: a language model's scores are too large to keep.
    """

    decide: Callable[[Predictions], Sequence[Any]]
    scores: Callable[[Sequence[Any], Sequence[Any]], Callable[[Sequence[int]], float]]
    rises: bool = False
    relative: bool = True
    by_original: bool = False
    without_labels: bool = False
    shown: Callable[[Any], Any] = lambda decision: decision
    condense: Callable[[Feeds, Feeds, Evaluation], np.ndarray] | None = None

    def score(self, decided: Sequence[Any], labels: Sequence[Any]) -> float:
        """Return the score of all rows."""
        return self.scores(decided, labels)(range(len(labels)))

    def loss(self, original: float, found: float) -> float:
        """Return how much worse a score is than the original's: the drop, the rise, or the share by
        which it is higher.
        """
        if not self.rises:
            return original - found
        return found / original - 1 if self.relative else found - original


def scorer_of(
    evaluation: Evaluation, constants: Postprocessing | None = None, documents: Sequence[Any] = ()
) -> Scorer:
    """Return a metric by its name; raises StageFailedError if the user's cannot be loaded.

    `constants` say how the scored output becomes text or boxes, `documents` what each row's second
    text is called where first texts search among them.
    """
    if evaluation.code is not None:
        return Scorer(_rows, _of_rows(_own(Path(evaluation.code), evaluation.metric)))
    name, _, count = evaluation.metric.partition("@")
    if name == "recall":
        rank: Callable[[Predictions], Sequence[Any]] = functools.partial(_ranked, int(count))
        if evaluation.retrieves:
            rank = functools.partial(retrieved, int(count), documents)
        return Scorer(rank, _of_rows(_recall))
    if name == "wer":
        # What a model generates is read by `generation`.
        decide = functools.partial(_texts, constants)
        return Scorer(decide, _of_rows(_word_errors), rises=True, relative=False)
    if name == "map":
        assert constants is not None  # the recipe says so
        found = Detector(constants)
        return Scorer(found.decide, found.scores, shown=found.shown, condense=found.condense)
    return _SCORERS[evaluation.metric]


def _of_rows(
    score: Callable[[Sequence[Any], Sequence[Any]], float],
) -> Callable[[Sequence[Any], Sequence[Any]], Callable[[Sequence[int]], float]]:
    def scores(decided: Sequence[Any], labels: Sequence[Any]) -> Callable[[Sequence[int]], float]:
        return lambda rows: score([decided[row] for row in rows], [labels[row] for row in rows])

    return scores


def _rows(predictions: Predictions) -> Sequence[Any]:
    columns = list(predictions.values())
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _classes(predictions: Predictions) -> Sequence[Any]:
    """Return the class of each row: the largest value of the last axis."""
    return [int(np.argmax(row)) for row in _only(predictions)]


def _ranked(count: int, predictions: Predictions) -> Sequence[Any]:
    """Return the `count` largest classes of each row, the largest first; raises StageFailedError if
    that is all of them.
    """
    rows = _only(predictions)
    if rows[0].size <= count:
        raise StageFailedError(
            f"evaluate.metric: recall@{count} is 1 for any model: the output has {rows[0].size}"
            " classes. Write a smaller number."
        )
    return [np.argsort(-row.ravel(), kind="stable")[:count].tolist() for row in rows]


def _texts(constants: Postprocessing | None, predictions: Predictions) -> Sequence[Any]:
    """Return the text of each row of scores [time, symbols]."""
    assert constants is not None
    made = {"text": np.stack(_only(predictions))}
    return [found.label for (found,) in results("text", constants, made)]


def _embeddings(predictions: Predictions) -> Sequence[Any]:
    return [row.ravel() for row in _only(predictions)]


def _similarities(predictions: Predictions) -> Sequence[Any]:
    """Return the cosine of the two texts' embeddings, or the single number of each row."""
    if len(predictions) == 1:
        return [float(row.ravel()[0]) for row in _only(predictions)]
    first, second = predictions.values()
    return [_cosine(one, other) for one, other in zip(first, second, strict=True)]


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    one, other = first.ravel().astype(np.float64), second.ravel().astype(np.float64)
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def _only(predictions: Predictions) -> list[np.ndarray]:
    (rows,) = predictions.values()
    return rows


def _accuracy(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, decided))


def _f1(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(labels, decided, average="macro", zero_division=0.0))


def _recall(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    return float(np.mean([label in top for top, label in zip(decided, labels, strict=True)]))


def _word_errors(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    import jiwer

    return float(jiwer.wer([_words(label) for label in labels], [_words(each) for each in decided]))


def _words(text: Any) -> str:  # noqa: ANN401 - a text, or the tokens of one
    """Return a text whose words are compared: of a list of tokens, each is a word."""
    is_list = isinstance(text, list | tuple | np.ndarray)
    return " ".join(map(str, text)) if is_list else str(text)


def _mean_cosine(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    pairs = zip(decided, labels, strict=True)
    return float(np.mean([_cosine(one, np.asarray(other)) for one, other in pairs]))


def _spearman(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    from scipy.stats import rankdata

    ranks = np.corrcoef(rankdata(decided), rankdata(np.asarray(labels, dtype=np.float64)))
    return float(ranks[0, 1])


def _likelihood_score(decided: Sequence[Any], labels: Sequence[Any]) -> float:
    del labels  # the tokens themselves
    return perplexity(np.asarray(decided))


def _row_perplexity(decision: np.ndarray) -> float:
    return perplexity(decision[None])


def _own(code: Path, name: str) -> Callable[[Sequence[Any], Sequence[Any]], float]:
    spec = source_spec("convkit_task_metric", code)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name)
    except Exception as error:  # the user's code can raise anything
        raise StageFailedError(f"evaluate.metric: {code.name}: {error}") from error

    def score(decided: Sequence[Any], labels: Sequence[Any]) -> float:
        try:
            return float(function(decided, labels))
        except Exception as error:
            raise StageFailedError(
                f"evaluate.metric: {name} in {code.name} failed: {type(error).__name__}: {error}"
            ) from error

    return score


_SCORERS: dict[str, Scorer] = {
    "accuracy": Scorer(_classes, _of_rows(_accuracy)),
    "f1": Scorer(_classes, _of_rows(_f1)),
    "cosine": Scorer(_embeddings, _of_rows(_mean_cosine), by_original=True),
    "spearman": Scorer(_similarities, _of_rows(_spearman)),
    "perplexity": Scorer(
        _rows,
        _of_rows(_likelihood_score),
        rises=True,
        without_labels=True,
        shown=_row_perplexity,
        condense=row_likelihoods,
    ),
}
