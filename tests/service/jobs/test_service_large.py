"""Jobs of very many tasks: stored and canceled in pieces between which others write, shown page by page."""

import pytest

from rainbow.service.jobs import lifecycle, verbs
from rainbow.service.placement import staged_tasks
from rainbow.service.placement import submit as placing
from rainbow.service.scheduler.step import step
from rainbow.store import jobs, tasks
from tests.conftest import ADMIN, Api, grid, open_service_at

TASKS = 2_500


def many(count=TASKS):
    tasks = [{"command": ["true"], "resources": "one", "replicas": count}]
    return {"resources": {"one": {"type": "core", "replicas": 1}}, "tasks": tasks}


@pytest.fixture
def oak(api):
    made = api.register("oak", grid(2, 4))
    made.say("heartbeat", running=[])
    return made


def submit(oak, **more):
    return oak.api.good("POST", "/v1/jobs", {"jobspec": many(**more)}, oak.token)["id"]


def shown(oak, job, query=""):
    return oak.api.good("GET", f"/v1/jobs/{job}{query}", None, oak.token)


def indexes(page):
    return [task["index"] for task in page["tasks"]]


def test_a_job_of_very_many_tasks_is_shown_by_pages_with_counts_by_state(oak):
    job = submit(oak)
    oak.take()
    first = shown(oak, job)
    assert (indexes(first), first["next"]) == (list(range(1_000)), 999)
    assert first["counts"] == {"ACCEPTED": 8, "WAITING": TASKS - 8}
    second = shown(oak, job, "?after=999&limit=2")
    assert (indexes(second), second["next"], second["counts"]) == ([1_000, 1_001], 1_001, first["counts"])
    last = shown(oak, job, f"?after={TASKS - 3}")
    assert (indexes(last), last["next"]) == ([TASKS - 2, TASKS - 1], None)
    assert shown(oak, job, f"?after={TASKS}")["tasks"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=-1", "after=x", "after=9999999999"])
def test_a_page_that_is_none_is_refused(oak, query):
    job = submit(oak, count=1)
    answer = oak.api.problem(400, "request-invalid", "GET", f"/v1/jobs/{job}?{query}", None, oak.token)
    assert answer["pointer"] == f"/{query.partition('=')[0]}"


def canceled(api, job):
    """How often each task was told to be canceled, and how many were told to stop."""
    with api.service.store.read() as connection:
        result = lifecycle.events.after(connection, 0, None, 100_000)
    answers = [one.facts for one in result if one.kind == "task" and one.facts["job"] == job]
    ended = [one["task"] for one in answers if one["state"] == "CANCELED"]
    return len(ended), len(set(ended)), sum(one["state"] == "STOPPING" for one in answers)


def test_a_cancel_is_done_when_it_answers_and_takes_a_piece_in_each_transaction(oak, monkeypatch):
    job, pieces, whole = submit(oak), [], lifecycle._end_some
    monkeypatch.setattr(lifecycle, "_end_some", lambda *options: pieces.append(options) or whole(*options))
    monkeypatch.setattr(verbs, "CANCEL_SECONDS", 60.0)  # however slow the machine
    answer = oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert (answer["state"], answer["counts"], answer["wait"]) == ("CANCELED", {"CANCELED": TASKS}, None)
    assert len(pieces) == 6
    assert canceled(oak.api, job) == (TASKS, TASKS, 0)


def test_a_cancel_that_is_cut_off_starts_nothing_more_and_is_finished_after_a_restart(oak, database, monkeypatch):
    job = submit(oak)
    running = oak.take()
    with monkeypatch.context() as patched:
        patched.setattr(verbs, "CANCEL_SECONDS", 0.0)  # as if the server were killed after the first transaction
        answer = oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert (answer["state"], answer["wait"]["reason"]) == ("WAITING", "canceled")
    assert answer["counts"] == {"STOPPING": 8, "CANCELED": 500, "WAITING": TASKS - 508}
    with oak.api.service.store.write() as connection:  # a step that was planned before the cancel has the last word
        jobs.change(connection, job, wait={"reason": "share-used", "text": "", "facts": {}, "since": 0})
    again = Api(open_service_at(database, oak.api.service.clock))
    oak.api.service.close()
    oak.api = again
    for _ in range(20):
        step(again.service, "oak")
    assert shown(oak, job)["counts"] == {"STOPPING": 8, "CANCELED": TASKS - 8}
    assert shown(oak, job)["wait"]["reason"] != "canceled"
    for offer in running:
        oak.end(offer, result="stopped", exit_code=None)
    assert shown(oak, job)["state"] == "CANCELED"
    assert canceled(again, job) == (TASKS, TASKS, 8)
    again.service.close()


def test_nothing_of_a_job_that_is_being_canceled_starts(oak, monkeypatch):
    job = submit(oak)
    monkeypatch.setattr(verbs, "CANCEL_SECONDS", 0.0)
    monkeypatch.setattr("rainbow.service.scheduler.step.SLICE", 0.0)
    oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert oak.take() == []
    assert shown(oak, job)["wait"]["text"].startswith("canceled; its last tasks")
    other = submit(oak, count=1)
    assert [offer["job"] for offer in oak.take()] == [other]


# ── a large job is stored in pieces that become visible together ──


class Killed(BaseException):
    """The end of the process, as far as it is concerned."""


@pytest.fixture
def piece(monkeypatch):
    """Store 500 tasks in a transaction; the list holds what to call before the next pieces."""
    calls = []
    monkeypatch.setattr(staged_tasks, "LARGE", 500)
    monkeypatch.setattr(placing, "LARGE", 500)
    monkeypatch.setattr(staged_tasks, "sleep", lambda _: calls and calls.pop(0)())
    return calls


def rows(service):
    """Count what is stored: rows of jobs that are none yet, and tasks."""
    with service.store.read() as connection:
        whole = connection.exec_driver_sql("SELECT count(*) FROM tasks").scalar_one()
        return len(jobs.older_staged(connection, float("inf"))), whole


def seen(api, oak):
    """Return all that may tell of jobs and tasks."""
    figures = api.good("GET", "/metrics?brief=true", None, ADMIN)
    listed = (
        api.good("GET", "/v1/jobs", None, ADMIN)["jobs"],
        api.good("GET", "/v1/jobs?summary=true", None, oak.token),
    )
    state = api.good("GET", "/v1/clusters/oak/state", None, oak.secret)
    return [line for line in str(figures).splitlines() if "rainbow_tasks{" in line], listed, state


def test_a_large_job_is_stored_in_pieces_that_become_visible_together(oak, piece):
    before, between = seen(oak.api, oak), []

    def look():
        step(oak.api.service, "oak")
        between.append((seen(oak.api, oak), rows(oak.api.service)))

    piece += [look] * 5
    job = submit(oak)
    assert [answer for answer, _ in between] == [before] * 5
    assert [stored for _, stored in between] == [(1, 500 * k) for k in range(5)]
    assert shown(oak, job)["counts"] == {"WAITING": TASKS}
    assert rows(oak.api.service) == (0, TASKS)
    assert len(oak.take()) == 8


def test_a_large_job_whose_server_is_killed_between_two_pieces_was_never_there(oak, piece, database):
    def kill():
        raise Killed

    piece += [lambda: None, lambda: None, kill]
    with pytest.raises(Killed):
        submit(oak)
    again = Api(open_service_at(database, oak.api.service.clock))
    oak.api.service.close()
    assert rows(again.service) == (1, 1_000)
    oak.api = again
    assert again.good("GET", "/v1/jobs", None, ADMIN)["jobs"] == []
    assert oak.take() == []
    staged_tasks.sweep(again.service)
    assert rows(again.service) == (1, 1_000)  # another process may be at it still
    again.service.clock.now += staged_tasks.STALE + 1
    for _ in range(5):
        staged_tasks.sweep(again.service)
    assert rows(again.service) == (0, 0)
    again.service.close()


def test_a_large_job_that_is_refused_or_sent_twice_leaves_nothing(oak, piece):
    limit = {"limits": {"max_waiting_tasks": TASKS + 100}}
    oak.api.good("PATCH", "/v1/clusters/oak/scheduler", limit, oak.secret)
    piece += [lambda: None, lambda: submit_small(oak)]  # by now it fits, in the end it does not
    answer = oak.api.problem(429, "too-many", "POST", "/v1/jobs", {"jobspec": many()}, oak.token)
    assert (answer["limit"], rows(oak.api.service)) == ("max_waiting_tasks", (0, 101))
    oak.api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"max_waiting_tasks": -1}}, oak.secret)
    sent = {"jobspec": many()}, oak.token
    first = oak.api.good("POST", "/v1/jobs", *sent, **{"Idempotency-Key": "k"})
    assert oak.api.good("POST", "/v1/jobs", *sent, **{"Idempotency-Key": "k"})["id"] == first["id"]
    assert rows(oak.api.service) == (0, 101 + TASKS)


def submit_small(oak):
    return submit(oak, count=101)


def test_a_large_job_goes_where_it_is_sent_when_all_is_stored(oak, piece):
    elm = oak.api.register("elm", grid(2, 4))
    elm.say("heartbeat", running=[])
    both = oak.api.good("POST", "/v1/tokens", {"clusters": ["oak", "elm"]}, oak.secret, elm.secret)["token"]
    options = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}
    for name, cost in (("oak", 1), ("elm", 2)):
        oak.api.good("PUT", f"/v1/clusters/{name}/state", {"cost": cost}, ADMIN)
    piece += [lambda: oak.api.good("PUT", "/v1/clusters/oak/state", {"cost": 3}, ADMIN)]
    send = {"jobspec": many(), "selector": {"name": "constraint", "options": options}}
    job = oak.api.good("POST", "/v1/jobs", send, both)
    assert job["cluster"] == "elm"
    with oak.api.service.store.read() as connection:
        assert set(tasks.waiting_at(connection, oak.api.service.catalogue["elm"].id)) == {job["id"]}
        assert tasks.waiting_at(connection, oak.api.service.catalogue["oak"].id) == {}
