"""Jobs that move to where they end sooner while servers die in a step and agents are lost: each is placed once.

What was accepted never moves, nobody moves more often than `most`, and each decision tells every move.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rainbow.service import Service
from rainbow.service.agents.liveness import store_signs
from rainbow.service.live_state.mirror import Mirror
from rainbow.service.placement import failover
from rainbow.service.placement.replacement import WHY
from rainbow.service.scheduler import step as scheduler_step
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.store import jobs, tasks
from tests.conftest import ADMIN, Api, Clock, grid, jobspec, new_file, open_service_at
from tests.support.postgres import Postgres

MOST = 2
RULES = {"gain": 0.05, "least": 1, "most": MOST, "apart": 0, "every": 1}
NAMES = ("ash", "elm", "oak")
CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}
LOST = 200.0  # seconds of silence after which an agent's tasks are given to others


class Killed(BaseException):
    """The end of a server, as far as it is concerned."""


PLACES = (  # where a server ends: a module or class, its function, whether after it
    (failover, "carry_out", True),  # a move is written, not committed
    (Mirror, "see_off", False),  # moves are committed, memory does not know
    (scheduler_step, "follow", True),
    (scheduler_step, "_carry_out", False),
)


class Campaign:
    """Servers on one store, three clusters, and what their agents hold."""

    def __init__(self, opened: Callable[[], Service], clock: Clock, servers: int, seed: int) -> None:
        self.opened, self.clock, self.chance = opened, clock, random.Random(seed)
        self.servers = [Api(opened()) for _ in range(servers)]
        for one in self.servers:
            self._forecast_freely(one)
        self.clusters = {name: self.servers[0].register(name, grid(2, 2)) for name in NAMES}
        for cost, cluster in enumerate(self.clusters.values()):
            path = f"/v1/clusters/{cluster.name}"
            cluster.api.good("PATCH", f"{path}/scheduler", {"limits": {"replace": RULES}}, cluster.secret)
            cluster.api.good("PUT", f"{path}/state", {"cost": cost}, cluster.secret)
        self.held: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in NAMES}
        self.silent: dict[str, float] = {}  # agents that are lost, and until when
        self.accepted: dict[str, tuple[str, int]] = {}  # job → where, and with how many moves
        self.attempts: Counter[tuple[str, int]] = Counter()
        self.moves: dict[str, list[Any]] = {}
        self.jobs: dict[str, str] = {}  # and where each was placed first
        self.kills = 0

    def _forecast_freely(self, api: Api) -> None:
        api.service.settings = replace(api.service.settings, forecast_share=1.0)
        api.service.refresh()

    def any(self) -> Api:
        return self.chance.choice(self.servers)

    def run(self, acts: int) -> None:
        """Do some things at random, then let all end in peace."""
        for _ in range(acts):
            self.chance.choice(
                (self.submit, self.submit, self.turn, self.turn, self.die, self.take, self.end, self.lose)
            )()
            self.check()
        self.silent.clear()
        for _ in range(200):
            self.turn()
            self.take()
            self.end(1.0)
            if all(state == "COMPLETED" for state in self.states().values()):
                break
        self.check()
        remaining = {job: self.why(job) for job, state in self.states().items() if state != "COMPLETED"}
        assert not remaining
        assert set(self.attempts.values()) == {1}

    def submit(self) -> None:
        """Submit a job to the cheapest cluster, which never has room for all."""
        spec = jobspec(self.chance.choice((1, 2)), duration=self.chance.choice((120, 600, 3_600)))
        spec["resources"][0]["with"][0]["with"][0]["count"] = 2
        body = {"jobspec": spec, "selector": {"name": "constraint", "options": CHEAPEST}}
        tokens = [one.token for one in self.clusters.values()]
        answer = self.any().good("POST", "/v1/jobs", body, *tokens)
        self.jobs[answer["id"]] = answer["cluster"]

    def turn(self, api: Api | None = None) -> None:
        """Let a server hear the agents, forecast, and step all clusters."""
        server = api or self.any()
        self.clock.now += self.chance.uniform(2, 20)
        self.silent = {name: until for name, until in self.silent.items() if until > self.clock.now}
        for name in NAMES:
            if name not in self.silent:
                running = [{"id": task, "attempt": one["attempt"]} for task, one in self.held[name].items()]
                answer = self.say(server, name, "heartbeat", running=running)
                for task in (*answer["stale"], *(one["id"] for one in answer["stop"])):
                    self.held[name].pop(task, None)
                stopped = [
                    {**one, "task": one["id"], "event": "ended", "result": "stopped"} for one in answer["stop"]
                ]
                if stopped:
                    self.say(server, name, "events", events=stopped)
        store_signs(server.service)
        forecaster = Forecaster(server.service)
        forecaster.turn()
        for name in NAMES:
            step(server.service, name)

    def say(self, api: Api, name: str, verb: str, **body: Any) -> Any:
        secret = self.clusters[name].secret
        return api.good("POST", f"/v1/clusters/{name}/{verb}", {"agent": "a", **body}, secret)

    def die(self) -> None:
        """Let a server end within a step, and start it again."""
        victim = self.any()
        place, name, after = self.chance.choice(PLACES)
        whole = getattr(place, name)

        def killed(*options: Any, **named: Any) -> Any:
            if after:
                whole(*options, **named)
            raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, killed)
            try:
                self.turn(victim)
            except Killed:
                self.kills += 1
        victim.service.close()
        again = Api(self.opened())
        self._forecast_freely(again)
        self.servers[self.servers.index(victim)] = again

    def take(self) -> None:
        """Let the agents that are there accept what is offered."""
        for name in NAMES:
            if name in self.silent:
                continue
            server = self.any()
            offers = {one["id"]: one for one in self.say(server, name, "receive", max=10)["tasks"]}
            named = [{"id": one["id"], "attempt": one["attempt"]} for one in offers.values()]
            for task in self.say(server, name, "accept", tasks=named)["accepted"]:
                self.held[name][task] = offers[task]
                self.attempts[task, offers[task]["attempt"]] += 1
                job = offers[task]["job"]
                assert self.accepted.setdefault(job, (name, len(self.told(job))))[0] == name

    def end(self, part: float = 0.3) -> None:
        """Let some of what runs end."""
        for name in NAMES:
            for task in [one for one in self.held[name] if name not in self.silent and self.chance.random() < part]:
                offer = self.held[name].pop(task)
                ended = {
                    "task": task,
                    "attempt": offer["attempt"],
                    "event": "ended",
                    "result": "exited",
                    "exit_code": 0,
                }
                self.say(self.any(), name, "events", events=[ended])

    def lose(self) -> None:
        """Let an agent be silent for so long that it is lost."""
        if not self.silent:
            self.silent[self.chance.choice(NAMES)] = self.clock.now + LOST
            self.clock.now += 0.75 * LOST

    # ── what must hold ──

    def told(self, job: str) -> list[dict[str, Any]]:
        with self.servers[0].service.store.read() as connection:
            return list(jobs.decision(connection, job).get("moves", []))

    def why(self, job: str) -> Any:
        """Return where a job is, and why it waits."""
        answer = self.servers[0].good("GET", f"/v1/jobs/{job}/why", None, ADMIN)
        return self.servers[0].good("GET", f"/v1/jobs/{job}", None, ADMIN)["cluster"], answer["wait"]

    def states(self) -> dict[str, str]:
        with self.servers[0].service.store.read() as connection:
            results = {job: jobs.get(connection, job) for job in self.jobs}
        return {job: str(record.state) for job, record in results.items() if record}

    def check(self) -> None:
        with self.servers[0].service.store.read() as connection:
            for job in self.jobs:
                record, own = jobs.get(connection, job), [task.id for task in tasks.of_job(connection, job)]
                assert record is not None
                assert tasks.get(connection, record.cluster_id, own).keys() == set(own)
                moves = list(jobs.decision(connection, job).get("moves", []))
                self._check_moves(job, record.cluster, moves)

    def _check_moves(self, job: str, cluster: str, moves: list[dict[str, Any]]) -> None:
        assert moves[: len(self.moves.get(job, []))] == self.moves.get(job, [])  # what was told stays told
        self.moves[job] = moves
        assert [move["from"] for move in moves] == [self.jobs[job], *(move["to"] for move in moves)][: len(moves)]
        assert cluster == (moves[-1]["to"] if moves else self.jobs[job])
        ours = [move for move in moves if move["why"] == WHY]
        assert len(ours) <= MOST
        assert all(move["expected_end"]["to"] < move["expected_end"]["from"] for move in ours)
        assert all(move["selection"]["cluster"] == move["to"] for move in moves)
        if job in self.accepted:
            assert len(moves) == self.accepted[job][1]


def of_store(database: str, clock: Clock, servers: int, seed: int, acts: int) -> Campaign:
    made = Campaign(partial(open_service_at, database, clock), clock, servers, seed)
    made.run(acts)
    for one in made.servers:
        one.service.close()
    return made


def test_a_job_that_may_move_is_placed_once_though_its_server_dies_and_agents_are_lost(
    tmp_path: Path, clock: Clock
) -> None:
    made = of_store(f"sqlite:///{new_file(tmp_path / 'rainbow.db')}", clock, 1, 1, 40)
    assert any(move["why"] == WHY for moves in made.moves.values() for move in moves)
    assert made.kills


@pytest.mark.soak
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(6))
def test_jobs_move_between_two_servers_on_postgresql_that_die(
    seed: int, postgres_server: Postgres, clock: Clock
) -> None:
    database = postgres_server.new_database()
    made = of_store(database, clock, 2, seed, 80)
    postgres_server.drop(database)
    assert any(move["why"] == WHY for moves in made.moves.values() for move in moves)
    assert made.kills
