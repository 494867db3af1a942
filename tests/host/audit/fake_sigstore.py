"""A private Sigstore for tests: no public one can be reached from them.

The certificate authority (Fulcio), the transparency log (Rekor) and the identity provider answer on
a local port and do what sigstore-python checks: certificates with the identity and an embedded
certificate timestamp, log entries with an inclusion proof, a checkpoint and a signed entry
timestamp. The client that signs and verifies is the real one.
"""

import base64
import datetime as dt
import hashlib
import http.server
import json
import threading
import time
from pathlib import Path
from typing import Any

import jwt
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_TIMESTAMPS = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_DAY = dt.timedelta(days=1)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _der(key: Any) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _key_id(key: Any) -> bytes:
    return hashlib.sha256(_der(key)).digest()


def _sign(key: Any, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


class FakeSigstore:
    """A certificate authority, a log and an identity provider. `url` is where they answer."""

    issuer = "https://ci.example"

    def __init__(self) -> None:
        self._authority, self._timestamps, self._log = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        self._root = self._root_certificate()
        self._entries = 0
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                names = ("authorization_endpoint", "token_endpoint")
                self._answer(200, dict.fromkeys(names, f"{fake.url}/none"))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/api/v2/signingCert":
                    token = self.headers["Authorization"].removeprefix("Bearer ")
                    self._answer(200, fake._certify(body, token))
                else:
                    self._answer(201, fake._record(body))

            def _answer(self, status: int, value: object) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, identity: str) -> str:
        """Return an identity token, as a CI system hands one to its jobs."""
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": identity, "aud": "sigstore"}
        return jwt.encode(claims | {"iat": now, "exp": now + 600}, "x" * 32, algorithm="HS256")

    def write_config(self, path: Path) -> Path:
        """Write the trust configuration, which clients of a private Sigstore are given."""
        since = {"start": "2020-01-01T00:00:00Z"}

        def service(kind: str) -> dict[str, Any]:
            return {"url": self.url, "majorApiVersion": 1, "validFor": since, "operator": kind}

        def log(key: Any) -> dict[str, Any]:
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _text(_der(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": since,
                },
                "logId": {"keyId": _text(_key_id(key))},
            }

        root = _text(self._root.public_bytes(serialization.Encoding.DER))
        media = "application/vnd.dev.sigstore"
        config = {
            "mediaType": f"{media}.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": f"{media}.trustedroot+json;version=0.1",
                "tlogs": [log(self._log)],
                "ctlogs": [log(self._timestamps)],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "fake", "commonName": "fake"},
                        "uri": self.url,
                        "certChain": {"certificates": [{"rawBytes": root}]},
                        "validFor": since,
                    }
                ],
                "timestampAuthorities": [],
            },
            "signingConfig": {
                "mediaType": f"{media}.signingconfig.v0.2+json",
                "caUrls": [service("ca")],
                "oidcUrls": [service("oidc")],
                "rekorTlogUrls": [service("rekor")],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaUrls": [],
                "tsaConfig": {"selector": "ANY"},
            },
        }
        path.write_text(json.dumps(config))
        return path

    def _root_certificate(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake authority")])
        now = dt.datetime.now(dt.UTC)
        public = self._authority.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 365 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._authority, hashes.SHA256())
        )

    def _certify(self, body: Any, token: str) -> Any:
        request = x509.load_pem_x509_csr(base64.b64decode(body["certificateSigningRequest"]))
        claims = jwt.decode(token, options={"verify_signature": False})
        now = dt.datetime.now(dt.UTC)
        name = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(claims["sub"])])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._root.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=1))
            .not_valid_after(now + dt.timedelta(minutes=10))
            .add_extension(name, critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(authority, critical=False)
            .add_extension(
                x509.UnrecognizedExtension(_ISSUER, claims["iss"].encode()), critical=False
            )
        )
        stamp = self._timestamp(builder.sign(self._authority, hashes.SHA256()))
        final = builder.add_extension(
            x509.UnrecognizedExtension(_TIMESTAMPS, stamp), critical=False
        ).sign(self._authority, hashes.SHA256())
        chain = [
            each.public_bytes(serialization.Encoding.PEM).decode() for each in (final, self._root)
        ]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _timestamp(self, certificate: x509.Certificate) -> bytes:
        """Return the list of one timestamp for a certificate (RFC 6962, 3.2 and 3.3)."""
        content = certificate.tbs_certificate_bytes
        moment = int(time.time() * 1000).to_bytes(8)
        signed = b"\0\0" + moment + b"\0\1" + _key_id(self._authority)
        signature = _sign(self._timestamps, signed + len(content).to_bytes(3) + content + b"\0\0")
        stamp = b"\0" + _key_id(self._timestamps) + moment + b"\0\0\4\3"
        stamp += len(signature).to_bytes(2) + signature
        stamps = len(stamp).to_bytes(2) + stamp
        stamps = len(stamps).to_bytes(2) + stamps
        assert len(stamps) < 128, "an octet string with a length of one byte"
        return b"\x04" + len(stamps).to_bytes(1) + stamps

    def _record(self, body: Any) -> Any:
        """Return an entry of a log that holds this entry only (RFC 6962, 2.1)."""
        if body["kind"] == "dsse":
            body = _dsse_entry(body)
        content = rfc8785.dumps(body)
        self._entries += 1
        root = hashlib.sha256(b"\0" + content).digest()
        entry = {
            "body": _text(content),
            "integratedTime": int(time.time()),
            "logID": _key_id(self._log).hex(),
            "logIndex": self._entries,
        }
        note = f"fake log\n1\n{_text(root)}\n"
        signature = _key_id(self._log)[:4] + _sign(self._log, note.encode())
        proof = {
            "checkpoint": f"{note}\n\u2014 fake {_text(signature)}\n",
            "hashes": [],
            "logIndex": 0,
            "rootHash": root.hex(),
            "treeSize": 1,
        }
        promise = _text(_sign(self._log, rfc8785.dumps(entry)))
        verification = {"inclusionProof": proof, "signedEntryTimestamp": promise}
        return {f"{self._entries:064x}": entry | {"verification": verification}}


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _dsse_entry(body: Any) -> Any:
    proposed = body["spec"]["proposedContent"]
    envelope = json.loads(proposed["envelope"])
    digests = {
        "envelopeHash": proposed["envelope"].encode(),
        "payloadHash": base64.b64decode(envelope["payload"]),
    }
    hashed = {
        name: {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}
        for name, content in digests.items()
    }
    signatures = [
        {"signature": each["sig"], "verifier": proposed["verifiers"][0]}
        for each in envelope["signatures"]
    ]
    return body | {"spec": hashed | {"signatures": signatures}}
