"""The real server as configured: TLS and clients' certificates, rates, its log."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.test_end_to_end import until
from tests.test_two_processes import Processes

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def certificate(folder: Path, name: str, issuer: str = "") -> None:
    """Make a key and a certificate: of its own, or of an issuer made before."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    if issuer:
        command += [
            "-CA",
            f"{issuer}.pem",
            "-CAkey",
            f"{issuer}.key",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, f"sqlite:///{tmp_path}/rainbow.db")
    yield made
    made.end()


def served(processes: Processes, configuration: str) -> str:
    path = processes.folder / "rainbow.yaml"
    path.write_text(configuration)
    port = free_port()
    processes.start("serve", "--port", str(port), "--config", str(path))
    return f"127.0.0.1:{port}"


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    try:
        return httpx.get(f"{url}/readyz", verify=context or True, timeout=5).status_code == 200
    except (httpx.TransportError, ssl.SSLError):
        return False


def test_server_speaks_tls_and_asks_clients_for_their_certificate(processes: Processes, tmp_path: Path) -> None:
    certificate(tmp_path, "ca")
    certificate(tmp_path, "server", "ca")
    certificate(tmp_path, "client", "ca")
    files = {"certificate": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
    where = served(processes, "server: {" + ", ".join(f"{k}: {tmp_path / v}" for k, v in files.items()) + "}")
    known, nobody = (ssl.create_default_context(cafile=str(tmp_path / "ca.pem")) for _ in range(2))
    known.load_cert_chain(str(tmp_path / "client.pem"), str(tmp_path / "client.key"))
    until(lambda: answers(f"https://{where}", known))
    assert not answers(f"https://{where}", nobody)
    assert not answers(f"https://{where}")
    assert not answers(f"http://{where}")
    assert [first_record(where, known) for _ in range(50)] == [HANDSHAKE] * 50


HANDSHAKE = b"\x16"  # what a record of TLS begins with (RFC 8446, section 5.1)


def first_record(where: str, context: ssl.SSLContext) -> bytes:
    """Begin with TLS at once, as a client on the same machine does; return the type of the answer."""
    sent = ssl.MemoryBIO()
    begun = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    host, port = where.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(sent.read())
        return connection.recv(1)


def test_caller_over_the_rate_is_told_when_to_come_again_and_health_is_free(processes: Processes) -> None:
    where = served(processes, "limits: {rate: 0.01, burst: 3}")  # a call more after 100 s
    until(lambda: answers(f"http://{where}"))
    with httpx.Client() as calling:
        found = [calling.get(f"http://{where}/openapi.json") for _ in range(200)]
    assert [each.status_code for each in found] == [200] * 3 + [429] * 197
    assert int(found[-1].headers["Retry-After"]) in range(1, 101)
    assert all(answers(f"http://{where}") for _ in range(10))


def test_log_has_a_line_for_each_request_with_its_id_and_no_secret(processes: Processes, tmp_path: Path) -> None:
    where = served(processes, "server: {log: debug}")
    until(lambda: answers(f"http://{where}"))
    headers = {"Authorization": "Bearer rbt_0123456789abcdef", "X-Request-ID": "mine-1"}
    answer = httpx.get(f"http://{where}/v1/jobs", headers=headers)
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (401, "mine-1")
    text = (tmp_path / "0-serve.log").read_text()
    assert '"request": "mine-1"' in text
    assert "rbt_0123" not in text
    assert httpx.get(f"http://{where}/metrics").status_code == 401  # behind a proxy everybody is on loopback
