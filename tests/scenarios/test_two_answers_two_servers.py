"""Two servers on one PostgreSQL: each answers from a plan of its own, and at one time both say the same."""

from __future__ import annotations

import pytest

from rainbow.service.queries.jobs import job_filter, listing, show, why_now
from rainbow.service.scheduler.step import step
from tests.conftest import Clock, app_of, open_service_at
from tests.scenarios.test_two_answers import WHO
from tests.service.scheduler.test_service_reasons import register, submit
from tests.support.agent_by_hand import Agent
from tests.support.asking import RecallState
from tests.support.postgres import Postgres


@pytest.mark.parametrize("policy", ["load_based", pytest.param("priority", marks=pytest.mark.soak)])
def test_two_servers_give_one_reason_at_one_time(postgres_server: Postgres, policy: str) -> None:
    database, clock = postgres_server.new_database(), Clock()
    services = [open_service_at(database, clock) for _ in range(2)]
    api = RecallState(app_of(services[0]).test_client())
    cluster = register(api, policy)
    agent = Agent(api, cluster["secret"])
    agent.say("heartbeat")
    submit(api, cluster, many=12)
    step(services[0], "one")
    running = agent.take()
    for turn, ended in enumerate((0, 1, 2)):
        for _ in range(ended):
            agent.end(running.pop())
        if turn == 2:  # the other server steps
            services[1].refresh()
            step(services[1], "one")
        clock.now += 2
        said = []
        for service in services:
            service.refresh()
            chosen = job_filter(WHO, {"state": "waiting"}, None, 100)
            for one in listing(service, WHO, chosen):
                job, wait = one["id"], one["wait"]
                assert wait == show(service, WHO, job)["wait"] == why_now(service, WHO, job)["wait"]
                said.append((job, {key: value for key, value in wait.items() if key != "plan"}))
        half = len(said) // 2
        assert half
        assert said[:half] == said[half:]
    for service in services:
        service.close()
