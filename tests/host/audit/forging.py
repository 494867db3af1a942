"""Forgeries of a run: consistent edits by somebody who can seal a provenance again.

Each forger changes one fact where it is stated, and hides that by sealing again; `forge` picks one
by its seed. What is left is either a contradiction, which an audit names without any signature, or
a consistent lie (`CONSISTENT`), which only a signature reveals.
"""

import contextlib
import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resealing import edit_result, edit_statement, outputs, read, seal_again, write

from convkit.host.audit.past_runs.later_records import beside
from convkit.host.record.attachments import FOLDER, attachments
from convkit.host.record.provenance import read_provenance
from convkit.host.report.report_file import write_report
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import seal as seal_value
from convkit.protocol.errors import ConvkitError

Forger = Callable[[Path, random.Random], None]


def lower_an_error(folder: Path, random: random.Random) -> None:
    def change(record: Any) -> None:
        output = random.choice([each for each in outputs(record) if each["metrics"]["max_abs"]])
        output["metrics"]["max_abs"] *= random.uniform(0.01, 0.5)

    edit_result(folder, change)


def raise_an_error(folder: Path, random: random.Random) -> None:
    """The run judges its model by a tolerance that it exceeds, and passes."""

    def change(record: Any) -> None:
        metrics = random.choice(outputs(record))["metrics"]
        factor = random.uniform(1e4, 1e9)
        for name in ("max_abs", "rms", "mean_abs"):
            metrics[name] = factor * (metrics[name] or 1e-6)
        metrics["worst_candidate"] = metrics["worst_reference"] + metrics["max_abs"]
        metrics["frontier"] = [[abs(metrics["worst_reference"]), metrics["max_abs"]]]
        metrics["cosine"], metrics["agreement"] = 0.2, 0.0

    edit_result(folder, change)


def loosen_a_limit(folder: Path, random: random.Random) -> None:
    def change(record: Any) -> None:
        random.choice(outputs(record))["limits"]["max_abs"] = random.uniform(0.1, 10.0)

    edit_result(folder, change)


def loosen_the_recipe(folder: Path, random: random.Random) -> None:
    """Change the tolerance wherever the recipe is told, but not the limits it was judged by."""
    old = read(folder / "result.json")["recipe_text"]
    new = old.replace("max_abs: 1.0e-05", f"max_abs: {random.uniform(0.1, 9):.3f}")
    assert new != old
    (folder / "recipe.yaml").write_text(new)
    digest = hashlib.sha256(new.encode()).hexdigest()
    edit_result(folder, lambda record: record.update(recipe_text=new, recipe_digest=digest))
    edit_statement(
        folder,
        lambda statement: statement["predicate"]["buildDefinition"]["externalParameters"][
            "recipe"
        ].update(text=new),
    )


def drop_a_case(folder: Path, random: random.Random) -> None:
    def change(record: Any) -> None:
        cases = record["targets"][0]["verifications"][0]["cases"]
        cases.pop(random.randrange(len(cases)))

    edit_result(folder, change)


def fail_a_target(folder: Path, random: random.Random) -> None:
    status = random.choice(["failed", "broken", "skipped"])
    edit_result(folder, lambda record: record["targets"][0].update(status=status))


def change_a_verdict(folder: Path, random: random.Random) -> None:
    status = random.choice(["failed", "broken", "skipped"])

    def change(statement: Any) -> None:
        for entry in statement["predicate"]["runDetails"]["byproducts"]:
            if entry["name"] == "result.json":
                entry["annotations"]["verdict"] = status

    edit_statement(folder, change)


def change_a_model(folder: Path, random: random.Random) -> None:
    files = sorted((folder / "models").rglob("*.*"))
    # Golden cases are proven by the provenance's digests alone, which a forger may adapt.
    built = [each for each in files if "golden" not in each.parts and each.name != "origin.json"]
    path = random.choice(built)
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.chmod(0o644)
    path.write_bytes(content)


def change_an_artifact(folder: Path, random: random.Random) -> None:
    """Name another artifact in the result and in the provenance."""
    digest = random.randbytes(32).hex()

    def of_result(record: Any) -> None:
        next(each for each in record["stages"] if each["id"] == "build:ort")["artifact"] = digest

    def of_statement(statement: Any) -> None:
        parameters = statement["predicate"]["buildDefinition"]["internalParameters"]
        parameters["stages"]["build:ort"]["artifact"] = digest

    edit_result(folder, of_result)
    edit_statement(folder, of_statement)


def change_a_key(folder: Path, random: random.Random) -> None:
    key = random.randbytes(32).hex()
    edit_result(folder, lambda record: random.choice(record["stages"]).update(key=key))


def change_a_version(folder: Path, random: random.Random) -> None:
    def change(record: Any) -> None:
        stage = random.choice([each for each in record["stages"] if each["versions"]])
        stage["versions"][random.choice(sorted(stage["versions"]))] = "0.0.1"

    edit_result(folder, change)


def drop_a_material(folder: Path, random: random.Random) -> None:
    def change(statement: Any) -> None:
        found = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        tools = [each for each in found if each["annotations"]["kind"] == "tool"]
        found.remove(random.choice(tools))

    edit_statement(folder, change)


def move_in_time(folder: Path, random: random.Random) -> None:
    shift = random.choice([-1, 1]) * random.uniform(3600, 9e6)

    def change(record: Any) -> None:
        record["started"] += shift
        record["ended"] += shift

    edit_result(folder, change)


def claim_a_file(folder: Path, random: random.Random) -> None:
    """Deliver another file as if the run had built it."""
    name = f"models/{random.choice(['ort', 'other'])}/extra{random.randrange(99)}.onnx"
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(random.randbytes(20))
    entry = {"name": name, "digest": {"sha256": ""}, "annotations": {"size": 0}}
    edit_statement(folder, lambda statement: statement["subject"].append(entry))


def lock_something_else(folder: Path, random: random.Random) -> None:
    (folder / "locks").mkdir(exist_ok=True)
    hash_ = random.randbytes(32).hex()
    (folder / "locks" / "export.txt").write_text(f"torch==1.0.0 --hash=sha256:{hash_}\n")
    entry = {"name": "locks/export.txt", "digest": {"sha256": ""}, "annotations": {"size": 0}}
    edit_statement(folder, lambda s: s["predicate"]["runDetails"]["byproducts"].append(entry))


def move_an_acceptance(folder: Path, random: random.Random) -> None:
    """Accept other bytes than those that were accepted."""
    path = beside(folder, ".accepted.json")
    content = read(path)["content"]
    content["provenance"] = random.randbytes(32).hex()
    write(path, seal_value(content))


def edit_an_acceptance(folder: Path, random: random.Random) -> None:
    path = beside(folder, ".accepted.json")
    value = read(path)
    value["content"][random.choice(["by", "note"])] = f"somebody else {random.random()}"
    write(path, value)


def praise_a_reproduction(folder: Path, random: random.Random) -> None:
    path = random.choice(sorted(beside(folder, ".reproductions").glob("*.json")))
    content = read(path)["content"]
    content["worst"] = "BIT_IDENTICAL"
    write(path, seal_value(content))


def rename_the_acceptor(folder: Path, random: random.Random) -> None:
    path = beside(folder, ".accepted.json")
    content = read(path)["content"]
    content["by"] = f"somebody else {random.random()}"
    write(path, seal_value(content))


def change_the_seeds(folder: Path, random: random.Random) -> None:
    edit_statement(
        folder,
        lambda statement: statement["predicate"]["buildDefinition"]["internalParameters"].update(
            seeds={"verify.seed": random.randrange(1000, 9999)}
        ),
    )


def change_the_source(folder: Path, random: random.Random) -> None:
    def change(statement: Any) -> None:
        found = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        source = next(each for each in found if each["annotations"]["kind"] == "source")
        source["digest"]["sha256"] = random.randbytes(32).hex()

    edit_statement(folder, change)


def change_the_worker_code(folder: Path, random: random.Random) -> None:
    def change(statement: Any) -> None:
        code = statement["predicate"]["buildDefinition"]["internalParameters"]["workerCode"]
        code[random.choice(sorted(code))] = random.randbytes(32).hex()

    edit_statement(folder, change)


def write_a_log(folder: Path, random: random.Random) -> None:
    path = random.choice(sorted((folder / "logs").glob("*.log")))
    path.write_text(f"all is well {random.random()}\n")


def _materials(statement: Any, kind: str) -> list[Any]:
    found = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    return [each for each in found if each["annotations"]["kind"] == kind]


def rename_the_source(folder: Path, random: random.Random) -> None:
    """The model came from somewhere else than the recipe says."""
    name = f"other.py:build{random.randrange(99)}"
    edit_statement(folder, lambda each: _materials(each, "source")[0].update(name=name))


def change_a_package_url(folder: Path, random: random.Random) -> None:
    def change(statement: Any) -> None:
        tool = random.choice(_materials(statement, "tool"))
        tool["uri"] = f"pkg:pypi/{tool['name']}@0.0.{random.randrange(99)}"

    edit_statement(folder, change)


def change_the_commit(folder: Path, random: random.Random) -> None:
    """Another convkit made the run."""

    def change(statement: Any) -> None:
        builder = statement["predicate"]["runDetails"]["builder"]["builderDependencies"][0]
        if seed := random.randrange(2):
            builder["digest"]["gitCommit"] = random.randbytes(20).hex()
        builder["annotations"]["version"] += f".{seed}"

    edit_statement(folder, change)


def hide_a_model_from_the_subject(folder: Path, random: random.Random) -> None:
    """Who reads the subject only no longer learns of the model."""

    def change(statement: Any) -> None:
        subject = statement["subject"]
        entry = next(each for each in subject if each["name"].endswith(".onnx"))
        subject.remove(entry)
        statement["predicate"]["runDetails"]["byproducts"].append(entry)

    edit_statement(folder, change)


def state_a_file_twice(folder: Path, random: random.Random) -> None:
    """One reader takes the first digest, another the last."""

    def change(statement: Any) -> None:
        byproducts = statement["predicate"]["runDetails"]["byproducts"]
        twin = json.loads(json.dumps(random.choice(byproducts)))
        twin["annotations"]["size"] += 1
        byproducts.append(twin)

    edit_statement(folder, change)


def state_a_result_twice(folder: Path, random: random.Random) -> None:
    """One reader of the JSON takes the first value, another the last."""
    path = folder / "result.json"
    text = path.read_text()
    path.write_text(text.replace("{", '{"status": "failed",', 1))


def measure_fewer_elements(folder: Path, random: random.Random) -> None:
    edit_result(folder, lambda record: random.choice(outputs(record))["metrics"].update(elements=1))


def shrink_a_model(folder: Path, random: random.Random) -> None:
    size = random.randrange(1, 999)
    edit_result(folder, lambda record: record["targets"][0].update(size_bytes=size))


def claim_another_precision(folder: Path, random: random.Random) -> None:
    edit_result(folder, lambda record: record["targets"][0].update(precision="float16"))


def lose_a_log(folder: Path, random: random.Random) -> None:
    edit_result(folder, lambda record: random.choice(record["stages"]).update(log="logs/no.log"))


def lose_a_stage(folder: Path, random: random.Random) -> None:
    """A verification of a stage that the run does not have."""
    edit_result(
        folder, lambda record: record["targets"][0]["verifications"][0].update(stage="verify:other")
    )


CONTRADICTORY: tuple[Forger, ...] = (
    lower_an_error,
    raise_an_error,
    loosen_a_limit,
    loosen_the_recipe,
    drop_a_case,
    fail_a_target,
    change_a_verdict,
    change_a_model,
    change_an_artifact,
    change_a_key,
    change_a_version,
    drop_a_material,
    move_in_time,
    claim_a_file,
    lock_something_else,
    move_an_acceptance,
    edit_an_acceptance,
    praise_a_reproduction,
    change_the_seeds,
    rename_the_source,
    change_a_package_url,
    change_the_commit,
    hide_a_model_from_the_subject,
    state_a_file_twice,
    state_a_result_twice,
    measure_fewer_elements,
    shrink_a_model,
    claim_another_precision,
    lose_a_log,
    lose_a_stage,
)
# Nothing else states the same fact.
CONSISTENT: tuple[Forger, ...] = (
    rename_the_acceptor,
    change_the_source,
    write_a_log,
    change_the_worker_code,
)
# Files beside the run: the provenance does not list them.
BESIDE = (move_an_acceptance, edit_an_acceptance, praise_a_reproduction, rename_the_acceptor)


def forge(folder: Path, seed: int, forgers: tuple[Forger, ...]) -> str:
    """Forge a run; return what was done. Equal seeds do the same; every second one has the report
    rendered again, too.
    """
    forger = forgers[seed % len(forgers)]
    forger(folder, random.Random(seed))
    if forger not in BESIDE:
        # Nothing beside the run may give the forgery away: its digests are those of before.
        beside(folder, ".accepted.json").unlink(missing_ok=True)
        shutil.rmtree(beside(folder, ".reproductions"), ignore_errors=True)
        if seed // len(forgers) % 2:
            write_report(read_record(folder), folder)
        seal_again(folder)
        _render_attachments_again(folder)
    return forger.__name__


def _render_attachments_again(folder: Path) -> None:
    with contextlib.suppress(ConvkitError):  # of what convkit cannot read, it makes none
        texts = attachments(read_record(folder), read_provenance(folder))
        for name, text in texts.items():
            (folder / FOLDER / name).write_text(text)
        seal_again(folder)
