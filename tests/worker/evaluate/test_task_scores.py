import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet
from scipy.stats import spearmanr

from convkit.protocol.messages import Evaluation
from convkit.protocol.postprocessing_constants import CtcConstants, Postprocessing
from convkit.worker.evaluate.paired_bootstrap import compare_decisions
from convkit.worker.evaluate.row_reading import read_rows
from convkit.worker.evaluate.task_scores import Scorer, scorer_of
from convkit.worker.job_context import StageFailedError, UnfitDataError


def evaluation(data: Path | str = "", metric: str = "accuracy", **changes) -> Evaluation:
    return Evaluation(str(data), metric, "y", {"x": "x"}, (), "label", **changes)


class TestRows:
    def test_a_csv_column_of_numbers_is_numbers(self, tmp_path):
        (tmp_path / "a.csv").write_text("x,name,label\n0.5,a,1\n1.5,2,0\n")
        rows = read_rows(evaluation(tmp_path / "a.csv"))
        assert (rows.count, rows.column("x"), rows.column("label")) == (2, [0.5, 1.5], [1, 0])
        assert rows.column("name") == ["a", "2"]

    def test_jsonl_and_npz(self, tmp_path):
        (tmp_path / "a.jsonl").write_text(
            '{"x": [1, 2], "label": 0}\n\n{"x": [3, 4], "label": 1}\n'
        )
        assert read_rows(evaluation(tmp_path / "a.jsonl")).column("x") == [[1, 2], [3, 4]]
        np.savez(tmp_path / "a.npz", x=np.eye(5), label=np.arange(5))
        rows = read_rows(evaluation(tmp_path / "a.npz", most_rows=3))
        assert (rows.count, len(rows.column("label"))) == (3, 3)

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("a.csv", "x,label\n1\n2,3\n", "row 2 has not 2 values"),
            ("a.csv", "x,label\n1,2,3\n2,3\n", "row 2 has not 2 values"),
            ("a.csv", "x,label\n1,2\n", r"has too few rows \(1\); a metric needs at least two"),
            ("a.jsonl", '{"x": 1}\n{"y": 2}\n', "line 2 has different keys from the first"),
            ("a.jsonl", "[1]\n", "line 1 is not an object"),
            ("a.jsonl", "{", "cannot be read"),
            ("a.jsonl", "", r"has too few rows \(0\)"),
            ("a.npz", "nothing", "cannot be read"),
        ],
    )
    def test_damaged_rows_are_named(self, tmp_path, name, content, problem):
        (tmp_path / name).write_text(content)
        with pytest.raises(UnfitDataError, match=problem) as caught:
            read_rows(evaluation(tmp_path / name))
        (finding,) = caught.value.findings
        assert (finding.code, finding.message) == ("E412", str(caught.value))

    def test_parquet_and_the_files_that_datasets_saves(self, tmp_path):
        table = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]})
        parquet.write_table(table, tmp_path / "a.parquet")
        with ipc.new_stream(tmp_path / "a.arrow", table.schema) as stream:
            stream.write_table(table)
        for name in ("a.parquet", "a.arrow"):
            rows = read_rows(evaluation(tmp_path / name))
            assert (rows.column("x"), rows.column("label")) == ([[1.0, 2.0], [3.0, 4.0]], [0, 1])
            (tmp_path / name).write_bytes(b"nothing")
            with pytest.raises(UnfitDataError, match=f"{name} cannot be read"):
                read_rows(evaluation(tmp_path / name))

    def test_columns_of_different_lengths_are_refused(self, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.eye(5), label=np.arange(4))
        with pytest.raises(UnfitDataError, match="differ in length"):
            read_rows(evaluation(tmp_path / "a.npz"))

    def test_an_unknown_column_is_named_with_those_there_are(self, tmp_path):
        (tmp_path / "a.csv").write_text("x,label\n1,2\n1,2\n")
        with pytest.raises(UnfitDataError, match="no column 'y'; it has x, label"):
            read_rows(evaluation(tmp_path / "a.csv")).column("y")


LOGITS = [np.array(row) for row in ([0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.4, 0.3, 0.3])]


@pytest.mark.parametrize(
    ("metric", "labels", "score"),
    [("accuracy", [0, 1, 2], 2 / 3), ("f1", [0, 1, 0], 1.0), ("recall@2", [2, 0, 1], 2 / 3)],
)
def test_classifiers_are_scored(metric, labels, score):
    scorer = scorer_of(evaluation(metric=metric))
    assert scorer.score(scorer.decide({"": LOGITS}), labels) == pytest.approx(score)


def test_recall_among_all_classes_is_refused():
    scorer = scorer_of(evaluation(metric="recall@3"))
    with pytest.raises(StageFailedError, match=r"recall@3 is 1 for any model: .* has 3 classes"):
        scorer.decide({"": LOGITS})


def test_word_errors_are_counted_in_the_texts_that_postprocess_reads():
    constants = Postprocessing(text=CtcConstants(("-", "a", "b", "|"), space="|"))
    scorer = scorer_of(evaluation(metric="wer"), constants)
    rows = [np.eye(4)[list(symbols)] for symbols in ((1, 1, 0, 1, 3, 2), (2, 3, 3, 2, 0, 0))]
    decided = scorer.decide({"": rows})
    assert decided == ["aa b", "b b"]
    assert scorer.score(decided, ["aa b", "b b"]) == 0.0
    assert scorer.score(decided, ["aa a", "b b"]) == 0.25
    assert scorer.loss(0.0, 0.25) == 0.25  # a difference: an original may have no errors


def test_embeddings_are_compared_with_the_labels():
    scorer = scorer_of(evaluation(metric="cosine"))
    decided = scorer.decide({"": [np.array([1.0, 0.0]), np.array([1.0, 1.0])]})
    assert scorer.score(decided, decided) == pytest.approx(1.0)
    assert scorer.score(decided, [[1.0, 0.0], [-1.0, -1.0]]) == pytest.approx(0.0)


def test_spearman_is_scipys_and_reads_two_columns_as_a_similarity():
    scorer = scorer_of(evaluation(metric="spearman"))
    numbers = [np.array([value]) for value in (0.1, 0.5, 0.4, 0.9)]
    labels = [1, 3, 4, 5]
    expected = spearmanr([0.1, 0.5, 0.4, 0.9], labels).statistic
    assert scorer.score(scorer.decide({"": numbers}), labels) == pytest.approx(expected)
    first, second = np.eye(2), np.array([[1.0, 0.0], [1.0, 1.0]])
    decided = scorer.decide({"a": list(first), "b": list(second)})
    assert decided == pytest.approx([1.0, math.sqrt(0.5)])


def test_the_users_function_gets_outputs_and_labels(tmp_path):
    code = tmp_path / "own.py"
    code.write_text(
        "def score(outputs, labels):\n    return sum(o[0] > l for o, l in zip(outputs, labels))\n"
    )
    scorer = scorer_of(evaluation(metric="score", code=str(code)))
    assert scorer.score(scorer.decide({"": LOGITS}), [0.5, 0.5, 0.1]) == 2.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = (", "own.py"),
        ("def other(): ...", "score"),
        ("def score(a): ...", "score in own.py failed"),
    ],
)
def test_a_broken_function_is_named(tmp_path, text, problem):
    code = tmp_path / "own.py"
    code.write_text(text)
    with pytest.raises(StageFailedError, match=problem):
        scorer_of(evaluation(metric="score", code=str(code))).score([1], [1])


class TestPaired:
    scorer = scorer_of(evaluation())

    def compare(self, original, candidate, labels):
        return compare_decisions("accuracy", self.scorer, original, candidate, labels)

    def test_equal_decisions_have_no_drop_at_all(self):
        labels = [0, 1] * 50
        found = self.compare(labels[::-1], labels[::-1], labels)
        assert (found.drop, found.disagreed) == (0.0, 0)
        # But the next row may be decided differently: 0.975 = (1 - 0.036) ** 100.
        assert -found.low == found.high == pytest.approx(1 - 0.025 ** (1 / 100))

    @pytest.mark.parametrize("rows", [1, 4, 20])
    @pytest.mark.sampled(2)
    def test_the_interval_of_few_rows_holds_the_true_drop(self, rows):
        right = Scorer(
            list, lambda decided, _: lambda chosen: sum(decided[i] for i in chosen) / rows
        )
        generator = np.random.default_rng(rows)
        held = 0
        for _ in range(60):
            candidate = (generator.random(rows) > 0.3).astype(int).tolist()
            found = compare_decisions("right", right, [1] * rows, candidate, [1] * rows)
            held += found.low <= 0.3 <= found.high
        assert held >= 0.9 * 60  # 95 % but for the chance of 60 draws

    @pytest.mark.thorough
    def test_few_rows_leave_a_wide_interval_and_many_a_narrow_one(self):
        few = self.compare([1] * 20, [0] + [1] * 19, [1] * 20)
        many = self.compare([1] * 800, [0] * 40 + [1] * 760, [1] * 800)
        assert few.drop == many.drop == pytest.approx(0.05)
        assert few.low <= 0.0 < many.low
        assert many.high < few.high

    @pytest.mark.thorough
    def test_rows_that_differ_are_listed_with_both(self):
        found = self.compare([1, 1, 0], [1, 0, 0], [1, 1, 1])
        assert found.disagreed == 1
        (row,) = found.disagreements
        assert (row.row, row.label, row.original, row.candidate) == (1, "1", "1", "0")

    def test_a_score_that_is_not_a_number_has_no_interval(self):
        scorer = scorer_of(evaluation(metric="spearman"))
        with np.errstate(all="ignore"):
            found = compare_decisions("spearman", scorer, [0.1, 0.2, 0.3], [0.5] * 3, [1, 2, 3])
        assert math.isnan(found.candidate)
        assert math.isnan(found.high)
