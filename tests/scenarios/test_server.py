"""The real server as configured: TLS and clients' certificates, rates, its log."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import Processes
from tests.support.ports import free_port

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
    assert {hasty(where, known) for _ in range(50)} == {b"HTTP/1.1 200"}


def hasty(where: str, context: ssl.SSLContext) -> bytes:
    """Send everything as early as TLS allows, the request with the handshake's end; return how the answer begins."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    host, port = where.split(":")
    begun = context.wrap_bio(received, sent, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(sent.read())
        while not shaken(begun):
            received.write(connection.recv(65536))
        begun.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.sendall(sent.read())
        return answer(begun, received, connection)[:12]


def shaken(begun: ssl.SSLObject) -> bool:
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()
        return True
    return False


def answer(begun: ssl.SSLObject, received: ssl.MemoryBIO, connection: socket.socket) -> bytes:
    while data := connection.recv(65536):
        received.write(data)
        with suppress(ssl.SSLWantReadError):
            return begun.read()
    return b""


def test_caller_over_the_rate_is_told_when_to_come_again_and_health_is_free(processes: Processes) -> None:
    where = served(processes, "limits: {rate: 0.01, burst: 3}")  # a call more after 100 s
    until(lambda: answers(f"http://{where}"))
    with httpx.Client() as calling:
        results = [calling.get(f"http://{where}/openapi.json") for _ in range(200)]
    assert [each.status_code for each in results] == [200] * 3 + [429] * 197
    assert int(results[-1].headers["Retry-After"]) in range(1, 101)
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
