"""Damages the files that models are read from, and says what their readers do: `make fuzz-files`.

One round damages one file of an ML package, of a model in transformers' layout (safetensors'
header, tokenizer.json, config.json) or of a recipe's texts. Then:

- whoever reads it gets a value or convkit's own error, which names the file or its folder (a
  traceback is a bug);
- its digest is another one, so that no stage takes what was made of it before; an ML package,
  whose digest leaves out what means nothing, gives the same numbers where its digest is the same.
"""

import argparse
import dataclasses
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[3]))

from helper_folders import add_helper_folders

add_helper_folders()

from fuzzing import HARMS, FoundError, damage  # noqa: E402
from mil_programs import mb, mil_program, save_program  # noqa: E402
from tiny_models import save_bert  # noqa: E402

from convkit.host.facts.planning_facts import read_texts  # noqa: E402
from convkit.host.store.digests import DigestCache  # noqa: E402
from convkit.protocol.errors import ConvkitError  # noqa: E402
from convkit.protocol.messages import Source  # noqa: E402
from convkit.worker.job_context import StageFailedError  # noqa: E402
from convkit.worker.mil.evaluation.evaluator import Evaluator  # noqa: E402
from convkit.worker.mil.package_identity import package_digest  # noqa: E402
from convkit.worker.mil.program import load_program  # noqa: E402
from convkit.worker.mil.program_errors import EvaluationError  # noqa: E402
from convkit.worker.original.loading import load_model  # noqa: E402

CLEAR = (ConvkitError, StageFailedError, EvaluationError)
Value = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of source: how it is made in a folder, read, and told from another.

    `part` says how much of a file can be hit, from its start; None for all of it.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], Value]
    digest: Callable[[Path], str]
    part: int | None = None


def _make_package(folder: Path) -> None:
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    program = mil_program(
        lambda a: mb.relu(x=mb.matmul(x=a, y=weight, name="product"), name="y"),
        {"a": ((2, 64), "fp32")},
    )
    save_program(program, folder / "model.mlpackage")


def _read_package(folder: Path) -> Value:
    program = load_program(folder / "model.mlpackage")
    feeds = {each.name: np.ones((2, 64), np.float32) for each in program.inputs}
    outputs = Evaluator(program).run(feeds).outputs
    return {name: values.tobytes() for name, values in outputs.items()}


def _make_folder(folder: Path) -> None:
    from transformers import AutoTokenizer

    model = save_bert(folder / "model", tokenizer=True)
    AutoTokenizer.from_pretrained(model).save_pretrained(model)  # writes tokenizer.json
    (model / "vocab.txt").unlink()


def _read_folder(folder: Path) -> Value:
    loaded = load_model(Source("path", path=str(folder / "model")))
    weights = {name: value.numpy().tobytes() for name, value in loaded.module.state_dict().items()}
    assert loaded.tokenizer is not None
    return weights


def _read_tokenizer(folder: Path) -> Value:
    from convkit.worker.original.loading.transformers_folder import open_tokenizer

    tokenizer = open_tokenizer(folder / "model", Source("path", path="model"), "model.path")
    return {"ids": np.array(tokenizer("word1 word2")["input_ids"]).tobytes()}


def _make_texts(folder: Path) -> None:
    lines = "Größe zählt.\nThe cat sat.\n東京は晴れ。\n"
    (folder / "sentences.txt").write_text(lines, encoding="utf-8")


def _read_texts(folder: Path) -> Value:
    return {"texts": "\n".join(read_texts(folder / "sentences.txt")).encode()}


def _tree(folder: Path) -> str:
    return DigestCache(folder.parent / "digests").tree(folder)


KINDS = {
    "ML package": Kind(
        _make_package, _read_package, lambda folder: package_digest(folder / "model.mlpackage")
    ),
    "safetensors": Kind(_make_folder, _read_folder, _tree, part=3000),
    "tokenizer": Kind(_make_folder, _read_tokenizer, _tree),
    "texts": Kind(_make_texts, _read_texts, _tree),
}
# Which files of a source are damaged.
FILES = {
    "ML package": "**/*",
    "safetensors": "model/*.safetensors",
    "tokenizer": "model/tokenizer*.json",
    "texts": "*",
}


def fuzz(name: str, clean: Path, rounds: int, seed: int) -> Counter[str]:
    """Damage a copy of a source of some kind, each time anew; count what its reader did.

    Raises FoundError that names the place where a promise was broken.
    """
    kind, chance = KINDS[name], random.Random(f"{name} {seed}")
    digest, value = kind.digest(clean), kind.read(clean)
    counts: Counter[str] = Counter()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="convkit-fuzz-") as scratch:
            copy = Path(shutil.copytree(clean, Path(scratch) / "source"))
            files = [path for path in sorted(copy.glob(FILES[name])) if path.is_file()]
            path, harm = chance.choice(files), chance.choice(HARMS)
            where = f"seed {seed}: {path.relative_to(copy)}: {harm}"
            before = path.read_bytes()
            _damage_start(path, harm, chance, kind.part)
            if path.exists() and path.read_bytes() == before:
                continue
            try:
                counts[_judge(kind, copy, digest, value)] += 1
            except Exception as error:
                raise FoundError(f"{name}: {where}: {error!r}") from error
    return counts


def _damage_start(path: Path, harm: str, chance: random.Random, part: int | None) -> None:
    """Damage a file, or only its first bytes: most of a file of weights is weights."""
    rest = path.read_bytes()[part:] if part is not None else b""
    if not rest or harm in ("remove", "cut", "empty", "append"):
        damage(path, harm, chance)
        return
    path.write_bytes(path.read_bytes()[:part])
    damage(path, harm, chance)
    path.write_bytes(path.read_bytes() + rest)


def _judge(kind: Kind, copy: Path, digest: str, value: Value) -> str:
    try:
        found: str | None = kind.digest(copy)
    except CLEAR as error:
        _is_clear(error)
        found = None
    try:
        read = kind.read(copy)
    except CLEAR as error:
        _is_clear(error)
        if found == digest:
            raise FoundError("refused, with the digest of the sound one") from error
        return "refused"
    if found == digest and read != value:
        raise FoundError("other values, with the digest of the sound one")
    return "read as before" if read == value else "read as another"


def _is_clear(error: Exception) -> None:
    if not str(error).strip() or "Traceback" in str(error):
        raise FoundError(f"not a message: {error!r}") from error


def main() -> int:
    """Run the fuzzer from the command line; return 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    broken = False
    for name, kind in KINDS.items():
        with tempfile.TemporaryDirectory(prefix="convkit-fuzz-") as scratch:
            kind.make(Path(scratch))
            try:
                print(f"{name}: {dict(fuzz(name, Path(scratch), options.rounds, options.seed))}")
            except FoundError as error:
                print(f"BROKEN {error}")
                broken = True
    print(f"seed {options.seed}")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
