"""Neighbors who take all they can get, and what another caller gets beside them.

    python -m tests.support.neighbors PORT batches|bodies JOBS TOKEN...

A process with a thread for each token; it sends until its input ends, and prints then how often each status came.
`bodies` opens twelve connections for all of its tokens.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import jobspec

BATCH = 1_000  # jobs
BODY = 14_000_000  # bytes
BODIES = 12  # at once
BEAT = 0.2  # seconds between two heartbeats
PATIENCE = 60.0  # seconds for one answer
PAUSE = 0.05  # seconds after a refusal


def batch(jobs: int) -> bytes:
    """A batch of so many jobs."""
    return json.dumps({"jobs": [{"jobspec": jobspec(), "name": f"j{k}"} for k in range(jobs)]}).encode()


def objects() -> bytes:
    """14 MB of the smallest objects: parsed they would take hundreds of megabytes."""
    return b'{"jobs":[' + b",".join([b'{"a":1}'] * (BODY // 8)) + b"]}"


def texts() -> bytes:
    """14 MB of long texts: parsed they take little more than they are."""
    return json.dumps({"jobs": [{"jobspec": jobspec(), "name": "x" * (BODY // 100)} for _ in range(99)]}).encode()


def send(port: int, token: str, bodies: Sequence[bytes], statuses: Counter[int], ended: threading.Event) -> None:
    """Send bodies one after the other, as batches, until `ended`."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for body in cycle(bodies):
        if ended.is_set():
            return
        try:
            link.request("POST", "/v1/jobs:batch", body, headers)
            answer = link.getresponse()
            answer.read()
            statuses[answer.status] += 1
            refused = answer.status >= 400
        except (OSError, http.client.HTTPException):  # refused while it was being sent
            statuses[0] += 1
            refused = True
        if refused:
            link.close()
            ended.wait(PAUSE)


def main(port: int, kind: str, jobs: int, tokens: Sequence[str]) -> None:
    """Send until the input ends; print how often each status came (0: the connection was closed)."""
    bodies = [batch(jobs)] if kind == "batches" else [objects(), texts()]
    senders = tokens if kind == "batches" else list(islice(cycle(tokens), BODIES))
    statuses: Counter[int] = Counter()
    ended = threading.Event()
    threads = [
        threading.Thread(target=send, args=(port, token, bodies, statuses, ended), daemon=True) for token in senders
    ]
    for thread in threads:
        thread.start()
    print("sending", flush=True)
    sys.stdin.read()
    ended.set()
    end = time.monotonic() + PATIENCE
    while not statuses and time.monotonic() < end:  # on a busy machine the first answers take long
        time.sleep(0.05)
    print(json.dumps({str(status): count for status, count in sorted(statuses.items())}), flush=True)


@contextmanager
def neighbors(port: int, kind: str, *tokens: str, jobs: int = BATCH) -> Iterator[dict[str, int]]:
    """Let neighbors send while the block runs; the mapping holds how often each status came when it has ended."""
    command = [sys.executable, "-m", "tests.support.neighbors", str(port), kind, str(jobs), *tokens]
    statuses: dict[str, int] = {}
    process = subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == "sending\n"
        yield statuses
        process.stdin.close()
        statuses |= json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@dataclass
class Service:
    """What a caller got in some seconds: submits one after the other, and an agent's heartbeats beside them."""

    seconds: float
    submits: list[float] = field(default_factory=list)  # how long each took
    beats: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        return len(self.submits) / self.seconds

    def __str__(self) -> str:
        text = f"{self.rate:.1f} submits a second, longest {max(self.submits, default=0):.2f} s"
        return f"{text}, heartbeats {max(self.beats, default=0):.2f} s, {dict(self.statuses)}"


def measure(ports: Sequence[int], token: str, secret: str, seconds: float, interval: float = 0.0) -> Service:
    """Submit at the last port, one at a time and at most one an interval; an agent's heartbeats go to all ports."""
    service = Service(seconds)
    end = time.monotonic() + seconds
    beating = [threading.Thread(target=_beat, args=(port, secret, end, service)) for port in ports]
    for thread in beating:
        thread.start()
    with _client(ports[-1], token) as api:
        while (began := time.monotonic()) < end:
            _timed(api, "/v1/jobs", jobspec(), service, service.submits)
            time.sleep(max(0.0, interval - (time.monotonic() - began)))
    for thread in beating:
        thread.join()
    return service


def _beat(port: int, secret: str, end: float, service: Service) -> None:
    with _client(port, secret) as api:
        for seq in range(1, 1_000_000):
            if time.monotonic() >= end:
                return
            # the load changes, so that each heartbeat is stored
            body = {"agent": f"a{port}", "seq": seq + int(time.time() * 100), "load": {"cpu": seq % 2 / 2}}
            _timed(api, "/v1/clusters/oak/heartbeat", body, service, service.beats)
            time.sleep(BEAT)


def _timed(api: httpx.Client, path: str, body: Any, service: Service, times: list[float]) -> None:
    began = time.monotonic()
    status = api.post(path, json=body).status_code
    times.append(time.monotonic() - began)
    service.statuses[status] += 1


def _client(port: int, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
