"""Who can reach a fleet's workers: real schedulers, workers and certificates on this machine."""

import os
import stat
from pathlib import Path

import psutil
import pytest
from command_line import convkit
from other_processes import soon
from small_fleet import SmallFleet

from convkit.host.fleet import tls_certificates
from convkit.host.fleet.fleet_worker import fleet_status
from convkit.protocol.errors import FleetError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVKIT_FLEET_TLS", str(tmp_path / "tls"))
    return tmp_path / "tls"


def test_one_command_makes_a_certificate_and_says_what_to_do(tls: Path) -> None:
    done = convkit("fleet", "certificate")
    assert done.returncode == 0, done.stderr
    assert "dask scheduler --protocol tls" in done.stdout
    for name in (tls_certificates.CERTIFICATE, tls_certificates.KEY):
        assert stat.S_IMODE((tls / name).stat().st_mode) == 0o600
    again = convkit("fleet", "certificate")
    assert again.returncode == 2
    assert "there is a certificate already" in again.stderr


@pytest.mark.parametrize(
    ("scheduler", "given", "address"),
    [
        ("tcp://127.0.0.1:8786", None, "127.0.0.1"),
        ("tcp://localhost:8786", None, "127.0.0.1"),
        ("tls://127.0.0.1:8786", "10.0.0.7", "10.0.0.7"),
    ],
)
def test_a_worker_listens_where_its_scheduler_reaches_it(
    scheduler: str, given: str | None, address: str
) -> None:
    assert tls_certificates.listening_address(scheduler, given, insecure=False) == address


@pytest.mark.parametrize("given", ["0.0.0.0", "10.0.0.7", "::", "some-host"])
def test_a_worker_that_anyone_could_use_needs_insecure(given: str) -> None:
    with pytest.raises(UsageError, match=r"could run any code on it.*--insecure"):
        tls_certificates.listening_address("tcp://127.0.0.1:8786", given, insecure=False)
    assert tls_certificates.listening_address("tcp://127.0.0.1:8786", given, insecure=True) == given


def test_the_command_refuses_it_before_it_listens() -> None:
    done = convkit("fleet", "worker", "tcp://127.0.0.1:1", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "--insecure" in done.stderr


@pytest.mark.slow
def test_a_worker_listens_on_its_own_address_only(tmp_path: Path) -> None:
    with SmallFleet(tmp_path, 1) as fleet:
        sockets = psutil.Process(fleet.workers[0].pid).net_connections()
        listening = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_fleet_with_certificates_turns_strangers_away(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FleetError, match="no certificate of the fleet"):
        fleet_status("tls://127.0.0.1:1")
    file, key = tls_certificates.make_certificate(tls)
    options = ["--protocol", "tls", "--tls-ca-file", str(file)]
    options += ["--tls-cert", str(file), "--tls-key", str(key)]
    with SmallFleet(tmp_path / "fleet", 1, scheduler_options=options) as fleet:
        assert fleet.address.startswith("tls://")
        assert [worker.name for worker in fleet_status(fleet.address)] == ["w0"]
        monkeypatch.setenv("CONVKIT_FLEET_TLS", str(tmp_path / "stranger"))
        tls_certificates.make_certificate(tmp_path / "stranger")
        monkeypatch.setattr("convkit.host.fleet.dask_cluster._CONNECT_SECONDS", 2.0)
        with pytest.raises(FleetError, match="no Dask scheduler answers there"):
            fleet_status(fleet.address)
        assert soon(lambda: fleet.workers[0].poll() is None)
    assert os.environ["CONVKIT_FLEET_TLS"] != str(tls)
