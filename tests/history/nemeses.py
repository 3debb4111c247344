"""What goes wrong while clients ask: each nemesis acts on its own, at random, and writes down what it did."""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from tests.history.clients import TIMEOUT, Notebook, Voice, World
from tests.history.patroni import TTL
from tests.history.places import Place, until_ready

LONGEST_PAUSE = 15.0  # seconds
WRONG = (30.0, -30.0, 3_600.0, -3_600.0, 3 * 86_400.0, 400 * 86_400.0)  # seconds by which a clock is set wrong
BETWEEN = 20  # answers between two acts of one nemesis, at least
BATCH, BATCHERS = 1_000, 4
BODY, BODIES = 14_000_000, 12
SILENT = 20
FOLLOWED = 60.0  # seconds beyond ttl in which servers must be ready again, while other nemeses act, too


class Refused(Exception):
    """A nemesis that this place does not have."""


@dataclass
class Nemesis:
    """One that acts in `place` until the end, or `acts` times: each time for at most `longest` seconds."""

    kind: str
    place: Place
    world: World
    notebook: Notebook
    chance: random.Random
    longest: float
    acts: float = inf

    def run(self) -> None:
        """Act, wait, act."""
        act = ACTS[self.kind]
        self.world.over.wait(self.chance.uniform(0.5, self.longest))
        while not self.world.over.is_set() and self.acts > 0:
            self.acts -= 1
            call, status, did = time.monotonic(), 200, ""
            try:
                did = act(self)
            except (OSError, psutil.Error) as fault:
                status, did = 500, f"{type(fault).__name__}: {fault}"
            times = {"call": call, "return": time.monotonic()}
            self.notebook.line(
                "nemesis", client=self.kind, ask={"kind": self.kind}, status=status, answer=did, **times
            )
            self._rest()

    def _rest(self) -> None:
        """Let the place be, for a while and until some are answered again: on a slow machine it takes longer."""
        answered = self.notebook.answered
        self.world.over.wait(self.chance.uniform(0.5, self.longest))
        while not self.world.over.is_set() and self.notebook.answered < answered + BETWEEN:
            self.world.over.wait(0.05)

    def wait(self, most: float) -> None:
        """Let it be so for a while, or until the end."""
        self.world.over.wait(self.chance.uniform(0.2, min(most, self.longest)))


def kill(nemesis: Nemesis) -> str:
    """Kill a server with all its processes, a worker process, a scheduler, an agent or a keeper; start it again."""
    place, chance = nemesis.place, nemesis.chance
    target = chance.choice(["server", "server", "worker", "scheduler", "agent", "keeper", "router"])
    if target == "keeper" and (processes := place.keepers()):
        one = chance.choice(processes)
        one.kill()
        return f"keeper {one.pid}"
    members = place.of("server" if target == "worker" else target) or place.of("server")
    member = chance.choice(members)
    with member.lock:
        if target == "worker" and (workers := member.processes()[1:]):
            member.signal(signal.SIGKILL, workers)
            return f"worker of {member.name}"
        member.kill()
        nemesis.wait(2)
        member.start()
    return member.name


def pause(nemesis: Nemesis) -> str:
    """Stop the processes of a member, or keepers, where they are, and let them go on."""
    chance = nemesis.chance
    if chance.random() < 0.2 and (keepers := nemesis.place.keepers()):
        one = chance.choice(keepers)
        one.suspend()
        nemesis.wait(LONGEST_PAUSE)
        with suppress(psutil.Error):
            one.resume()
        return f"keeper {one.pid}"
    member = chance.choice(nemesis.place.members)
    with member.lock:
        result = member.processes()
        member.signal(signal.SIGSTOP, result)
        nemesis.wait(LONGEST_PAUSE)
        member.signal(signal.SIGCONT, result)
    return member.name


def cut(nemesis: Nemesis) -> str:
    """Let a line drop, lose answers, truncate, delay and repeat."""
    line = nemesis.chance.choice(nemesis.place.lines)
    before, line.bad = line.done, nemesis.chance.choice([0.3, 0.6, 1.0])
    nemesis.wait(LONGEST_PAUSE)
    line.bad = 0.0
    return f"{line.done - before} requests at {line.url}"


def clock(nemesis: Nemesis) -> str:
    """Set the time of day of a member wrong, and right again."""
    member, by = nemesis.chance.choice(nemesis.place.members), nemesis.chance.choice(WRONG)
    member.set_clock(by)
    nemesis.wait(LONGEST_PAUSE)
    member.set_clock(0.0)
    return f"{member.name} by {by:+.0f} s"


def full(nemesis: Nemesis) -> str:
    """Let no file of the database grow: what a full disk is to whoever writes."""
    database = nemesis.place.postgres or nemesis.place.patroni
    if database is not None:
        database.limit_files("1048576")
        nemesis.wait(4)
        database.limit_files("unlimited")
        return "PostgreSQL"
    largest = max(file.stat().st_size for file in nemesis.place.files)
    limited = []
    for member in nemesis.place.of("server"):
        with member.lock:
            limited += [(each, _limit(each, largest)) for each in member.processes()]
    nemesis.wait(4)
    for each, most in limited:
        with suppress(psutil.Error):
            each.rlimit(psutil.RLIMIT_FSIZE, most)
    return f"{len(limited)} processes at {largest} bytes"


def _limit(process: psutil.Process, size: int) -> tuple[int, int]:
    before = process.rlimit(psutil.RLIMIT_FSIZE)
    most: tuple[int, int] = (before[0], before[1])
    process.rlimit(psutil.RLIMIT_FSIZE, (size, most[1]))
    return most


def pg(nemesis: Nemesis) -> str:
    """Stop PostgreSQL at once, as a loss of power does, and start it."""
    postgres = nemesis.place.postgres
    assert postgres is not None
    postgres.stop()
    nemesis.wait(3)
    postgres.start()
    return "restarted"


def failover(nemesis: Nemesis) -> str:
    """Kill the leader as a loss of power does; let it come back as the standby of the one that followed."""
    patroni = nemesis.place.patroni
    assert patroni is not None
    name, began = patroni.crash(), time.monotonic()
    time.sleep(1.5)  # what a server says of its database may be a second old
    until_ready(list(nemesis.place.readers.values()), TTL + FOLLOWED)
    took = time.monotonic() - began
    patroni.start()
    return f"{name} was followed after {took:.1f} s"


ACTS: Mapping[str, Callable[[Nemesis], str]] = {
    "kill": kill,
    "pause": pause,
    "cut": cut,
    "clock": clock,
    "full": full,
    "pg": pg,
    "failover": failover,
}
ONLY = {"pg": "postgresql", "failover": "patroni"}  # the topology that a nemesis needs


def check_nemesis(kind: str, topology: str) -> None:
    """Refuse what there is not, in words."""
    if kind in ONLY and topology != ONLY[kind]:
        raise Refused(f"{kind} needs STORE={ONLY[kind]}; the topology is {topology}")
    if kind not in (*ACTS, "neighbors"):
        raise Refused(f"nemesis {kind} not found; there are {', '.join([*ACTS, 'neighbors'])}")


# ── neighbors ──


def batching(voice: Voice, token: str, most: int) -> Iterator[None]:
    """Send batches of 1,000 jobs one after the other; nothing runs them."""
    task = {"command": ["true"], "resources": "w"}
    spec = {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [task]}
    for _ in range(most):
        names = [voice.number() for _ in range(BATCH)]
        jobs = [{"jobspec": spec, "name": name} for name in names]
        request = {"jobs": [{"name": name} for name in names]}
        voice.ask("batch", request, ("POST", "/v1/jobs:batch", {"jobs": jobs}), token, _brief)
        yield


def _brief(answer: Any) -> Any:
    keys = ("status", "id", "outcome", "code", "detail")
    return {"answers": [{key: part[key] for key in keys if key in part} for part in answer["answers"]]}


def filling(voice: Voice, token: str, most: int) -> Iterator[None]:
    """Send bodies of 14 MB that are nothing."""
    body = b'{"jobs":[' + b",".join([b'{"a":1}'] * (BODY // 8)) + b"]}"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for _ in range(most):
        call, status, brief = time.monotonic(), None, None
        with suppress(httpx.HTTPError, ValueError):
            reported = httpx.post(
                f"{voice.world.doors[0]}/v1/jobs:batch", content=body, headers=headers, timeout=2 * TIMEOUT
            )
            answer = reported.json()
            status, brief = reported.status_code, {key: answer[key] for key in ("code", "outcome") if key in answer}
        times = {"call": call, "return": time.monotonic()}
        voice.notebook.line("body", client=voice.name, ask={}, status=status, answer=brief, **times)
        yield


@contextmanager
def silence(url: str, token: str) -> Iterator[None]:
    """Ask for much on connections from which nothing is read."""
    where = urlsplit(url)
    requested = f"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode() * 20
    doors = []
    for _ in range(SILENT):
        with suppress(OSError):
            doors.append(socket.create_connection((str(where.hostname), int(where.port or 80)), timeout=5))
            doors[-1].sendall(requested)
    try:
        yield
    finally:
        for door in doors:
            door.close()


def neighbors(sound: World, token: str, notebook: Notebook, seed: int, batches: int) -> list[threading.Thread]:
    """Start the neighbors, who ask the servers themselves, not over lines that are cut."""

    def run(name: str, act: Callable[[Voice, str, int], Iterator[None]], most: int) -> None:
        voice = Voice(sound, notebook, name, random.Random(f"{seed} {name}"))
        call = time.monotonic()
        for _ in act(voice, token, most):
            times = {"call": call, "return": time.monotonic()}
            notebook.line("nemesis", client=name, ask={"kind": "neighbors"}, status=200, answer=act.__name__, **times)
            call = time.monotonic()
            if sound.over.is_set():
                break
        voice.close()

    def be_silent() -> None:
        while not sound.over.is_set():
            with silence(sound.doors[0], token):
                sound.over.wait(TIMEOUT)

    acts = [(f"batches{k}", batching, batches // BATCHERS) for k in range(BATCHERS)]
    acts += [(f"bodies{k}", filling, 1_000) for k in range(BODIES)]
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in acts]
    threads.append(threading.Thread(target=be_silent, daemon=True))
    for each in threads:
        each.start()
    return threads


def start(
    kinds: list[str], place: Place, world: World, notebook: Notebook, seed: int, seconds: float, acts: float
) -> list[threading.Thread]:
    """Start the nemeses."""
    longest = min(LONGEST_PAUSE, max(1.0, seconds / 6))
    threads = []
    for kind in kinds:
        nemesis = Nemesis(kind, place, world, notebook, random.Random(f"{seed} {kind}"), longest, acts)
        threads.append(threading.Thread(target=nemesis.run, daemon=True))
        threads[-1].start()
    return threads
