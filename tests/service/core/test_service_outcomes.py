"""Every answer is done, none or unknown, and is true: on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from rainbow.service import Service
from rainbow.store import jobs
from tests.conftest import Api, Cluster, jobspec


def listed(api: Api) -> set[str]:
    with api.service.store.read() as connection:
        return {record.name for entry in api.service.catalogue.values() for record in jobs.live(connection, entry.id)}


def break_jobs_called(service: Service, name: str) -> None:
    """Let the database refuse a job of this name, as only a fault of Rainbow's would have it."""
    with service.store.write() as connection:
        if service.store.many_processes:
            raised = "BEGIN RAISE EXCEPTION 'broken' USING ERRCODE = 'division_by_zero'; END"
            connection.exec_driver_sql(f"CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $${raised}$$")
            carried_out = "FOR EACH ROW WHEN (NEW.name = 'NAME') EXECUTE FUNCTION broken()"
        else:
            carried_out = "FOR EACH ROW WHEN NEW.name = 'NAME' BEGIN SELECT RAISE(ABORT, 'broken'); END"
        trigger = carried_out.replace("NAME", name)
        connection.exec_driver_sql(f"CREATE TRIGGER broken BEFORE INSERT ON jobs {trigger}")


def break_statements(service: Service, word: str) -> None:
    """Let the database be away for statements with this word."""

    def broken(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if word in statement:
            raise sa.exc.OperationalError(statement, None, Exception("the server closed the connection"))

    sa.event.listen(service.store.engine, "before_cursor_execute", broken)


# ── 503 and 500 have an outcome ──


def test_trouble_before_anything_is_stored_is_none(api: Api, oak: Cluster) -> None:
    break_statements(api.service, "pg_advisory" if api.service.store.many_processes else "BEGIN IMMEDIATE")
    answer = api.problem(503, "unavailable", "POST", "/v1/jobs", jobspec(), oak.token)
    assert answer["outcome"] == "none"
    assert listed(api) == set()


def test_trouble_after_something_was_stored_is_unknown(api: Api, oak: Cluster) -> None:
    """The job is canceled; it cannot be shown."""
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    break_statements(api.service, "count(")
    answer = api.problem(503, "unavailable", "DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert answer["outcome"] == "unknown"


def test_fault_of_rainbow_is_unknown(api: Api, oak: Cluster) -> None:
    break_jobs_called(api.service, "here")
    answer = api.problem(500, "error", "POST", "/v1/jobs", {"jobspec": jobspec(), "name": "here"}, oak.token)
    assert answer["outcome"] == "unknown"


def test_refusals_have_no_outcome(api: Api, oak: Cluster) -> None:
    assert "outcome" not in api.problem(404, "not-found", "GET", "/v1/jobs/none", None, oak.token)


# ── what fails after the commit ──


def test_listener_that_fails_after_a_submit_is_logged_and_the_job_is_told(
    api: Api, oak: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("a listener")

    [cluster] = api.service.catalogue.values()
    with api.service.news.listening([cluster.id, ""], broken):
        job = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "name": "here"}, oak.token)
        assert listed(api) == {"here"}
        assert api.good("DELETE", f"/v1/jobs/{job['id']}", None, oak.token)["state"] == "CANCELED"
        birch = api.register("birch")
        api.good("POST", "/v1/tokens", {"clusters": ["birch"]}, birch.secret)
        api.good("DELETE", "/v1/clusters/birch", None, birch.secret)
    assert "after-commit-failed" in capsys.readouterr().out


def test_one_listener_that_fails_keeps_no_other_from_hearing(api: Api, oak: Cluster) -> None:
    woken: list[int] = []

    def broken() -> None:
        raise RuntimeError("a listener")

    with api.service.news.listening([""], broken), api.service.news.listening([""], lambda: woken.append(1)):
        api.service.tell()
    assert woken == [1]


# ── a batch answers per job ──


@pytest.mark.parametrize("assign", [{}, {"assign": "optimal", "minimise": "nodes"}])
def test_fault_of_rainbow_in_one_job_of_a_batch_is_that_jobs_answer(
    api: Api, oak: Cluster, assign: dict[str, Any]
) -> None:
    break_jobs_called(api.service, "third")
    batch = [{"jobspec": jobspec(), "name": name} for name in ("first", "second", "third", "fourth", "fifth")]
    answers = api.good("POST", "/v1/jobs:batch", {"jobs": batch, **assign}, oak.token)["answers"]
    assert [answer["status"] for answer in answers] == [201, 201, 500, 201, 201]
    assert answers[2]["outcome"] == "none"
    assert listed(api) == {"first", "second", "fourth", "fifth"}


def test_trouble_after_a_batch_was_stored_is_no_answer_of_it(api: Api, oak: Cluster) -> None:
    api.service.news.elsewhere = lambda topics, changed: {}["no"]  # the other servers cannot be told
    batch = [{"jobspec": jobspec(), "name": name} for name in ("first", "second")]
    answers = api.good("POST", "/v1/jobs:batch", {"jobs": batch}, oak.token)["answers"]
    assert [answer["status"] for answer in answers] == [201, 201]
    assert listed(api) == {"first", "second"}


# ── said twice ──


def test_cancel_of_a_canceled_job_is_its_state(api: Api, oak: Cluster) -> None:
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    first = api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    again = api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert (first["state"], again) == ("CANCELED", first)


def test_cancel_of_a_job_that_ended_otherwise_is_409(api: Api, oak: Cluster) -> None:
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
    oak.end(offer)
    answer = api.problem(409, "conflict", "DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert "COMPLETED" in answer["detail"]


def test_suspend_resume_and_revoke_said_twice_are_the_same(api: Api, oak: Cluster) -> None:
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    for verb in ("suspend", "resume"):
        first, again = (api.good("POST", f"/v1/jobs/{job}:{verb}", None, oak.token) for _ in range(2))
        assert first == again
    made = api.good("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret)
    for _ in range(2):
        assert api.call("DELETE", f"/v1/tokens/{made['id']}", None, oak.secret).status_code == 204
