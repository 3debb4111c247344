"""The clients of a history: each asks one thing after another and writes down what it asked and was answered."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import httpx

from tests.conftest import REGISTRATION, grid

TIMEOUT = 10.0  # seconds for an answer
CORES = 8  # of a cluster
RATE = 5.0  # tasks a second, all clients together: what two cores start beside everything else
RETRIES = 1  # of a task that failed, as the place is configured
# a task: each sign has the run's own word, the seconds since the machine started, and at the end the exit code
TASK = """
read id < /proc/sys/kernel/random/uuid
sign() { read up rest < /proc/uptime; echo "$id $up $1 $2" >> "$file"; }
file="$1/$RAINBOW_TASK" left=$2
sign begin
while [ $left -gt 0 ]; do sleep 0.1; sign alive; left=$((left - 1)); done
sign end $3
exit $3
"""


class Notebook:
    """Where operations are written down as they happen."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._lock = file, threading.Lock()
        self.answered = 0
        self._done: Counter[str] = Counter()  # of each kind; of a nemesis under its own name

    def line(self, f: str, **more: Any) -> None:
        """Write one line."""
        status = more.get("status")
        with self._lock:
            self._file.write(json.dumps({"f": f, **more}) + "\n")
            self._file.flush()
            self.answered += f not in ("nemesis", "body") and status is not None
            if status is not None and status < 400:
                self._done[more["ask"]["kind"] if f == "nemesis" else f] += 1

    def is_enough(self, answered: int, kinds: Iterable[str]) -> bool:
        """Whether so many operations were answered, and each of these kinds was done at least once."""
        with self._lock:
            return self.answered >= answered and all(self._done[kind] for kind in kinds)


@dataclass
class World:
    """What all clients know: the credentials, the jobs that are there, and when it ends."""

    doors: Sequence[str]
    signs: Path
    token: str = ""  # of oak and elm, with an account
    secrets: dict[str, str] = field(default_factory=dict)  # {cluster: its secret}
    jobs: list[str] = field(default_factory=list)  # acknowledged
    registered: dict[str, str] = field(
        default_factory=dict
    )  # {cluster: its secret}, of those that are registered on and on
    tokens: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # {id: its cluster, its values so far}
    long_tasks: float = 0.0  # the part of tasks that run for seconds, not for tenths of one
    over: threading.Event = field(default_factory=threading.Event)
    began: float = field(default_factory=time.monotonic)
    tasks: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, tasks: int) -> bool:
        """Return whether so many tasks more are within the rate."""
        with self.lock:
            if self.tasks + tasks > RATE * (time.monotonic() - self.began):
                return False
            self.tasks += tasks
            return True


class Voice:
    """One client: asks at any door, and writes everything down."""

    def __init__(self, world: World, notebook: Notebook, name: str, chance: random.Random) -> None:
        self.world, self.notebook, self.name, self.chance = world, notebook, name, chance
        self._api = httpx.Client(timeout=TIMEOUT)
        self._numbers = 0

    def close(self) -> None:
        """Close its connections."""
        self._api.close()

    def number(self) -> str:
        """Return a name that no other operation of any client has."""
        self._numbers += 1
        return f"{self.name}-{self._numbers}"

    def ask(
        self,
        f: str,
        ask: Mapping[str, Any],
        request: tuple[str, str, Any],
        token: str,
        shown: Callable[[Any], Any] = lambda answer: answer,
    ) -> tuple[int | None, Any]:
        """Send one request and write down its answer, in the form that `shown` gives an answer that is good."""
        verb, path, body = request
        headers = {"Authorization": f"Bearer {token}"} | ({"Idempotency-Key": ask["key"]} if ask.get("key") else {})
        if f in ("put-state", "get-state"):
            headers.pop("Idempotency-Key", None)
        url = self.chance.choice(self.world.doors)
        status: int | None = None
        answer: Any = None
        call = time.monotonic()
        with suppress(httpx.HTTPError, ValueError):
            reported = self._api.request(verb, f"{url}{path}", json=body, headers=headers)
            answer = reported.json() if reported.content else {}
            status = reported.status_code
        end = time.monotonic()
        noted = shown(answer) if status is not None and status < 400 else _problem(answer)
        self.notebook.line(
            f, client=self.name, call=call, **{"return": end}, ask=ask, status=status, answer=noted, url=url
        )
        return status, answer


def _problem(answer: Any) -> Any:
    return {key: answer[key] for key in ("code", "detail", "outcome") if key in answer} if answer else answer


def jobspec(world: World, chance: random.Random) -> dict[str, Any]:
    """A job of one task or two, each of which leaves signs; some fail once, some each time."""
    count = 2 if chance.random() < 0.15 else 1
    code = 3 if chance.random() < 0.1 else 0
    tenths = chance.randrange(30, 50) if chance.random() < world.long_tasks else chance.randrange(1, 8)
    command = ["sh", "-c", TASK, "sh", str(world.signs), str(tenths), str(code)]
    tasks = [{"command": command, "resources": "w"} for _ in range(count)]
    return {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": tasks}


def submitting(voice: Voice) -> None:
    """Submit with a key (and again with it while the outcome is not known), without one, and in batches."""
    world, chance = voice.world, voice.chance
    how = chance.random()
    count = chance.randrange(2, 21) if how < 0.1 else 1
    specs = [jobspec(world, chance) for _ in range(count)]
    if not world.take(sum(len(spec["tasks"]) for spec in specs)):
        time.sleep(0.2)
        return
    names = [voice.number() for _ in specs]
    key = f"key-{names[0]}" if how < 0.7 else None
    tries = 4 if key else 1
    jobs = [{"jobspec": spec, "name": name} for spec, name in zip(specs, names, strict=True)]
    for _ in range(tries):
        if count > 1:
            request = {"jobs": [{"name": name} for name in names], "key": key}
            status, answer = voice.ask(
                "batch", request, ("POST", "/v1/jobs:batch", {"jobs": jobs}), world.token, _parts
            )
            parts = answer["answers"] if status == 200 else []
        else:
            request = {"name": names[0], "key": key}
            status, answer = voice.ask("submit", request, ("POST", "/v1/jobs", jobs[0]), world.token, _placed)
            parts = [answer] if status is not None and status < 300 else []
        world.jobs += [part["id"] for part in parts if "id" in part]
        if status is not None and status < 500:
            if chance.random() < 0.9:
                return
            continue  # a key that was answered may be sent again, too
        time.sleep(chance.uniform(0.1, 1.0))


def _placed(answer: Any) -> Any:
    return {"id": answer["id"]}


def _parts(answer: Any) -> Any:
    keys = ("status", "id", "outcome", "code", "detail")
    return {"answers": [{key: part[key] for key in keys if key in part} for part in answer["answers"]]}


def _state(answer: Any) -> Any:
    return {"state": answer["state"], "tasks": {task["id"]: task["state"] for task in answer["tasks"]}}


def reading(voice: Voice) -> None:
    """Read a job, most often a new one; cancel one now and then."""
    jobs = voice.world.jobs[-30:] if voice.chance.random() < 0.8 else voice.world.jobs
    if not jobs:
        time.sleep(0.1)
        return
    job = voice.chance.choice(jobs)
    verb = "cancel" if voice.chance.random() < 0.1 else "read"
    request = ("DELETE" if verb == "cancel" else "GET", f"/v1/jobs/{job}", None)
    voice.ask(verb, {"job": job}, request, voice.world.token, _state)


def changing(voice: Voice) -> None:
    """Change a variable of a cluster's state; each value is written once."""
    cluster, key = voice.chance.choice(["oak", "elm"]), voice.chance.choice(["va", "vb"])
    value = voice.number()
    query = {"cluster": cluster, "key": key, "value": value}
    request = ("PATCH", f"/v1/clusters/{cluster}/state", {key: value})
    voice.ask("put-state", query, request, voice.world.secrets[cluster], lambda _: {})


def looking(voice: Voice) -> None:
    """Read a cluster's state, and how much of it is free."""
    cluster = voice.chance.choice(["oak", "elm"])
    secret = voice.world.secrets[cluster]
    request = ("GET", f"/v1/clusters/{cluster}/state", None)
    voice.ask("get-state", {"cluster": cluster}, request, secret, _variables)
    query = {"cluster": cluster, "total": CORES}
    request = ("GET", f"/v1/clusters/{cluster}/scheduler", None)
    voice.ask("figures", query, request, secret, lambda answer: {"free": answer["figures"].get("idle")})


def _variables(answer: Any) -> Any:
    return {"values": {key: answer["state"].get(key) for key in ("va", "vb")}}


def registering(voice: Voice) -> None:
    """Register a small cluster, and again under the same name if the outcome is not known."""
    name = voice.number()
    for _ in range(2):
        body = {"name": name, "graph": grid(1, 1)}
        status, answer = voice.ask(
            "register", {"name": name}, ("POST", "/v1/clusters", body), REGISTRATION, lambda _: {}
        )
        if status is not None and status < 300:
            voice.world.registered[name] = answer["secret"]
        if status is not None and status < 500:
            break
    time.sleep(voice.chance.uniform(0.5, 2.0))


def minting(voice: Voice) -> None:
    """Mint a token, rotate it twice or so, and revoke it; others try its values meanwhile."""
    cluster = voice.chance.choice(["oak", "elm"])
    secret = voice.world.secrets[cluster]
    body = {"clusters": [cluster], "name": voice.number()}
    status, answer = voice.ask("mint", {"cluster": cluster}, ("POST", "/v1/tokens", body), secret, lambda _: {})
    if status != 201:
        return
    token = answer["id"]
    _, values = voice.world.tokens.setdefault(token, (cluster, [answer["token"]]))
    trying(voice, token)
    for _ in range(voice.chance.randrange(4)):
        generation = len(values)
        values.append("")  # until its value is known
        request = {"token": token, "generation": generation}
        status, answer = voice.ask(
            "rotate", request, ("POST", f"/v1/tokens/{token}:rotate", None), secret, lambda _: {}
        )
        if status == 200:
            values[generation] = answer["token"]
        trying(voice, token)
    voice.ask("revoke", {"token": token}, ("DELETE", f"/v1/tokens/{token}", None), secret, lambda _: {})
    trying(voice, token)


def trying(voice: Voice, token: str = "") -> None:
    """Try each value that a token has had."""
    known = list(voice.world.tokens)[-5:]
    if not token and not known:
        time.sleep(0.2)
        return
    token = token or voice.chance.choice(known)
    cluster, values = voice.world.tokens[token]
    for generation, value in list(enumerate(values)):
        if value:
            request = {"token": token, "generation": generation}
            voice.ask("open", request, ("GET", f"/v1/clusters/{cluster}", None), value, lambda _: {})


class Follower:
    """Follows the events, and takes up where it was when its line breaks; what it was sent is noted at the end."""

    def __init__(self, world: World, name: str, stream: tuple[str, str], chance: random.Random) -> None:
        self.world, self.name, self.chance = world, name, chance
        self.stream, self._query = stream
        self.numbers: list[int] = []
        self._last = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.over.is_set():
            with suppress(httpx.HTTPError):
                self._follow(self.chance.choice(self.world.doors))
            time.sleep(0.2)

    def _follow(self, url: str) -> None:
        headers = {"Authorization": f"Bearer {self.world.token}", "Last-Event-ID": str(self._last)}
        headers["Accept"] = "text/event-stream"
        timeout = httpx.Timeout(TIMEOUT, read=5.0)
        with httpx.stream("GET", f"{url}/v1/events?after=0{self._query}", headers=headers, timeout=timeout) as answer:
            number, event = 0, False
            for row in answer.iter_lines() if answer.status_code == 200 else ():
                if self.over.is_set():
                    return
                name, _, value = row.partition(": ")
                if name == "id":
                    number = int(value)
                event = event or name == "event"
                if not row:  # the event is whole
                    self._last = number or self._last
                    if event and number:
                        self.numbers.append(number)
                    number, event = 0, False


CLIENTS: Mapping[str, tuple[int, Callable[[Voice], None], float]] = {  # how many, what they do, seconds between
    "submit": (3, submitting, 0.1),
    "read": (2, reading, 0.05),
    "change": (2, changing, 0.15),
    "look": (2, looking, 0.1),
    "register": (1, registering, 0.5),
    "mint": (1, minting, 0.2),
    "try": (1, trying, 0.2),
}


# what a history must have at least one of, so that each rule has something to look at
NEEDED = ("submit", "read", "cancel", "put-state", "get-state", "figures", "open", "register")


def start(world: World, notebook: Notebook, seed: int) -> list[threading.Thread]:
    """Start all clients."""
    threads = []
    for kind, (count, act, pause) in CLIENTS.items():
        for k in range(count):
            voice = Voice(world, notebook, f"{kind}{k}", random.Random(f"{seed} {kind}{k}"))
            threads.append(threading.Thread(target=_run, args=(voice, act, pause), daemon=True))
            threads[-1].start()
    return threads


def _run(voice: Voice, act: Callable[[Voice], None], pause: float) -> None:
    try:
        while not voice.world.over.is_set():
            act(voice)
            voice.world.over.wait(voice.chance.uniform(0, 2 * pause))
    finally:
        voice.close()
