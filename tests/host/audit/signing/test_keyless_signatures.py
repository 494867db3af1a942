"""Keyless signatures. Certificates, log and identities come from a fake Sigstore on this machine;
the client that signs and verifies is the real sigstore-python, as in production.
"""

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from answers import answer_for, audited, command_line
from fake_sigstore import FakeSigstore
from forging import CONSISTENT, CONTRADICTORY, forge
from past_runs import copy_run, flip_byte

from convkit.host.audit.audit_policy import Policy, read_policy
from convkit.host.audit.evidence.evidence_export import export
from convkit.host.audit.evidence.evidence_import import import_evidence
from convkit.host.audit.past_runs.later_records import Acceptance, beside, write_acceptance
from convkit.host.audit.sign_command import Keyless, sign_run
from convkit.host.audit.signing.keyless_signatures import Identity
from convkit.host.audit.signing.signatures import SIGNATURES
from convkit.host.audit.signing.signing_keys import make_key
from convkit.host.home import Home
from convkit.host.record import standalone_verifier
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import ConvkitError, ProvenanceError, UsageError

JOB = "https://ci.example/models/convert.yml@refs/heads/main"


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSigstore]:
    sigstore = FakeSigstore()
    yield sigstore
    sigstore.close()


@pytest.fixture(scope="module")
def trust(fake: FakeSigstore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake.write_config(tmp_path_factory.mktemp("trust") / "trust.json")


def write_policy(folder: Path, fake: FakeSigstore, identity: str = JOB, **more: str) -> Policy:
    signer = {"name": "ci", "identity": identity, "issuer": fake.issuer} | more
    content = {"trust": [signer], "sigstore": "trust.json"}
    (folder / "policy.yaml").write_text(json.dumps(content))
    return read_policy(folder / "policy.yaml")


@pytest.fixture(scope="module")
def policy(fake: FakeSigstore, trust: Path) -> Policy:
    return write_policy(trust.parent, fake)


@pytest.fixture(scope="module")
def signed(
    finished: RunOutcome, fake: FakeSigstore, trust: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An accepted run that a CI job signed."""
    folder = tmp_path_factory.mktemp("signed") / finished.folder.name
    shutil.copytree(finished.folder, folder)
    write_acceptance(folder, Acceptance(folder.name, finished.record.ended + 60, "release team"))
    made = sign_run(folder, Keyless(fake.token(JOB), trust), Home(folder.parent / "no home"))
    assert {each.what for each in made} == {"provenance", "models", "acceptance"}
    assert {each.identity for each in made} == {Identity(JOB, fake.issuer)}
    return folder


@pytest.fixture
def copy(signed: Path, tmp_path: Path) -> Path:
    return copy_run(signed, tmp_path / "copy")


def bundles(folder: Path) -> dict[str, Path]:
    """Return the keyless signatures by what they are of."""
    found = sorted(beside(folder, SIGNATURES).iterdir())
    return {path.name.partition(".")[2].removesuffix(".sigstore.json"): path for path in found}


def test_a_job_s_signature_is_verified_offline(
    signed: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests

    def offline(*_: object, **__: object) -> None:
        raise AssertionError("an audit asked the network")

    monkeypatch.setattr(requests.Session, "request", offline)
    answer = audited(signed, policy)
    assert (answer.integrity, answer.signers, answer.violations) == ("intact", ("ci",), ())
    assert len(answer.signatures.signatures) == 3


def test_sigstore_s_own_tools_accept_it(signed: Path, fake: FakeSigstore, trust: Path) -> None:
    from model_signing import verifying
    from sigstore.models import Bundle, ClientTrustConfig
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity as Expected

    place = bundles(signed)
    root = ClientTrustConfig.from_json(trust.read_text()).trusted_root
    Verifier(trusted_root=root).verify_artifact(
        (signed / "provenance.json").read_bytes(),
        Bundle.from_json(place["provenance"].read_bytes()),
        Expected(identity=JOB, issuer=fake.issuer),
    )
    verifying.Config().use_sigstore_verifier(
        identity=JOB, oidc_issuer=fake.issuer, trust_config=trust
    ).verify(signed / "models", place["models"])


@pytest.mark.parametrize(
    ("identity", "more"),
    [(f"{JOB}-fork", {}), (JOB, {"issuer": "https://other.example"}), (JOB, {"signs": ["models"]})],
)
def test_whom_the_policy_does_not_trust_vouches_for_nothing(
    signed: Path, fake: FakeSigstore, trust: Path, tmp_path: Path, identity: str, more: dict
) -> None:
    shutil.copyfile(trust, tmp_path / "trust.json")
    answer = audited(signed, write_policy(tmp_path, fake, identity, **more))
    assert (answer.integrity, answer.signers, answer.exit_code) == ("intact", (), 1)
    assert f"provenance.json: signed by {JOB} (according to {fake.issuer})" in str(
        answer.violations
    )


@pytest.mark.parametrize("what", ["provenance", "models", "accepted"])
@pytest.mark.parametrize("seed", range(3))
def test_a_changed_bundle_is_named(copy: Path, policy: Policy, what: str, seed: int) -> None:
    """A byte of the certificate, of the signature, of the log's entry."""
    path = bundles(copy)[what]
    value = json.loads(path.read_bytes())
    material = value["verificationMaterial"]
    content = value.get("messageSignature") or value["dsseEnvelope"]["signatures"][0]
    holder, key = (
        (material.get("certificate"), "rawBytes"),
        (content, "signature" if "signature" in content else "sig"),
        (material["tlogEntries"][0], "canonicalizedBody"),
    )[seed]
    raw = bytearray(base64.b64decode(holder[key]))
    raw[len(raw) // 2] ^= 1
    holder[key] = base64.b64encode(raw).decode()
    path.write_text(json.dumps(value))
    answer = audited(copy, policy)
    assert answer.integrity == "broken"
    assert [each.path for each in answer.problems] == [f"../{path.parent.name}/{path.name}"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mediaType": 3}', "\x00"])
def test_what_is_no_bundle_is_named(copy: Path, policy: Policy, text: str) -> None:
    bundles(copy)["provenance"].write_text(text)
    answer = audited(copy, policy)
    assert answer.integrity == "broken"
    assert "not signed" in str(answer.violations)


@pytest.mark.parametrize("seed", range(2))
def test_a_signature_of_something_else_is_named(copy: Path, policy: Policy, seed: int) -> None:
    forge(copy, seed, (CONTRADICTORY + CONSISTENT)[-2:])
    named = {each.path.partition(".")[2] for each in audited(copy, policy).problems}
    assert any("provenance.sigstore.json" in each for each in named)


def test_a_changed_model_breaks_the_models_bundle(copy: Path, policy: Policy) -> None:
    flip_byte(copy / "models/ort/model.onnx")
    problems = {each.path: each.detail for each in audited(copy, policy).problems}
    path = bundles(copy)["models"]
    assert "not what was signed" in problems[f"../{path.parent.name}/{path.name}"]


def test_a_bundle_under_another_identity_s_name_is_named(copy: Path, policy: Policy) -> None:
    path = bundles(copy)["provenance"]
    path.rename(path.with_name(f"{'0' * 16}.provenance.sigstore.json"))
    assert "whose signatures begin with" in str(audited(copy, policy).problems)


def test_of_another_sigstore_nothing_is_claimed_without_its_configuration(signed: Path) -> None:
    answer = audited(signed, None)
    assert (answer.integrity, answer.signatures.signatures) == ("intact", ())
    assert "did not certify" in answer.signatures.unchecked
    assert any("sigstore: FILE" in note for note in answer.notes)


def test_another_sigstore_s_certificate_is_refused_with_a_configuration(
    copy: Path, tmp_path: Path
) -> None:
    stranger = FakeSigstore()
    try:
        stranger.write_config(tmp_path / "trust.json")
        answer = audited(copy, write_policy(tmp_path, stranger))
    finally:
        stranger.close()
    assert answer.integrity == "broken"
    assert answer.signers == ()


def test_the_command_signs_and_says_as_whom(
    finished: RunOutcome, fake: FakeSigstore, trust: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "small" / finished.folder.name
    shutil.copytree(finished.folder, folder)
    (tmp_path / "token").write_text(fake.token(JOB) + "\n")
    options = ("--keyless", "--identity-token", tmp_path / "token", "--sigstore", trust)
    code, output = command_line("sign", folder, *options, home=tmp_path / "home")
    assert code == 0
    assert f"signed provenance.json as {JOB} (according to {fake.issuer})" in output
    policy = write_policy(trust.parent, fake).file
    code, output = command_line("audit", folder, "--policy", policy, home=tmp_path / "home")
    assert code == 0
    assert "Signature: signed by ci." in output


def test_a_key_and_an_identity_may_both_sign(copy: Path, policy: Policy, tmp_path: Path) -> None:
    key = make_key("release", tmp_path).private
    sign_run(copy, key, Home(tmp_path / "no home"))
    answer = audited(copy, policy)
    assert (answer.integrity, answer.signers) == ("intact", ("ci",))
    assert len(answer.signatures.signatures) == 6


def test_evidence_carries_it(copy: Path, policy: Policy, tmp_path: Path) -> None:
    file = export(copy, Home(tmp_path / "no home"), tmp_path / "run.zip")
    folder, answer = import_evidence(file, Home(tmp_path / "home"), policy)
    assert (answer.integrity, answer.signers) == ("intact", ("ci",))
    assert answer_for(folder, tmp_path / "home").integrity == "intact"
    flip_byte(bundles(copy)["provenance"])
    with pytest.raises((UsageError, ProvenanceError)):
        import_evidence(
            export(copy, Home(tmp_path / "no home"), tmp_path / "2.zip"),
            Home(tmp_path / "other"),
            policy,
        )
    verify = Path(standalone_verifier.__file__)
    said = subprocess.run(
        [sys.executable, verify, file], check=True, capture_output=True, text=True
    ).stdout
    assert "not checked here" in said
    assert "signed by: nobody" in said


@pytest.mark.parametrize(
    ("signer", "message"),
    [
        ({"name": "x"}, "either key, or identity and issuer"),
        ({"name": "x", "identity": "a"}, "either key, or identity and issuer"),
        ({"name": "x", "issuer": "a"}, "either key, or identity and issuer"),
        ({"name": "x", "key": "a.pub", "identity": "a", "issuer": "b"}, "either key"),
    ],
)
def test_a_policy_names_what_is_wrong(tmp_path: Path, signer: dict, message: str) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps({"trust": [signer]}))
    with pytest.raises(UsageError, match=message):
        read_policy(tmp_path / "policy.yaml")


def test_a_policy_names_a_missing_configuration(fake: FakeSigstore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sigstore: no such file: .*trust\.json"):
        write_policy(tmp_path, fake)


def test_without_an_identity_it_says_how_to_get_one(
    finished: RunOutcome, trust: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_ACTIONS", "CIRCLECI", "GITLAB_CI", "BUILDKITE"):
        monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path / "no home")
    with pytest.raises(UsageError, match="needs an identity"):
        sign_run(finished.folder, Keyless(None, trust), home)
    with pytest.raises(ConvkitError, match="no signature from Sigstore: Identity token"):
        sign_run(finished.folder, Keyless("not a token", trust), home)
    with pytest.raises(UsageError, match="no readable trust configuration"):
        sign_run(finished.folder, Keyless("x", tmp_path / "none.json"), home)
    assert not beside(finished.folder, SIGNATURES).exists()
