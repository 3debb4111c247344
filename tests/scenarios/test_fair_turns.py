"""Beside neighbors who take all they can get, another caller keeps nearly all of what it had alone.

The short form lets all of it happen and looks at what does not depend on the speed of the machine: what is answered,
and how much memory the servers take. The long form measures rates and times, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REGISTRATION, grid
from tests.history.places import Place, place_of
from tests.history.record import call
from tests.support import services
from tests.support.neighbors import BATCH, Service, measure, neighbors

MOST_MEMORY = 1 << 30  # bytes of a server
LEAST_RATE, LONGEST = 0.8, 1.0  # of its rate alone; seconds
PACE = 0.05  # seconds between two submits: who uses the machine up alone shares it with the neighbors' own work


@contextmanager
def memory_of(place: Place) -> Iterator[list[int]]:
    """Give the most memory that a process of a server has taken while the block runs."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            results = [each.memory_info().rss for member in place.of("server") for each in member.processes()]
            most[0] = max([*most, *results])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        ended.set()
        looking.join()


Beside = tuple[str, Service, dict[str, int]]  # what the neighbors sent, what the caller got, what they were answered


@contextmanager
def caller_at(
    topology: str, folder: Path, jobs: int = BATCH
) -> Iterator[tuple[Callable[[float], Service], Callable[[str, float], Beside]]]:
    """Serve; give what measures a caller alone, and beside neighbors: four with batches, or one with large bodies."""
    with place_of(topology, folder) as place, memory_of(place) as most:
        url = place.shards[0]
        ports = [int(each.rpartition(":")[2]) for each in place.readers.values()]
        secret = call(url, "POST", "/v1/clusters", {"name": "oak", "graph": grid(4, 8)}, token=REGISTRATION)["secret"]
        mine, *theirs = (
            call(url, "POST", "/v1/tokens", {"clusters": ["oak"]}, token=secret)["token"] for _ in range(5)
        )

        def alone(seconds: float) -> Service:
            return measure(ports, mine, secret, seconds, PACE)

        def beside(kind: str, seconds: float) -> Beside:
            with neighbors(ports[-1], kind, *(theirs if kind == "batches" else theirs[:1]), jobs=jobs) as statuses:
                service = alone(seconds)
            assert most[0] <= MOST_MEMORY, kind
            return kind, service, statuses

        yield alone, beside


@pytest.mark.parametrize(("topology", "kinds"), [("sqlite", ["bodies", "batches"]), ("postgresql", ["batches"])])
def test_beside_batches_and_large_bodies_all_are_answered_and_memory_stays(
    topology: str, kinds: list[str], tmp_path: Path
) -> None:
    if topology == "postgresql":
        services.require("PostgreSQL")
    with caller_at(topology, tmp_path, jobs=100) as (_, beside):
        for kind in kinds:
            answer = beside(kind, 2.0)
            _, result, statuses = answer
            assert result.submits, answer
            assert result.beats, answer
            assert set(result.statuses) == {200, 201}, answer
            assert statuses, answer
            assert not {"500", "503"} & statuses.keys(), answer


@pytest.mark.soak
@pytest.mark.parametrize("topology", ["sqlite", "postgresql"])
def test_beside_batches_and_large_bodies_a_caller_keeps_its_rate(topology: str, tmp_path: Path) -> None:
    if topology == "postgresql":
        services.require("PostgreSQL")
    with caller_at(topology, tmp_path) as (alone, beside):
        alone(2.0)
        own = alone(10.0)
        for kind, result, statuses in (beside("batches", 20.0), beside("bodies", 20.0)):
            text = f"{kind}: alone {own}; beside {result}; neighbors {statuses}"
            print(text)
            assert set(result.statuses) == {200, 201}, text
            assert not {"500", "503"} & statuses.keys(), text
            assert result.rate >= LEAST_RATE * own.rate, text
            assert max(result.submits) <= LONGEST, text
            assert max(result.beats) <= LONGEST, text
            assert statuses, text
