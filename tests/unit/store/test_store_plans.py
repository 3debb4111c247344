"""Statements of every step are answered from an index, however many tasks a cluster has."""

import pytest
import sqlalchemy as sa

from rainbow.store import jobs, pages, schema, statistics, tasks, workers
from rainbow.store.schema import clusters

NAMED = [f"j-{k}" for k in range(200)]


def how(connection, statement, **options):
    """SQLite's own plan of a statement, in words."""
    compiled = statement.compile(connection, compile_kwargs={"literal_binds": False, "render_postcompile": True})
    values = compiled.construct_params(options)
    ordered = tuple(values[name] for name in compiled.positiontup)
    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", ordered)
    return " ".join(row[3] for row in rows)


@pytest.mark.parametrize(
    ("statement", "given", "by"),
    [
        (tasks._CHANGED.statement, {"cluster": "c", "since": 7}, "tasks USING INDEX ix_tasks_stamp"),
        (
            tasks._NAMED.where(schema.tasks.c.id.in_(NAMED)),
            {},
            "tasks USING INDEX sqlite_autoindex_tasks_1",
        ),
        (sa.select(clusters.c.id).where(~workers._THERE.exists()), {}, "workers USING INDEX ix_workers_there"),
    ],
    ids=["what changed", "tasks by id", "clusters without a worker"],
)
def test_statement_looks_into_its_index(service, statement, given, by):
    with service.store.read() as connection:
        if connection.dialect.name != "sqlite":
            pytest.skip("the plans of PostgreSQL follow its statistics")
        answer = how(connection, statement, **given)
    assert f"SEARCH {by}" in answer


LISTS = {
    "ix_pages_state (state=?)": [
        lambda connection, by=by: pages.count_live_by(connection, None, {}, by) for by in pages.COUNTED
    ],
    "ix_pages_state (state=? AND id=?)": [jobs.list_unplaced, jobs.count_unplaced],
    "ix_jobs_ended_at": [lambda connection: statistics.in_window(connection, "1", 0, 9, 9)],
}


@pytest.mark.parametrize("index", LISTS)
def test_lists_do_not_go_through_all_jobs_that_are_kept(service, index):
    with service.store.read() as connection:
        if connection.dialect.name != "sqlite":
            pytest.skip("the plans of PostgreSQL follow its statistics")
        requests = []
        sa.event.listen(connection, "before_cursor_execute", lambda *answer: requests.append((answer[2], answer[3])))
        for ask in LISTS[index]:
            requests.clear()
            ask(connection)
            text, values = requests[0]
            plan = " / ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values))
            assert index in plan, plan
            assert not {"SCAN jobs", "SCAN j"} & set(plan.split(" / ")), plan


def test_tasks_are_found_by_id_at_their_own_cluster_only(api):
    oak, elm = api.register("oak"), api.register("elm")
    spec = {"resources": {"w": {"type": "node", "replicas": 1}}, "tasks": [{"command": ["true"], "resources": "w"}]}
    job = api.good("POST", "/v1/jobs", {"jobspec": spec}, oak.token)["id"]
    ids = {name: entry.id for name, entry in api.service.catalogue.items()}
    with api.service.store.read() as connection:
        assert list(tasks.get(connection, ids["oak"], [f"{job}-0", "no"])) == [f"{job}-0"]
        assert tasks.get(connection, ids["elm"], [f"{job}-0"]) == {}
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.tasks)).scalar() == 1
    assert elm.name == "elm"
