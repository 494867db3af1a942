"""What `convkit run --repair` prints."""

import dataclasses
import io
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import convkit
from records import RECIPE_TEXT, build_record, verified_record
from rich.console import Console

from convkit.cli.output.repair_text import announce, print_repair
from convkit.cli.output.run_table import summary
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_record import RepairStep, RunRecord, WithdrawnStep
from convkit.host.repair.remedy_selection import Withheld
from convkit.host.repair.repair_command import RepairOutcome
from convkit.host.report.report_file import render_report
from convkit.host.run.run_options import RunOutcome

STEP = RepairStep(
    1,
    "ort-optimized",
    "N201",
    "a mask of <-3.4e38>",
    {"targets.ort-optimized.precision": {"default": "float16"}},
    "verified",
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE_TEXT)
    return path


def outcome(recipe: Path, last: RunRecord, **changes: object) -> RepairOutcome:
    loaded = load_recipe(recipe)
    text = RECIPE_TEXT.replace("ort-cuda: {runtime", "ort-cuda: {precision: float16, runtime")
    fields = {
        "steps": (STEP,),
        "text": text,
        "ending": "repaired in 1 round",
        "withheld": (),
    } | changes
    return RepairOutcome(loaded, build_record(), RunOutcome(last, recipe.parent), **fields)  # type: ignore[arg-type]


def printed(
    repair: RepairOutcome, *, written: bool = False, width: int = 40, encoding: str = "utf-8"
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    print_repair(
        repair,
        command="convkit run r --repair --write",
        written=written,
        console=Console(file=file, width=width),
    )
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_repair_shows_the_change_whole_and_how_to_keep_it(recipe: Path) -> None:
    text = printed(outcome(recipe, verified_record()))
    unbroken = " ".join(text.split())
    assert "Repair: repaired in 1 round; the recipe's file is not changed yet" in unbroken
    assert "proven by the run above" in text
    assert "-  ort-cuda: {runtime: onnxruntime, device: cuda}\n" in text
    assert (
        "+  ort-cuda: {precision: float16, runtime: onnxruntime, device: cuda}\n" in text
    )  # in 40 columns
    assert "Next:\n  convkit run r --repair --write\n" in text


def test_the_diff_applies(recipe: Path) -> None:
    repair = outcome(recipe, verified_record())
    recipe.write_text(RECIPE_TEXT)
    done = subprocess.run(
        ["patch", "-o", "-", str(recipe)],
        input=repair.diff,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == repair.text


def test_a_last_line_without_its_end_is_told(recipe: Path) -> None:
    recipe.write_text(RECIPE_TEXT.rstrip("\n"))
    repair = outcome(
        recipe,
        verified_record(),
        text=RECIPE_TEXT.replace("device: cuda", "device: cpu").rstrip("\n"),
    )
    assert repair.diff.count("\\ No newline at end of file\n") == 2


def test_a_written_one_says_where(recipe: Path) -> None:
    text = printed(outcome(recipe, verified_record()), written=True)
    assert f"Written to {recipe}" in text
    assert "--write" not in text


def test_what_was_not_repaired_says_why_and_what_it_would_not_do(recipe: Path) -> None:
    withheld = Withheld("ort-optimized", "N103", "verify.skip", ["texts"], "left to you")
    text = printed(outcome(recipe, build_record(), ending="no fix", withheld=(withheld,)))
    assert "Not repaired: no fix" in text
    assert "N103 of ort-optimized suggests verify.skip: [texts]; left to you" in text
    assert "does not make all targets pass and is not saved:" in " ".join(text.split())
    assert "--write" not in text


def test_a_change_that_repairs_one_of_two_targets_says_which(recipe: Path) -> None:
    step = dataclasses.replace(STEP, target="ort-cpu")
    last = build_record()
    assert [each.status for each in last.targets] == ["verified", "failed", "skipped"]
    text = " ".join(printed(outcome(recipe, last, steps=(step,))).split())
    assert "is not saved (it repairs ort-cpu; still failing: ort-optimized):" in text


def test_nothing_to_repair_is_no_failure(recipe: Path) -> None:
    repair = outcome(
        recipe, verified_record(), steps=(), text=RECIPE_TEXT, ending="nothing to repair"
    )
    text = printed(dataclasses.replace(repair, first=verified_record()))
    assert text.strip() == "Repair: nothing to repair"


def test_it_prints_on_a_terminal_that_takes_ascii_only(recipe: Path) -> None:
    assert "caf?" in printed(
        outcome(recipe, verified_record(), ending="caf\u00e9"), encoding="ascii"
    )


def test_rounds_are_announced_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    announce((STEP,))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "repair, round 1: N201 of ort-optimized: targets.ort-optimized.precision: \n"
        "{default: float16}\n"
    )


class TestARecordOfARepair:
    RECORD = dataclasses.replace(
        verified_record(), repaired_from="20251009-085000-aaaa", repair=(STEP,)
    )

    def test_the_table_tells_it(self) -> None:
        file = io.StringIO()
        Console(file=file, width=200).print(summary(self.RECORD, up_to_date=False))
        text = file.getvalue()
        assert "Repairs run 20251009-085000-aaaa:" in text
        assert "round 1, N201 of ort-optimized:\n" in text
        assert "precision: {default: float16}" in " ".join(text.split())
        assert "then verified" in text

    def test_the_report_tells_it_with_everything_escaped(self) -> None:
        page = render_report(self.RECORD)
        assert "<code>20251009-085000-aaaa</code>" in page
        assert "a mask of &lt;-3.4e38&gt;" in page
        assert "default: float16" in page

    def test_the_report_says_whether_the_file_is_changed(self) -> None:
        asked = ("convkit", "run", "my recipe.yaml", "--repair")
        page = render_report(dataclasses.replace(self.RECORD, command=asked))
        assert "is not changed" in page
        assert "convkit run &#39;my recipe.yaml&#39; --repair --write</code>" in page
        page = render_report(dataclasses.replace(self.RECORD, command=(*asked, "--write")))
        assert "saves these changes" in page
        assert "is not changed" not in page

    def test_withdrawn_changes_are_listed_with_the_reason(self) -> None:
        undone = WithdrawnStep(STEP, "other was <verified> and is broken")
        record = dataclasses.replace(self.RECORD, repair=(), withdrawn=(undone,))
        file = io.StringIO()
        Console(file=file, width=200).print(summary(record, up_to_date=False))
        text = file.getvalue()
        assert "Repairs run 20251009-085000-aaaa, with its recipe unchanged:" in text
        assert "round 1, withdrawn, N201 of ort-optimized:\n" in text
        assert "        precision: {default: float16}\n" in text
        assert "because other was <verified> and is broken" in text
        page = render_report(record)
        assert "These changes were tried and withdrawn" in page
        assert "other was &lt;verified&gt; and is broken" in page
        assert "The recipe is unchanged" in page
        assert "withdrawn" not in render_report(self.RECORD)

    def test_other_runs_say_nothing_of_it(self) -> None:
        file = io.StringIO()
        Console(file=file, width=200).print(summary(verified_record(), up_to_date=False))
        assert "repair" not in file.getvalue().lower()
        assert "<h2>Repair</h2>" not in render_report(verified_record())


def test_write_alone_is_refused(recipe: Path) -> None:
    done = convkit("run", recipe, "--write")
    assert done.returncode == 2
    assert "pass both" in done.stderr


OVERFLOWING = """
import torch

class Scaled(torch.nn.Module):
    def forward(self, x):
        return x * 60000.0 * 60000.0 * 1e-9

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scaled = Scaled()
        self.after = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.after(self.scaled(x))

def build():
    return Net()
"""
TEXT = f"""\
schema: 1
name: cli
model: {{factory: {{call: "model.py:build"}}}}
tools: {{python: "{sys.version_info.major}.{sys.version_info.minor}"}}
export: {{exporter: torchscript, opset: 17}}
axes:
  batch: {{min: 1, typical: 3, max: 5}}
inputs:
  - {{name: x, dtype: float32, shape: [batch, 4], sample: {{uniform: [0.5, 1]}}}}
outputs:
  - {{name: y, dtype: float32, shape: [batch, 3]}}
verify:
  tolerance: {{max_abs: 0.05}}
targets:
  ort: {{runtime: onnxruntime, precision: float16}} # half the size
"""


@pytest.mark.slow
def test_from_the_command_line_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(OVERFLOWING)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(TEXT)
    options = ("--toolchain", "host", "--no-track", "--repair")
    done = convkit("run", recipe, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repair, round 1: N202 of ort" in done.stderr
    assert (
        f"Next:\n  convkit run {recipe} --toolchain host --no-track --repair --write\n"
        in done.stdout
    )
    assert recipe.read_text() == TEXT
    done = convkit("run", recipe, *options, "--write", "--quiet")
    assert (done.returncode, done.stdout) == (0, "")
    kept = "precision: {default: float16, keep_float32: [scaled]}"
    assert recipe.read_text() == TEXT.replace("precision: float16", kept)
    done = convkit("run", recipe, *options)
    assert done.returncode == 0
    assert "nothing to repair" in done.stdout
