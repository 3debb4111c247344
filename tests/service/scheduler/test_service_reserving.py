"""Advance reservations by users, on both stores: made, used, refused, limited, ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rainbow.forecast import Key
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.store import statistics
from rainbow.store.statistics import Ran
from rainbow.text import rfc3339
from tests.conftest import ADMIN, jobspec


@pytest.fixture
def oak(api):
    result = api.register("oak")  # two nodes of two cores
    result.say("heartbeat")
    plan_by(api, result, "priority", settings={"discipline": "conservative"})
    return result


def plan_by(api, cluster, policy, status=200, **more):
    body = {"policy": policy, **more}
    assert api.call("PUT", "/v1/clusters/oak/scheduler", body, cluster.secret).status_code == status


def at(clock, seconds):
    return datetime.fromtimestamp(clock.now + seconds, UTC).isoformat()


def wide(nodes=2, cores=2):
    slot = {"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": cores}]}
    return {**jobspec(), "resources": [{"type": "node", "count": nodes, "with": [slot]}]}


def body(clock, start=100, seconds=50, nodes=2, **more):
    results = {"jobspec": wide(nodes), "duration": seconds, **more}
    return results if start is None else {**results, "start": at(clock, start)}


def reserve(api, cluster, request, *tokens):
    return api.good("POST", "/v1/clusters/oak/reservations", request, *(tokens or [cluster.token]))


def submit(api, cluster, seconds, cores=2, requestor=None, nodes=1, **system):
    spec = {**wide(nodes, cores), "attributes": {"system": {"duration": seconds, **system}}}
    envelope = {"jobspec": spec, **({"requestor": requestor} if requestor else {})}
    return api.good("POST", "/v1/jobs", envelope, cluster.token)["id"]


def show(api, cluster, job):
    return api.good("GET", f"/v1/jobs/{job}", None, cluster.token)


def test_reserved_space_is_left_to_the_jobs_that_name_it(api, oak, clock):
    made = reserve(api, oak, body(clock, requestor="ann"))
    assert (made["state"], made["requestor"], made["requestors"]) == ("coming", "ann", ["ann"])
    assert made["placement"] == {name: {"core": 2} for name in ("n0", "n1")}
    short, long_ = submit(api, oak, 90), submit(api, oak, 150)
    inside = submit(api, oak, 40, requestor="ann", nodes=2, reservation=made["id"])
    (offer,) = oak.take()
    assert offer["job"] == short
    waits = [show(api, oak, job)["wait"] for job in (long_, inside)]
    assert waits[0]["facts"]["start"] == rfc3339(clock.now + 150)
    assert waits[1]["facts"]["start"] == rfc3339(clock.now + 100)
    oak.end(offer)
    clock.now += 101
    oak.say("heartbeat")
    assert [offer["job"] for offer in oak.take()] == [inside]


def test_without_a_start_it_is_the_earliest_there_is(api, oak, clock):
    submit(api, oak, 70)
    oak.take()
    first = reserve(api, oak, body(clock, None, 30))
    assert first["start"] == at(clock, 70).replace("+00:00", ".000Z")
    second = reserve(api, oak, body(clock, None, 100, nodes=1))
    assert second["start"] == at(clock, 100).replace("+00:00", ".000Z")
    third = reserve(api, oak, body(clock, None, 60, nodes=1))
    assert third["state"] == "active"


def test_maintenance_of_all_nodes_is_reserved_over_jobs_without_a_limit_and_says_which_must_end(api, oak, clock):
    endless = submit(api, oak, 0)
    oak.take()
    made = reserve(api, oak, body(clock))
    assert made["must_end"] == [f"{endless}-0"]
    waits = [submit(api, oak, 0), submit(api, oak, 500)]
    oak.say("heartbeat")
    assert oak.take() == []  # nothing starts that would still run then
    assert {show(api, oak, job)["wait"]["facts"]["kept_for"]["reservation"] for job in waits} == {made["id"]}
    assert reserve(api, oak, body(clock, 5_000, nodes=1))["must_end"] == []


def test_what_has_no_room_is_refused_with_every_workers_reason(api, oak, clock):
    submit(api, oak, 10_000)
    oak.take()
    answer = api.problem(422, "unsatisfiable", "POST", "/v1/clusters/oak/reservations", body(clock), oak.token)
    assert answer["detail"].endswith("1/2 workers: 1 busy until 16:33 UTC, 1 room for one slot")
    reserve(api, oak, body(clock, nodes=1))
    answer = api.problem(
        422, "unsatisfiable", "POST", "/v1/clusters/oak/reservations", body(clock, nodes=1), oak.token
    )
    assert "1 reserved in advance" in answer["detail"]
    big = {**body(clock), "jobspec": wide(1, 5)}
    assert (
        "too small"
        in api.problem(422, "unsatisfiable", "POST", "/v1/clusters/oak/reservations", big, oak.token)["detail"]
    )


def test_a_job_without_a_limit_before_a_reservation_is_expected_after_it_and_is_told_what_limit_would_do(
    api, oak, clock
):
    """However short runs like it were: the policy starts it after what is kept, and a limit would start it now."""
    api.service.settings = replace(api.service.settings, forecast_share=1.0)
    submit(api, oak, 0, nodes=2)
    (offer,) = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    clock.now += 5
    oak.end(offer)
    stored = reserve(api, oak, body(clock, 100 * 86_400, nodes=1, requestor="ann"))
    endless = submit(api, oak, 0, nodes=2)
    barred = submit(api, oak, 10, requestor="eve", reservation=stored["id"])
    assert oak.take() == []
    wait = show(api, oak, endless)["wait"]
    assert wait["text"].startswith("it has no time limit; with -t 100d or less it would start now; ")
    Forecaster(api.service).turn()
    eta = api.good("GET", f"/v1/jobs/{endless}/eta", None, oak.token)
    assert eta["start"] >= wait["facts"]["promised"] > rfc3339(clock.now + 99 * 86_400)
    never = api.good("GET", f"/v1/jobs/{barred}/eta", None, oak.token)
    assert (never["how"], never["start"], never["end"]) == ("unknown", None, None)


def test_only_those_it_is_for_run_in_it(api, oak, clock):
    made = reserve(api, oak, body(clock, requestor="ann", requestors=["bob"]))
    jobs = {who: submit(api, oak, 10, requestor=who, reservation=made["id"]) for who in ("ann", "bob", "eve")} | {
        "lost": submit(api, oak, 10, requestor="ann", reservation="nothing")
    }
    clock.now += 101
    oak.say("heartbeat")
    assert {offer["job"] for offer in oak.take()} == {jobs["ann"], jobs["bob"]}
    eve, lost = (show(api, oak, jobs[who])["wait"] for who in ("eve", "lost"))
    assert (eve["reason"], eve["text"]) == ("attributes", f"advance reservation {made['id']!r} cannot be used by eve")
    assert lost["text"] == "advance reservation 'nothing' not found"
    assert reserve(api, oak, body(clock, 500, requestors=["*"]))["requestors"] is None


def test_tokens_reserve_for_their_requestors_and_see_what_is_theirs(api, oak, clock):
    token = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["ann"]}, oak.secret)["token"]
    other = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["bob"]}, oak.secret)["token"]
    stranger = api.register("elm")
    path = "/v1/clusters/oak/reservations"
    api.problem(403, "forbidden", "POST", path, body(clock, requestor="bob"), token)
    api.problem(404, "not-found", "POST", path, body(clock), stranger.token)
    api.problem(401, "unauthenticated", "POST", path, body(clock))
    mine = reserve(api, oak, body(clock), token)
    shared = reserve(api, oak, body(clock, 200, requestors=["bob"]), token)
    assert mine["requestor"] == "ann"

    def seen(*tokens):
        return [one["id"] for one in api.good("GET", path, None, *tokens)["reservations"]]

    assert seen(token) == seen(oak.secret) == seen(ADMIN) == [mine["id"], shared["id"]]
    assert seen(other) == [shared["id"]]
    api.problem(404, "not-found", "GET", f"{path}/{mine['id']}", None, other)
    api.problem(404, "not-found", "DELETE", f"{path}/{mine['id']}", None, other)
    api.problem(403, "forbidden", "DELETE", f"{path}/{shared['id']}", None, other)
    assert api.good("GET", f"{path}/{shared['id']}", None, other)["state"] == "coming"
    for _ in range(2):  # said twice it is the same
        assert api.call("DELETE", f"{path}/{mine['id']}", None, token).status_code == 204
    assert seen(token) == [shared["id"]]
    over = api.good("GET", f"{path}?over=true", None, token)["reservations"]
    assert {(one["id"], one["state"]) for one in over} == {(mine["id"], "over"), (shared["id"], "coming")}


def test_deleted_or_over_its_jobs_end_with_it_and_its_space_is_free(api, oak, clock, service):
    made = reserve(api, oak, body(clock, 0, 50))
    forever = submit(api, oak, 0, reservation=made["id"])
    late = submit(api, oak, 60, reservation=made["id"])
    free = submit(api, oak, 20)
    offers = oak.take()
    assert [offer["job"] for offer in offers] == [forever]
    assert show(api, oak, late)["wait"]["reason"] == "never"
    clock.now += 51
    api.problem(409, "conflict", "DELETE", f"/v1/clusters/oak/reservations/{made['id']}", None, oak.token)
    oak.say("heartbeat")
    step(service, "oak")
    assert [one["id"] for one in oak.say("heartbeat")["stop"]] == [offers[0]["id"]]
    oak.end(offers[0], result="stopped")
    assert [show(api, oak, job)["state"] for job in (forever, late)] == ["CANCELED"] * 2
    assert show(api, oak, late)["tasks"][0]["detail"] == f"its advance reservation {made['id']} is over"
    assert [offer["job"] for offer in oak.take()] == [free]


def test_limits_hold_and_are_told(api, oak, clock):
    plan_by(api, oak, "priority", limits={"max_reservations_per_requestor": 2, "reservation_days": 1})
    for k in range(2):
        reserve(api, oak, body(clock, 100 * k))
    path = "/v1/clusters/oak/reservations"
    answer = api.problem(429, "too-many", "POST", path, body(clock, 300), oak.token)
    assert (answer["limit"], answer["most"], answer["present"]) == ("max_reservations_per_requestor", 2, 2)
    reserve(api, oak, body(clock, 300, requestor="bob"))
    answer = api.problem(429, "too-many", "POST", path, body(clock, 1_000, 86_401, requestor="eve"), oak.token)
    assert answer["limit"] == "reservation_days"


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"start": "soon"}, "/start"),
        ({"end": "2001-01-01T00:00:00Z"}, "/duration"),
        ({"duration": None}, "/duration"),
        ({"duration": 0}, "/duration"),
        ({"requestors": "ann"}, "/requestors"),
        ({"jobspec": 7}, "/jobspec"),
    ],
)
def test_malformed_is_refused_with_its_pointer(api, oak, clock, more, pointer):
    answer = api.problem(
        400, "request-invalid", "POST", "/v1/clusters/oak/reservations", {**body(clock), **more}, oak.token
    )
    assert answer["pointer"] == pointer
    assert api.good("GET", "/v1/clusters/oak/reservations", None, oak.token) == {"reservations": []}


def test_a_missing_duration_is_asked_for_in_words(api, oak):
    request = {"jobspec": wide(1, 1)}
    answer = api.problem(400, "request-invalid", "POST", "/v1/clusters/oak/reservations", request, oak.token)
    assert (answer["detail"], answer["pointer"]) == ("give duration, or start and end", "/duration")


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ("n[1-", "workers must be 1 to 10,000 names or a hostlist such as n[01-04], got n[1-"),
        ("n[0-20000]", "workers must be 1 to 10,000 names or a hostlist such as n[01-04], got n[0-20000]"),
        ("n[0-9]", "worker n2 not found"),
    ],
)
def test_workers_of_a_maintenance_that_cannot_be_read_or_found_are_named(api, oak, clock, workers, said):
    request = {"workers": workers, "duration": 60}
    answer = api.problem(422, "value-refused", "POST", "/v1/clusters/oak/reservations", request, oak.secret)
    assert (answer["detail"], answer["pointer"]) == (said, "/workers")


def test_a_start_in_the_past_is_no_fault_of_form(api, oak, clock):
    request = {**body(clock), "start": "1970-01-02T00:00:00Z"}
    answer = api.problem(422, "value-refused", "POST", "/v1/clusters/oak/reservations", request, oak.token)
    assert answer["pointer"] == "/start"


def test_it_is_audited_and_told_as_an_event(api, oak, clock):
    made = reserve(api, oak, body(clock, requestor="ann"))
    assert api.call("DELETE", f"/v1/clusters/oak/reservations/{made['id']}", None, oak.secret).status_code == 204
    changes = api.good("GET", "/v1/clusters/oak/scheduler/changes", None, oak.secret)["changes"][:2]
    assert [one["what"] for one in changes] == [f"reservation {made['id']}"] * 2
    assert changes[1]["who"] == "requestor ann"
    assert changes[0]["who"].startswith("secret ")
    assert (changes[0]["to"], changes[1]["from"]) == (None, None)
    answer = api.call("GET", "/v1/events?follow=false&after=0", None, oak.secret).get_data(as_text=True)
    assert answer.count("event: reservation") == 2


def test_policies_that_keep_nothing_are_refused_while_something_is_kept(api, oak, clock):
    made = reserve(api, oak, body(clock))
    plan_by(api, oak, "load_based", status=409)
    assert api.call("DELETE", f"/v1/clusters/oak/reservations/{made['id']}", None, oak.token).status_code == 204
    plan_by(api, oak, "load_based")
    api.problem(409, "conflict", "POST", "/v1/clusters/oak/reservations", body(clock), oak.token)


def test_timeline_shows_what_is_kept_once(api, oak, clock):
    made = reserve(api, oak, body(clock, 0, 50, nodes=1))
    submit(api, oak, 40, reservation=made["id"])
    oak.take()
    (line,) = api.good("GET", "/v1/clusters/oak/timeline", None, oak.secret)["lines"]
    assert line["steps"] == [[clock.now, 2], [clock.now + 50, 0]]


def maintain(api, cluster, clock, workers="n[0-1]", query="", status=201, **more):
    request = {"workers": workers, "start": at(clock, 100), "duration": 700, **more}
    answer = api.call("POST", f"/v1/clusters/oak/reservations{query}", request, cluster.secret)
    assert answer.status_code == status, answer.get_data(as_text=True)
    return answer.json


def test_nothing_runs_on_a_worker_in_maintenance_and_the_reason_names_it(api, oak, clock):
    maintain(api, oak, clock, "n0", name="bios")
    endless, long_, short = (submit(api, oak, seconds) for seconds in (0, 150, 90))
    offers = {offer["job"]: offer for offer in oak.take()}
    assert {job: list(show(api, oak, job)["tasks"][0]["placement"]) for job in offers} == {
        endless: ["n1"],
        short: ["n0"],
    }
    wait = show(api, oak, long_)["wait"]
    assert wait["facts"]["start"] == rfc3339(clock.now + 800)
    clock.now += 101
    oak.say("heartbeat")
    oak.end(offers[short])
    assert oak.take() == []
    states = {row["state"] for row in api.good("GET", "/v1/nodes", None, oak.secret)["nodes"]}
    assert "maintenance" in states
    begin, end = (datetime.fromtimestamp(clock.now + after, UTC) for after in (-1, 699))
    answer = show(api, oak, long_)["wait"]
    assert f"; n0 is in maintenance from {begin:%H:%M} UTC to {end:%H:%M} UTC" in answer["text"]
    assert answer["facts"]["maintenance"]["n0"]["end"] == rfc3339(end.timestamp())


def test_a_job_without_a_limit_waits_for_a_maintenance_it_would_run_into(api, oak, clock):
    maintain(api, oak, clock)
    endless = submit(api, oak, 0)
    assert oak.take() == []
    answer = show(api, oak, endless)["wait"]["text"]
    first, second, *_ = answer.split("; ")
    assert (first, second) == ("it has no time limit", "with -t 100s or less it would start now")
    assert "; 0/2 workers: 2 in maintenance; n0 is in maintenance from " in answer


def test_a_preview_of_maintenance_lists_what_is_in_the_way_and_makes_nothing(api, oak, clock):
    endless, long_ = submit(api, oak, 0), submit(api, oak, 500)
    oak.take()
    promised = submit(api, oak, 60)
    step(api.service, "oak")
    stored = reserve(api, oak, body(clock, start=600, nodes=1, requestor="ann"))
    result = maintain(api, oak, clock, query="?preview=true", status=200)
    assert sorted(result["must_end"]) == sorted([f"{endless}-0", f"{long_}-0"])
    assert (result["promised"], result["reservations"], result["id"]) == ([promised], [stored["id"]], None)
    assert len(api.good("GET", "/v1/clusters/oak/reservations", None, oak.secret)["reservations"]) == 1


def shown(api, oak, made, key=None):
    return api.good("GET", f"/v1/clusters/oak/reservations/{made['id']}", None, key or oak.secret)


def test_shown_again_a_maintenance_lists_what_is_in_its_way_then(api, oak, clock):
    endless, long_ = submit(api, oak, 0), submit(api, oak, 500)
    offers = {offer["job"]: offer for offer in oak.take()}
    made = maintain(api, oak, clock)
    listed = {"must_end", "promised", "reservations"}
    assert {key: shown(api, oak, made)[key] for key in listed} == {key: made[key] for key in listed}
    assert not listed & shown(api, oak, made, oak.token).keys()  # other people's tasks
    oak.end(offers[long_])
    assert shown(api, oak, made)["must_end"] == [f"{endless}-0"]
    clock.now += 801
    assert shown(api, oak, made)["state"] == "over"
    assert "must_end" not in shown(api, oak, made)


def test_shown_again_a_reservation_lists_the_tasks_without_room_beside_it(api, oak, clock):
    endless = [submit(api, oak, 0, cores=cores) for cores in (1, 2)]
    oak.take()
    made = reserve(api, oak, body(clock, requestor="ann"))
    assert sorted(made["must_end"]) == sorted(f"{job}-0" for job in endless)
    assert sorted(shown(api, oak, made)["must_end"]) == sorted(made["must_end"])
    small = {**body(clock, 1_000, nodes=1), "jobspec": wide(1, 1)}
    beside = reserve(api, oak, small)
    assert beside["must_end"] == shown(api, oak, beside)["must_end"] == []


@pytest.mark.parametrize(("at_begin", "after"), [("requeue", "WAITING"), ("cancel", "CANCELED"), (None, "RUNNING")])
def test_what_still_runs_when_a_maintenance_begins_ends_as_was_asked(api, oak, clock, at_begin, after):
    one_node, beside = submit(api, oak, 0), submit(api, oak, 0)
    offers = {offer["job"]: offer for offer in oak.take()}
    for offer in offers.values():
        oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    (worker,) = offers[one_node]["placement"]
    made = maintain(api, oak, clock, [worker], name="bios", **({"at_begin": at_begin} if at_begin else {}))
    assert made.get("at_begin") == shown(api, oak, made).get("at_begin") == at_begin
    refs = {job: {"id": offer["id"], "attempt": 1} for job, offer in offers.items()}
    for seconds, stopped in ((99, []), (2, [refs[one_node]] if at_begin else [])):
        clock.now += seconds
        oak.say("heartbeat", running=list(refs.values()))
        step(api.service, "oak")
        answer = oak.say("heartbeat", running=list(refs.values()))["stop"]
        assert [{"id": ref["id"], "attempt": ref["attempt"]} for ref in answer] == stopped
    if at_begin:
        assert show(api, oak, one_node)["tasks"][0]["detail"] == "maintenance bios has begun"
        oak.end(offers[one_node], result="stopped", exit_code=None)
    assert oak.take() == []  # nothing starts there
    states = {job: show(api, oak, job)["tasks"][0]["state"] for job in (one_node, beside)}
    assert states == {one_node: after, beside: "RUNNING"}
    oak.end(offers[beside])
    assert [offer["job"] for offer in oak.take()] == ([one_node] if at_begin == "requeue" else [])


@pytest.mark.parametrize(("at_begin", "end"), [("requeue", 600.0), ("cancel", 100.0), (None, 300.0)])
def test_a_forecast_knows_what_a_maintenance_ends(api, oak, clock, at_begin, end):
    with api.service.store.write() as connection:  # what runs like it took
        statistics.learn(connection, api.service.catalogue["oak"].id, [Ran(Key("", ""), 300.0, 0.0)], clock.now)
    job, beside = submit(api, oak, 0), submit(api, oak, 0)
    for offer in oak.take():
        oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    (worker,) = show(api, oak, job)["tasks"][0]["placement"]
    began = clock.now
    maintain(api, oak, clock, [worker], **({"at_begin": at_begin} if at_begin else {}))
    Forecaster(api.service).turn()
    ends = [api.good("GET", f"/v1/jobs/{one}/eta", None, oak.token)["end"] for one in (job, beside)]
    assert ends == [rfc3339(began + end), rfc3339(began + 300.0)]


def test_of_a_gang_all_tasks_end_with_the_one_in_maintenance(api, oak, clock):
    spec = jobspec(2)
    slot = {"type": "slot", "count": 1, "with": [{"type": "core", "count": 2}]}
    spec["resources"] = [{**slot, "label": "a"}, {**slot, "label": "b"}]
    spec["tasks"] = [{"command": ["true"], "slot": label, "count": {"per_slot": 1}} for label in "ab"]
    job = api.good("POST", "/v1/jobs", {"jobspec": spec}, oak.token)["id"]
    offers = oak.take()
    assert len({*offers[0]["placement"], *offers[1]["placement"]}) == 2
    maintain(api, oak, clock, "n0", start=at(clock, 0), at_begin="requeue")
    step(api.service, "oak")
    assert [task["state"] for task in show(api, oak, job)["tasks"]] == ["STOPPING", "STOPPING"]


def test_what_no_agent_has_is_taken_back_when_a_maintenance_begins(api, oak, clock):
    job = submit(api, oak, 0)
    step(api.service, "oak")
    assert show(api, oak, job)["tasks"][0]["state"] == "ASSIGNED"
    maintain(api, oak, clock, start=at(clock, 0), at_begin="requeue")
    step(api.service, "oak")
    assert show(api, oak, job)["tasks"][0]["state"] == "WAITING"


def test_maintenance_is_the_clusters_own_to_make_and_to_end(api, oak, clock):
    request = {"workers": ["n0"], "start": at(clock, 100), "duration": 50}
    path = "/v1/clusters/oak/reservations"
    api.problem(403, "forbidden", "POST", path, request, oak.token)
    made = maintain(api, oak, clock, ["n0"])
    assert api.good("GET", f"{path}/{made['id']}", None, oak.token)["maintenance"] is True
    api.problem(403, "forbidden", "DELETE", f"{path}/{made['id']}", None, oak.token)
    request["workers"] = "n[1-2]"
    assert api.problem(422, "value-refused", "POST", path, request, oak.secret)["pointer"] == "/workers"
    assert api.call("DELETE", f"{path}/{made['id']}", None, oak.secret).status_code == 204
    assert len(oak.take()) == 0
