"""The time since each agent's last heartbeat, by a clock that no one can set.

A heartbeat is stored with the time of the process that took it; that clock may be set forward or back, and another
process may have another. So each process notes by its own monotonic clock when it first saw an agent's last sign:

    certain   seconds since then: the silence is at least that long. Tasks are given to others by this alone
    likely    the same, and what the stored time says of a sign older than this process: workers are READY by it
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from rainbow.service.core.memory import place
from rainbow.store.workers import AgentRecord

T = TypeVar("T")
Key = tuple[str, str]  # a cluster's id, an agent's name
PULLS = "pull:"  # an agent of such an id takes whole jobs and is not heard of until they end: it has no lease
TOGETHER = 1.0  # seconds between two times that signs are stored which say nothing new
MOST_AGENTS = 100_000  # agents that are remembered
AWAY = 5.0  # seconds after which an agent whose connection closed while it waited is said to be gone


class Silence(NamedTuple):
    """Seconds without a sign of an agent."""

    certain: float
    likely: float


class _Seen(NamedTuple):
    sign: tuple[float, int]
    at: float
    age: float


@place("heartbeats", most=f"{MOST_AGENTS:,} agents", of="when this process saw each agent's last sign")
class Heartbeats:
    """When this process saw each agent's last sign. `monotonic` measures, `clock` is what signs are stored with."""

    def __init__(self, monotonic: Callable[[], float], clock: Callable[[], float]) -> None:
        self._monotonic, self._clock = monotonic, clock
        self.began = monotonic()
        self._seen: dict[Key, _Seen] = {}
        self._lock = threading.Lock()
        self._put_off: dict[Key, AgentRecord] = {}
        self._stored = self.began  # when signs that were put off were stored last
        self._heard: dict[Key, tuple[int, float]] = {}  # the highest number said here, and when; stored or not
        self._numbers = itertools.count()
        self._waits: dict[Key, int] = {}  # the number of an agent's last wait here
        self._left: dict[Key, float] = {}  # when the connection closed on which it waited

    def silence(self, cluster_id: str, sign: AgentRecord) -> Silence:
        """Return how long an agent has been silent whose last sign this is."""
        now, mark = self._monotonic(), (sign.seen_at, sign.seq)
        seen = self._seen.get((cluster_id, sign.name))
        if seen is None or seen.sign != mark:
            age = max(0.0, self._clock() - sign.seen_at) if seen is None else 0.0
            seen = _keep(self._seen, (cluster_id, sign.name), _Seen(mark, now, age))
        heard = self._heard.get((cluster_id, sign.name))
        if heard is not None and heard[1] > seen.at:
            return Silence(now - heard[1], now - heard[1])
        return Silence(now - seen.at, now - seen.at + seen.age)

    def hear(self, cluster_id: str, sign: AgentRecord, *, stored: bool = True) -> None:
        """Note a sign that came just now, and whether it is stored."""
        key, now = (cluster_id, sign.name), self._monotonic()
        _keep(self._heard, key, (sign.seq, now))
        if stored:
            _keep(self._seen, key, _Seen((sign.seen_at, sign.seq), now, 0.0))

    def renew(self, cluster_id: str, name: str) -> bool:
        """Note that an agent asks the same again; False if this process has never heard of it."""
        heard = self._heard.get((cluster_id, name))
        if heard is not None:
            sign = AgentRecord(name, self._clock(), seq=heard[0])
            self.hear(cluster_id, sign, stored=False)
            self.put_off(cluster_id, sign)
        return heard is not None

    def put_off(self, cluster_id: str, sign: AgentRecord) -> None:
        """Keep a sign that says nothing new until others are stored with it (`take_due`)."""
        with self._lock:
            self._put_off[(cluster_id, sign.name)] = sign

    def take_due(self) -> list[tuple[str, AgentRecord]]:
        """Return the signs to be stored now, together: those that were put off, once a second."""
        now = self._monotonic()
        with self._lock:
            if now - self._stored < TOGETHER:
                return []
            result, self._put_off, self._stored = self._put_off, {}, now
        for key, sign in result.items():  # what is read from the store then was heard before
            heard = self._heard.get(key)
            _keep(self._seen, key, _Seen((sign.seen_at, sign.seq), heard[1] if heard else now, 0.0))
        return [(cluster, each) for (cluster, _), each in result.items()]

    def put_back(self, signs: Iterable[tuple[str, AgentRecord]]) -> None:
        """Put signs off that could not be stored, unless there is a later one."""
        with self._lock:
            for cluster_id, sign in signs:
                self._put_off.setdefault((cluster_id, sign.name), sign)

    def newest(self, cluster_id: str, name: str) -> int:
        """Return the highest number of a message of an agent that this process has heard, 0 if it has heard none."""
        heard = self._heard.get((cluster_id, name))
        return heard[0] if heard else 0

    def silences(self, cluster_id: str, signs: Mapping[str, AgentRecord]) -> dict[str, Silence]:
        """Return how long each of a cluster's agents has been silent."""
        return {name: self.silence(cluster_id, sign) for name, sign in signs.items()}

    # ── connections that closed: nothing is decided by them, but people hear of it before the lease is over ──

    def begin_wait(self, cluster_id: str, name: str) -> int:
        """Note that an agent waits on a connection; return the number of this wait."""
        key, number = (cluster_id, name), next(self._numbers)
        while len(self._waits) >= MOST_AGENTS and key not in self._waits:
            oldest = next(iter(self._waits))
            del self._waits[oldest]
            self._left.pop(oldest, None)
        self._waits[key] = number
        self._left.pop(key, None)
        return number

    def end_wait(self, cluster_id: str, name: str, number: int) -> None:
        """Note that an agent closed the connection of a wait, unless a later wait has begun."""
        if self._waits.get((cluster_id, name)) == number:
            self._left[(cluster_id, name)] = self._monotonic()

    def departed_for(self, most: float) -> dict[str, dict[str, float]]:
        """Return {cluster id: {agent: seconds since its connection closed}}, from AWAY on; forget after `most`."""
        now, result = self._monotonic(), dict[str, dict[str, float]]()
        for key, at in [*self._left.items()]:
            if now - at > most:
                self._left.pop(key, None)
            elif now - at >= AWAY:
                result.setdefault(key[0], {})[key[1]] = now - at
        return result

    def uptime(self) -> float:
        """Return how many seconds this process has listened."""
        return self._monotonic() - self.began


def _keep(stored: dict[Key, T], key: Key, value: T) -> T:
    """Keep a value, which is returned; where there are too many the key that came first is forgotten."""
    while len(stored) >= MOST_AGENTS and key not in stored:
        stored.pop(next(iter(stored)), None)
    stored[key] = value
    return value


def alive(
    heartbeats: Heartbeats, lease: float, cluster_id: str, signs: Mapping[str, AgentRecord]
) -> dict[str, AgentRecord]:
    """Return those whose lease has not run out."""
    silences = heartbeats.silences(cluster_id, signs)
    return {agent: sign for agent, sign in signs.items() if silences[agent].likely <= lease}
