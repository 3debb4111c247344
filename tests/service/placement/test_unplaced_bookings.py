"""A job without a cluster that has waited long keeps nodes as they become free: narrow jobs do not starve it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.errors import ConfigError
from rainbow.service.core.settings import settings_of
from rainbow.service.placement.unplaced_jobs import Round
from rainbow.store import clusters, reservations
from rainbow.store.reservations import UnplacedBooking
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec, open_service_at

FREE = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}]}]}}
PATIENCE = 60.0
LIMIT = 20  # seconds: the longest limit of a narrow job
Opened = Callable[[], Api]


@pytest.fixture
def api(tmp_path: Path, clock: Clock) -> Iterator[Api]:
    made = Api(open_service_at(tmp_path, clock, unplaced="wait", unplaced_patience=PATIENCE))
    yield made
    made.service.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Any:
    """Open a server on one store, as often as it is called."""
    url = str(tmp_path_factory.mktemp("unplaced") / "rainbow.db")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    made: list[Api] = []

    def one_more() -> Api:
        made.append(Api(open_service_at(url, clock, unplaced="wait", unplaced_patience=PATIENCE)))
        return made[-1]

    yield one_more
    for one in made:
        one.service.close()


def ready(api: Api, name: str, nodes: int = 4) -> Cluster:
    made = api.register(name, grid(nodes, 1), state={"nodes_free": nodes})
    made.say("heartbeat", workers=[f"n{node}" for node in range(nodes)])
    return made


def queue(api: Api, nodes: int, user: str, *clusters: Cluster, **system: Any) -> str:
    body = {"jobspec": jobspec(nodes, **system), "selector": FREE, "requestor": user, "name": f"{user}-{nodes}"}
    return str(api.good("POST", "/v1/jobs", body, *(one.token for one in clusters))["id"])


def show(api: Api, job: str, *tokens: str) -> Any:
    return api.good("GET", f"/v1/jobs/{job}", None, *(tokens or (ADMIN,)))


def booked(api: Api) -> dict[str, tuple[str, int]]:
    names = {entry.id: name for name, entry in api.service.catalogue.items()}
    with api.service.store.read() as connection:
        return {one.job: (names[one.cluster_id], one.nodes) for one in reservations.bookings(connection)}


def rounds(api: Api) -> Round:
    return Round(api.service, time.monotonic)


class Crowd:
    """Eight jobs of one node are always there; each runs for a while."""

    def __init__(self, servers: list[Api], clock: Clock, oak: Cluster) -> None:
        self.servers, self.clock, self.oak = servers, clock, oak
        self.tries = [rounds(one) for one in servers]
        self.running: list[tuple[float, dict[str, Any]]] = []
        self.narrow: set[str] = set()
        self.began: set[str] = set()
        self.passed = self.started = self.submitted = 0

    def run(self, until: Callable[[], bool], most: float) -> float:
        """Let time pass until something is so; return the seconds that took."""
        began = self.clock.now
        while not until():
            assert self.clock.now - began <= most, (booked(self.servers[0]), self.passed)
            self.second()
        return self.clock.now - began

    def second(self) -> None:
        self.clock.now += 1
        number = int(self.clock.now)
        for end, offer in [one for one in self.running if one[0] <= self.clock.now]:
            self.running.remove((end, offer))
            self.oak.end(offer)
            self.passed += offer["job"] in self.narrow
            self.narrow.discard(offer["job"])
        self.tries[number % len(self.tries)].look()
        while len(self.narrow) < 8:
            server = self.servers[(number + len(self.narrow)) % len(self.servers)]
            self.submitted += 1
            self.narrow.add(queue(server, 1, f"u{self.submitted % 3}", self.oak, duration=LIMIT))
        for offer in self.oak.take():
            self.started += 1  # never do four of them end together
            self.began.add(offer["job"])
            seconds = LIMIT - 7 * self.started % 11 if offer["job"] in self.narrow else 5
            self.running.append((self.clock.now + seconds, offer))
        if number % 20 == 0:
            self.oak.say("heartbeat", running=[{"id": o["id"], "attempt": o["attempt"]} for _, o in self.running])


@pytest.mark.parametrize(("opened", "servers"), [("sqlite", 1), ("postgresql", 2)], indirect=["opened"])
def test_a_wide_job_starts_within_patience_and_the_longest_limit(opened: Opened, clock: Clock, servers: int) -> None:
    """Of two servers each looks every other second, and one of them is gone before the job is placed."""
    open_ = [opened() for _ in range(servers)]
    oak = ready(open_[0], "oak")
    crowd = Crowd(open_, clock, oak)
    crowd.run(lambda: len(crowd.running) == 4, 10)
    wide = queue(open_[-1], 4, "ann", oak)
    assert show(open_[0], wide)["state"] == "UNPLACED"
    waited = crowd.run(lambda: bool(booked(open_[0])), PATIENCE + 10)
    passed = crowd.passed
    assert booked(open_[0]) == {wide: ("oak", 4)}
    if servers == 2:  # the other one goes on, with what is stored
        crowd.servers, crowd.tries = [open_[1]], [rounds(open_[1])]
    crowd.run(lambda: show(open_[-1], wide)["state"] != "UNPLACED", LIMIT + 10)
    waited += crowd.run(lambda: wide in crowd.began, LIMIT)
    assert waited <= PATIENCE + LIMIT + 10
    assert crowd.passed - passed <= 4
    assert booked(open_[0]) == {}
    crowd.run(lambda: crowd.passed > passed + 8, 4 * LIMIT)  # and the others go on


def test_what_is_kept_is_said_to_its_job_and_to_the_others(api: Api, clock: Clock) -> None:
    oak = ready(api, "oak")
    one = queue(api, 2, "bob", oak)
    [offer] = oak.take()
    wide, narrow = queue(api, 4, "ann", oak), queue(api, 3, "cid", oak)
    clock.now += PATIENCE
    tries = rounds(api)
    assert tries.look() == []
    assert booked(api) == {wide: ("oak", 4)}
    shown = show(api, wide)["wait"]
    assert (shown["reason"], shown["text"]) == (
        "no-cluster-now",
        "2 of 4 nodes of oak are kept for it, the others as they become free",
    )
    other = api.good("GET", f"/v1/jobs/{narrow}/why", None, ADMIN)["wait"]
    assert other["text"].endswith("; 2 nodes of oak are free but kept for ann-4 (ann)")
    block = {"job": wide, "name": "ann-4", "user": "ann", "amounts": {"node": 2}, "workers": 2, "until": None}
    assert other["facts"]["kept"] == [block]
    assert [row["wait"]["text"] for row in api.good("GET", "/v1/jobs?state=unplaced", None, ADMIN)["jobs"]] == [
        other["text"],
        shown["text"],
    ]
    small = queue(api, 1, "dan", oak)  # one of the two would do, and is kept
    assert show(api, small)["state"] == "UNPLACED"
    oak.end(offer)
    clock.now += 6
    assert tries.look() == [wide]
    assert show(api, one)["state"] == "COMPLETED"


def test_the_job_of_another_has_no_name_where_a_cluster_shows_own_jobs_only(api: Api, clock: Clock) -> None:
    oak = ready(api, "oak")
    token = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["cid"]}, oak.secret)["token"]
    oak_id = api.service.catalogue["oak"].id
    with api.service.store.write() as connection:
        clusters.set_visibility(connection, oak_id, "own")
    queue(api, 1, "bob", oak)
    queue(api, 4, "ann", oak)
    narrow = queue(api, 4, "cid", oak)
    clock.now += PATIENCE
    rounds(api).look()
    wait = show(api, narrow, token)["wait"]
    assert wait["text"].endswith("; 3 nodes of oak are free but kept for another job")
    assert wait["facts"]["kept"][0]["user"] is None


def test_one_booking_a_requestor_and_four_in_all_each_on_another_cluster(api: Api, clock: Clock) -> None:
    clusters = [ready(api, name) for name in ("ash", "elm", "fir", "oak", "yew")]
    for one in clusters:
        queue(api, 1, "bob", one)
    first = {user: queue(api, 4, user, *clusters) for user in ("ann", "cid", "dan", "eve", "fay")}
    second = queue(api, 4, "ann", *clusters)
    clock.now += PATIENCE
    rounds(api).look()
    results = booked(api)
    assert list(results) == [first[user] for user in ("ann", "cid", "dan", "eve")]
    assert [name for name, _ in results.values()] == ["ash", "elm", "fir", "oak"]  # no forecast: by name
    assert second not in results


def test_a_booking_falls_with_its_job_and_its_cluster_and_then_the_next_is_chosen(api: Api, clock: Clock) -> None:
    ash, oak = ready(api, "ash"), ready(api, "oak")
    for one in (ash, oak):
        queue(api, 1, "bob", one)
    wide = queue(api, 4, "ann", ash, oak)
    clock.now += PATIENCE
    tries = rounds(api)
    tries.look()
    assert booked(api) == {wide: ("ash", 4)}
    api.good("POST", "/v1/clusters/ash:drain", None, ash.secret)
    clock.now += 6
    tries.look()
    assert booked(api) == {wide: ("oak", 4)}
    free = api.good("GET", "/v1/clusters/oak/state", None, oak.secret)["effective"]["nodes_free"]
    api.good("POST", f"/v1/jobs/{wide}:hold", None, ADMIN)
    clock.now += 6
    tries.look()
    assert booked(api) == {}
    api.good("POST", f"/v1/jobs/{wide}:release", None, ADMIN)
    clock.now += 6
    tries.look()
    assert booked(api) == {wide: ("oak", 4)}
    api.good("DELETE", f"/v1/jobs/{wide}", None, ADMIN)
    assert booked(api) == {}
    assert api.good("GET", "/v1/clusters/oak/state", None, oak.secret)["effective"]["nodes_free"] == free + 4


def test_nothing_is_booked_before_its_time_or_where_nodes_are_not_what_is_lacking(api: Api, clock: Clock) -> None:
    oak = ready(api, "oak")
    queue(api, 1, "bob", oak)
    queue(api, 4, "ann", oak)
    clock.now += PATIENCE - 7
    tries = rounds(api)
    tries.look()
    assert booked(api) == {}
    rules = {"priorities": [{"priority": 1, "steps": [{"filter": "price < 3"}]}]}
    body = {"jobspec": jobspec(), "selector": {"name": "constraint", "options": rules}, "requestor": "cid"}
    ash = api.register("ash", grid(4, 1), state={"nodes_free": 4, "price": 5})
    dear = api.good("POST", "/v1/jobs", body, ash.token)["id"]
    clock.now += PATIENCE
    tries.look()
    assert [name for name, _ in booked(api).values()] == ["oak"]
    assert dear not in booked(api)


def test_a_job_that_ends_before_a_known_start_may_use_the_nodes(api: Api, clock: Clock) -> None:
    oak = ready(api, "oak")
    queue(api, 1, "bob", oak)
    wide = queue(api, 4, "ann", oak)
    entry = api.service.catalogue["oak"]
    with api.service.store.write() as connection:
        reservations.put_booking(connection, UnplacedBooking(wide, entry.id, 4, clock.now, clock.now + 100.0))
    ends = {seconds: queue(api, 1, "cid", oak, duration=seconds) for seconds in (0, 101, 100)}
    states = {seconds: show(api, job)["state"] for seconds, job in ends.items()}
    assert states == {0: "UNPLACED", 101: "UNPLACED", 100: "WAITING"}
    assert api.good("GET", f"/v1/jobs/{ends[100]}/replay", None, oak.token)["equal"] is True


@given(st.none() | st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_who_may_use_what_is_booked(start: int | None, now: int, limit: int) -> None:
    booking = UnplacedBooking("wide", "oak", 4, 0.0, start)
    assert booking.spares("wide", now, limit)
    assert booking.spares("other", now, limit) == (start is not None and limit > 0 and now + limit <= start)


@pytest.mark.parametrize("value", ["5m", "-1", "true"])
def test_a_patience_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(f"scheduler: {{unplaced_patience: {value}}}")
    assert refused.value.pointer == "/scheduler/unplaced_patience"
