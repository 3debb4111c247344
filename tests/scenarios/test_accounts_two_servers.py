"""Budgets with many callers and two servers on PostgreSQL, one of them killed: 100 jobs are paid, exactly."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from rainbow.client import Client, Problem
from rainbow.errors import Unavailable
from rainbow.store import open_store
from rainbow.store.accounts.tables import budgets, holds, usage_days
from rainbow.store.schema import tasks
from tests.conftest import ADMIN, Clock, grid, open_service_at
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import Processes, register
from tests.service.scheduler.test_service_accounts import put, submit
from tests.support.postgres import Postgres

CALLERS, JOBS, SECONDS = 64, 100, 60


def test_two_servers_accept_together_exactly_what_a_budget_pays(postgres_server: Postgres) -> None:
    from tests.conftest import Api

    database = postgres_server.new_database()
    pair = [Api(open_service_at(database, Clock())) for _ in range(2)]
    oak = pair[0].register("oak")
    put(pair[0], "bio", users={"ann": {"default": True}}, budget={"amount": 10 * 100 / 3_600})
    with ThreadPoolExecutor(8) as pool:
        answers = Counter(pool.map(lambda k: submit(pair[k % 2], oak).status_code, range(16)))
    assert answers == {201: 10, 422: 6}
    for one in pair:
        one.service.close()


@pytest.mark.soak
def test_64_callers_get_100_jobs_and_charges_equal_the_runs_though_a_server_is_killed(
    tmp_path: Path, postgres_server: Postgres
) -> None:
    database = postgres_server.new_database()
    processes = Processes(tmp_path, database)
    try:
        urls = [processes.serve(), processes.serve()]
        answer = register(urls[0], grid(2, 8))
        with Client(urls[0], ADMIN) as admin:
            admin.put_account("bio", {"users": {"ann": {}}, "budget": {"amount": JOBS * SECONDS / 3_600}})
        scheduler = processes.start("scheduler")
        agent = ("agent", "--cluster", "oak", "--executor", "local")
        processes.start(*agent, RAINBOW_URL=urls[1], RAINBOW_SECRET=answer["secret"])
        with ThreadPoolExecutor(CALLERS) as pool:
            answers = Counter(pool.map(lambda k: _submit(urls[k % 2], answer["token"], k), range(2 * JOBS)))
            processes.running[0].kill()  # a server
            scheduler.kill()
        processes.start("scheduler")
        assert answers == {201: JOBS, 422: JOBS}
        store = open_store(database)
        until(lambda: _unended(store) == 0, 300)
        with store.read() as connection:
            ran = connection.execute(sa.select(tasks.c.started_at, tasks.c.ended_at, tasks.c.attempt)).all()
            day_sums = connection.execute(
                sa.select(sa.func.sum(usage_days.c.used)).where(usage_days.c.type == "core")
            ).scalar_one()
            held, charged = connection.execute(sa.select(budgets.c.held, budgets.c.charged)).one()
            by_job = connection.execute(sa.select(sa.func.sum(holds.c.charged))).scalar_one()
        assert len(ran) == JOBS
        assert {row.attempt for row in ran} == {1}
        of_runs = sum(row.ended_at - row.started_at for row in ran)
        assert day_sums == pytest.approx(of_runs, abs=1e-3)
        assert (held, charged * 3_600) == (pytest.approx(0.0, abs=1e-9), pytest.approx(of_runs, abs=1e-3))
        assert by_job == pytest.approx(charged)
        store.close()
    finally:
        processes.end()


def _submit(url: str, token: str, number: int) -> int:
    spec = {
        "version": 1,
        "resources": {"w": {"type": "core", "replicas": 1}},
        "tasks": [{"command": [sys.executable, "-c", "import time; time.sleep(0.2)"], "resources": "w"}],
        "attributes": {"system": {"duration": SECONDS}},
    }
    try:
        with Client(url, token, tries=20) as client:
            client.submit(spec, requestor="ann", name=f"j{number}")
    except Problem as problem:
        return problem.status
    except Unavailable:
        return os.EX_UNAVAILABLE
    return 201


def _unended(store) -> int:
    with store.read() as connection:
        query = sa.select(sa.func.count()).where(tasks.c.ended_at.is_(None))
        return connection.execute(query).scalar_one()
