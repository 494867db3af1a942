"""Signatures: made by convkit, checked by the libraries themselves, void after any change."""

import dataclasses
import json
import shutil
import stat
import sys
from pathlib import Path

import pytest
from answers import answer_for, audited, command_line
from forging import CONSISTENT, CONTRADICTORY, forge
from past_runs import copy_run, flip_byte

from convkit.host.audit.audit_policy import Policy, read_policy
from convkit.host.audit.past_runs.later_records import (
    Acceptance,
    Reproduction,
    beside,
    write_acceptance,
    write_reproduction,
)
from convkit.host.audit.sign_command import sign_run
from convkit.host.audit.signing.signatures import sign_folder
from convkit.host.audit.signing.signing_keys import make_key, read_public_key
from convkit.host.home import Home
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import UsageError


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("release", "stranger"):
        make_key(name, folder)
    (folder / "policy.yaml").write_text(
        "trust:\n  - {name: release team, key: release.pub}\n"
        "require: {signed: [provenance, models, acceptance, reproduction]}\n"
    )
    return folder


@pytest.fixture(scope="module")
def policy(keys: Path) -> Policy:
    return read_policy(keys / "policy.yaml")


@pytest.fixture(scope="module")
def signed(finished: RunOutcome, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run that was accepted, reproduced and signed."""
    folder = tmp_path_factory.mktemp("signed") / finished.folder.name
    shutil.copytree(finished.folder, folder)
    later = finished.record.ended + 60
    write_acceptance(folder, Acceptance(folder.name, later, "release team", "for 2.0"))
    classes = {"ort": "NUMERIC_OK"}
    write_reproduction(folder, Reproduction(folder.name, later, "NUMERIC_OK", classes, {}))
    made = sign_run(folder, keys / "release.key", Home(folder.parent / "no home"))
    assert sorted(each.what for each in made) == [
        "acceptance",
        "models",
        "provenance",
        "reproduction",
    ]
    return folder


@pytest.fixture
def copy(signed: Path, tmp_path: Path) -> Path:
    return copy_run(signed, tmp_path / "copy")


def test_a_signed_run_is_vouched_for(signed: Path, policy: Policy) -> None:
    answer = audited(signed, policy)
    assert (answer.integrity, answer.signers, answer.violations) == (
        "intact",
        ("release team",),
        (),
    )
    assert len(answer.signatures.signatures) == 4


def test_the_libraries_themselves_accept_what_convkit_signed(signed: Path, keys: Path) -> None:
    from model_signing import verifying
    from securesystemslib.dsse import Envelope

    key = read_public_key(keys / "release.pub")
    place = beside(signed, ".signatures")
    (path,) = place.glob("*.provenance.dsse.json")
    envelope = Envelope.from_dict(json.loads(path.read_text()))
    assert set(envelope.verify([key], 1)) == {key.keyid}
    assert envelope.payload == (signed / "provenance.json").read_bytes()
    assert envelope.payload_type == "application/vnd.in-toto+json"
    (bundle,) = place.glob("*.models.sig")
    config = verifying.Config().use_elliptic_key_verifier(public_key=keys / "release.pub")
    config.verify(signed / "models", bundle)


def test_without_a_policy_a_signature_proves_no_identity(signed: Path) -> None:
    answer = audited(signed, None)
    assert (answer.integrity, answer.signers, answer.exit_code) == ("intact", (), 0)
    output = command_line("audit", signed, home=signed.parent / "no home")[1]
    assert "no policy says whether to trust it" in " ".join(output.split())


def test_an_unsigned_run_says_so(finished: RunOutcome) -> None:
    output = command_line("audit", finished.folder, home=finished.folder.parents[2])[1]
    assert "unsigned; consistent with itself" in " ".join(output.split())


@pytest.mark.parametrize("seed", range(len(CONSISTENT) + len(CONTRADICTORY)))
def test_every_forgery_of_a_signed_run_is_named(copy: Path, policy: Policy, seed: int) -> None:
    done = forge(copy, seed, (*CONSISTENT, *CONTRADICTORY))
    answer = audited(copy, policy)
    assert answer.exit_code == 1, done
    assert answer.violations, done


def test_a_forger_who_signs_with_another_key_is_not_trusted(
    copy: Path, keys: Path, policy: Policy
) -> None:
    forge(copy, 1, CONSISTENT)
    shutil.rmtree(beside(copy, ".signatures"))
    assert "provenance.json: not signed" in audited(copy, policy).violations
    sign_folder(copy, keys / "stranger.key")
    answer = audited(copy, policy)
    assert (answer.signers, answer.exit_code) == ((), 1)
    assert any("whom the policy does not trust" in each for each in answer.violations)


def test_every_signature_file_counts(copy: Path, policy: Policy) -> None:
    place = beside(copy, ".signatures")
    for path in sorted(place.iterdir()):
        content = path.read_bytes()
        flip_byte(path)
        answer = audited(copy, policy)
        assert answer.exit_code == 1, path.name
        named = [problem.path for problem in answer.problems]
        assert any(name.startswith(f"../{place.name}/") for name in named), path.name
        assert len(named) == len(set(named)), "each problem is named once"
        path.write_bytes(content)
    assert audited(copy, policy).exit_code == 0


def test_a_later_acceptance_needs_its_own_signature(copy: Path, keys: Path, policy: Policy) -> None:
    write_acceptance(copy, Acceptance(copy.name, 4e9, "somebody", "again"))
    answer = audited(copy, policy)
    assert answer.violations == (f"../{copy.name}.accepted.json: not signed",)
    sign_run(copy, keys / "release.key", Home(copy.parent / "no home"))
    assert audited(copy, policy).exit_code == 0


def test_a_damaged_run_is_not_signed(copy: Path, keys: Path) -> None:
    flip_byte(copy / "models" / "ort" / "model.onnx")
    with pytest.raises(UsageError, match=r"not intact: models/ort/model\.onnx: changed"):
        sign_run(copy, keys / "release.key", Home(copy.parent / "no home"))


def test_a_policy_says_who_may_sign_what_and_on_which_evidence(copy: Path, keys: Path) -> None:
    policy = keys / "strict.yaml"
    policy.write_text(
        "trust:\n  - {name: nightly, key: release.pub, signs: [provenance, models]}\n"
        "require: {evidence: [simulated], history: true}\n"
    )
    answer = audited(copy, read_policy(policy))
    assert answer.violations[0].startswith(f"../{copy.name}.accepted.json: signed by ")
    assert answer.violations[1] == "ort: the evidence is device"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trust: []", "trust"),
        ("trust: [{name: a}]", "key"),
        ("trust: [{name: a, key: gone.pub}]", "no readable key"),
        ("trust: [{name: a, key: release.key}]", "not a public key"),
        ("trust: [{name: a, key: release.pub}]\nrequired: {}", "required"),
        ("- 1", "the whole file"),
    ],
)
def test_a_wrong_policy_is_refused(keys: Path, text: str, said: str) -> None:
    path = keys / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_policy(path)


def test_the_commands(finished: RunOutcome, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(finished.folder.parents[2], home)
    folder = tmp_path / "keys"
    code, output = command_line("keys", "new", "ci", "--folder", folder, home=home)[0:2]
    assert code == 2, "keys have no home"
    from typer.testing import CliRunner

    from convkit.cli.main import app

    made = CliRunner().invoke(app, ["keys", "new", "ci", "--folder", str(folder)])
    assert made.exit_code == 0, made.output
    assert stat.S_IMODE((folder / "ci.key").stat().st_mode) == 0o600
    again = CliRunner().invoke(app, ["keys", "new", "ci", "--folder", str(folder)])
    assert isinstance(again.exception, UsageError)
    code, output = command_line("sign", "latest", "--key", folder / "ci.key", home=home)
    assert (code, "signed provenance.json" in output) == (0, True)
    (folder / "policy.yaml").write_text("trust: [{name: CI, key: ci.pub}]")
    code, output = command_line("audit", "latest", "--policy", folder / "policy.yaml", home=home)
    assert (code, "Signature: signed by CI." in output) == (0, True)


def test_a_removed_or_changed_run_shows_in_the_one_after_it(tmp_path: Path) -> None:
    from records import verified_record
    from run_folders import materials_of_recipe, write_built_run

    from convkit.host.record.provenance import write_provenance
    from convkit.host.record.recorded_materials import PreviousRun
    from convkit.host.store.digests import digest_file

    first, record = write_built_run(
        tmp_path, dataclasses.replace(verified_record(), provenance=True)
    )
    materials = materials_of_recipe(record)
    write_provenance(first, record, materials)
    older = record
    later = dataclasses.replace(record, id="20251009-085320-4000")
    second, record = write_built_run(tmp_path, later)
    previous = PreviousRun(first.name, digest_file(first / "provenance.json"))
    write_provenance(second, record, dataclasses.replace(materials, previous=previous))
    assert [audited(each, None).notes for each in (first, second)] == [(), ()]
    write_provenance(first, older, dataclasses.replace(materials, platform="other"))
    assert any(
        "the next run recorded" in each.message for each in audited(first, None).contradictions
    )
    assert f"the previous run, {first.name}, has changed since" in audited(second, None).notes
    shutil.rmtree(first)
    assert f"the previous run, {first.name}, is gone" in audited(second, None).notes
    assert answer_for(second, tmp_path).exit_code == 0


def test_what_is_missing_is_said_with_the_library_hidden(
    signed: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "securesystemslib.signer", None)
    with pytest.raises(UsageError, match=r"pip install .*sign"):
        make_key("another", tmp_path)
    with pytest.raises(UsageError, match=r"pip install .*sign"):
        read_policy(keys / "policy.yaml")
    answer = audited(signed, None)
    assert any("signatures need securesystemslib" in note for note in answer.notes)
    output = command_line("audit", signed, home=tmp_path)[1]
    assert "Signature: not checked." in output
