"""Accounts at the service: who pays, what is held and charged, and the record of what was used."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from rainbow.service import Service
from rainbow.store.accounts.tables import budgets, holds, usage_days
from rainbow.text import seconds_of
from tests.conftest import ADMIN, jobspec


@pytest.fixture
def bio(api, oak):
    """An account of two users on a cluster of four cores that costs 8 a node and hour."""
    api.good("PUT", "/v1/clusters/oak/state", {"cost_per_node_hour": 8.0}, oak.secret)
    put(api, "bio", users={"ann": {"default": True}, "bob": {}}, shares=2)
    put(api, "cfd", users={"bob": {}})
    return oak


def put(api, name, **body):
    return api.good("PUT", f"/v1/accounts/{name}", body, ADMIN)


def submit(api, oak, user="ann", seconds=100, **more):
    envelope = {"jobspec": jobspec(duration=seconds, **more.pop("system", {})), "requestor": user, **more}
    return api.call("POST", "/v1/jobs", envelope, oak.token)


def begin(oak):
    oak.say("heartbeat", workers=["n0", "n1"])
    offers = oak.take()
    oak.say("events", events=[{"task": o["id"], "attempt": o["attempt"], "event": "started"} for o in offers])
    return offers


def rows(api, table):
    with api.service.store.read() as connection:
        return [dict(row._mapping) for row in connection.execute(sa.select(table))]


def test_a_server_without_accounts_takes_any_job_and_writes_no_usage(api, oak, clock):
    assert submit(api, oak, system={"account": "anything"}).status_code == 201
    [offer] = begin(oak)
    clock.now += 10
    oak.end(offer)
    assert rows(api, usage_days) == []


def test_the_jobspec_names_the_account_or_the_request_or_it_is_the_default(api, bio):
    requests = [{}, {"system": {"account": "bio"}}, {"system": {"bank": "cfd"}, "user": "bob"}, {"account": "bio"}]
    results = [submit(api, bio, **one).get_json()["id"] for one in requests]
    shown = [api.good("GET", f"/v1/jobs/{job}", None, bio.token)["account"] for job in results]
    assert shown == ["bio", "bio", "cfd", "bio"]


def test_an_account_that_is_unknown_or_not_theirs_is_refused_with_those_they_may_use(api, bio):
    for request in ("cfd", "nonsense"):
        answer = submit(api, bio, account=request)
        assert (answer.status_code, answer.get_json()["accounts"]) == (403, ["bio"])
        assert "ann may use: bio" in answer.get_json()["detail"]
    assert "no default account" in submit(api, bio, "bob").get_json()["detail"]
    assert "is in no account" in submit(api, bio, "eve").get_json()["detail"]


def test_a_token_that_names_accounts_allows_no_other(api, bio):
    made = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "accounts": ["cfd"]}, bio.secret)
    bio.token = made["token"]
    assert submit(api, bio, "bob", account="cfd").status_code == 201
    assert "this token does not allow account bio" in submit(api, bio).get_json()["detail"]


def test_usage_is_what_tasks_held_to_the_second_by_day_user_cluster_and_type(api, bio, clock):
    clock.now = 86_400 * 20_000 - 30.0
    assert submit(api, bio).status_code == 201
    [offer] = begin(bio)
    clock.now += 72.5
    bio.end(offer)
    results = {(row["day"], row["user"], "oak", row["type"]): row["used"] for row in rows(api, usage_days)}
    assert results[19_999, "ann", "oak", "core"] == 30.0
    assert results[20_000, "ann", "oak", "core"] == 42.5
    assert results[20_000, "ann", "oak", "cost"] == pytest.approx(42.5 * 8 / 2 / 3_600)  # a node has two cores
    answer = api.good("GET", "/v1/usage?by=account,user,cluster&since=2024-10-01", None, ADMIN)["rows"]
    assert answer[0]["hours"]["core"] == pytest.approx(72.5 / 3_600)
    assert (answer[0]["account"], answer[0]["user"], answer[0]["cluster"]) == ("bio", "ann", "oak")
    text = api.call("GET", "/v1/usage?csv=true&since=2024-10-01", None, ADMIN).get_data(as_text=True)
    assert text.splitlines()[0] == "account,core,cost,node"


def test_a_clock_that_is_set_back_while_a_task_runs_gives_no_usage_back(api, bio, clock):
    submit(api, bio)
    [offer] = begin(bio)
    clock.now -= 3_600
    bio.end(offer)
    submit(api, bio)
    [offer] = begin(bio)
    clock.now += 7
    bio.end(offer)
    assert sum(row["used"] for row in rows(api, usage_days) if row["type"] == "core") == 7.0
    assert all(row["used"] >= 0 for row in rows(api, usage_days))


def test_an_attempt_that_is_lost_counts_too_and_so_does_the_next(api, bio, clock):
    submit(api, bio)
    for seconds, result in ((10, "lost"), (7, "exited")):
        clock.now += 5
        [offer] = begin(bio)
        clock.now += seconds
        bio.end(offer, result=result)
    assert sum(row["used"] for row in rows(api, usage_days) if row["type"] == "core") == 17.0


def test_a_budget_is_held_at_submit_charged_at_the_end_and_the_rest_given_back(api, bio, clock):
    put(api, "bio", budget={"amount": 250 / 3_600})
    jobs = [submit(api, bio) for _ in range(3)]
    assert [job.status_code for job in jobs] == [201, 201, 422]
    assert "account bio has 0.0138889 of 0.0694444 left" in jobs[2].get_json()["detail"]
    assert jobs[2].get_json()["code"] == "over-budget"
    first, second = begin(bio)
    clock.now += 40
    bio.end(first)
    [there] = rows(api, budgets)
    assert (there["held"], there["charged"]) == (pytest.approx(100 / 3_600), pytest.approx(40 / 3_600))
    assert submit(api, bio).status_code == 201
    assert submit(api, bio).status_code == 422
    bio.end(second)
    api.good("DELETE", f"/v1/jobs/{max(row['job'] for row in rows(api, holds))}", None, bio.token)
    [there] = rows(api, budgets)
    assert (there["held"], there["charged"]) == (0.0, pytest.approx(80 / 3_600))


def test_a_budget_of_money_counts_what_the_cluster_costs_and_of_an_account_above_too(api, bio):
    put(api, "all", budget={"amount": 0.15, "of": "cost", "period": "always"})
    put(api, "bio", parent="all")
    assert submit(api, bio).status_code == 201  # 100 s on half a node for 8 an hour: 0.11
    refused = submit(api, bio).get_json()
    assert refused["account"] == "all"
    assert refused["wanted"] == pytest.approx(100 * 8 / 2 / 3_600)
    assert refused["left"] == pytest.approx(0.15 - refused["wanted"])


def test_over_budget_a_job_is_accepted_behind_all_others_where_the_account_says_so(api, bio):
    put(api, "bio", budget={"amount": 0.03, "over": "lowest"})
    jobs = [submit(api, bio).get_json()["id"] for _ in range(2)]
    shown = [api.good("GET", f"/v1/jobs/{job}", None, bio.token)["priority"] for job in jobs]
    assert shown == [0, -1_000_000]
    assert len(rows(api, holds)) == 1


def test_under_a_budget_a_job_needs_a_time_limit(api, bio):
    put(api, "bio", budget={"amount": 1})
    answer = submit(api, bio, seconds=0)
    assert (answer.status_code, answer.get_json()["pointer"]) == (422, "/attributes/system/duration")


def test_limits_of_an_account_hold_for_all_below_it_over_all_clusters_or_for_one(api, bio):
    put(api, "all", limits={"active_jobs": 2, "clusters": {"oak": {"duration": 50}}})
    put(api, "bio", parent="all")
    assert submit(api, bio).get_json()["limit"] == "duration"
    assert [submit(api, bio, seconds=50).status_code for _ in range(3)] == [201, 201, 429]


def test_accounts_are_changed_by_the_administrator_alone(api, bio):
    api.problem(403, "forbidden", "PUT", "/v1/accounts/bio", {"shares": 9}, bio.secret)
    api.problem(403, "forbidden", "DELETE", "/v1/accounts/bio", None, bio.token)
    api.problem(422, "value-refused", "PUT", "/v1/accounts/bio", {"parent": "bio"}, ADMIN)
    api.problem(400, "request-invalid", "PUT", "/v1/accounts/bio", {"budget": {"amont": 1}}, ADMIN)
    submit(api, bio)
    api.problem(409, "conflict", "DELETE", "/v1/accounts/bio", None, ADMIN)
    assert api.call("DELETE", "/v1/accounts/cfd", None, ADMIN).status_code == 204
    assert [one["name"] for one in api.good("GET", "/v1/accounts", None, bio.token)["accounts"]] == ["bio"]


def test_a_token_of_one_user_sees_their_accounts_and_usage_only(api, bio, clock):
    made = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["ann"]}, bio.secret)["token"]
    result = api.good("GET", "/v1/accounts", None, made)["accounts"]
    assert [(one["name"], [u["user"] for u in one["users"]]) for one in result] == [("bio", ["ann"])]
    api.problem(404, "not-found", "GET", "/v1/accounts/cfd", None, made)
    submit(api, bio, "bob", account="cfd")
    [offer] = begin(bio)
    clock.now += 9
    bio.end(offer)
    assert api.good("GET", "/v1/usage?by=user", None, made)["rows"] == []
    for sees, *tokens in ((1, ADMIN), (1, bio.token), (1, bio.secret), (0, api.register("elm").token)):
        assert len(api.good("GET", "/v1/usage?by=user", None, *tokens)["rows"]) == sees


def test_a_budget_for_exactly_ten_jobs_accepts_ten_of_many_at_once(api, bio):
    put(api, "bio", budget={"amount": 1_000 / 3_600})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: submit(api, bio).status_code, range(16)))
    assert sorted(answers) == [201] * 10 + [422] * 6
    assert isinstance(api.service, Service)


def test_a_start_and_an_end_in_one_message_are_charged_as_the_record_has_them(api, bio, clock, monkeypatch):
    submit(api, bio)
    bio.say("heartbeat", workers=["n0", "n1"])
    [offer] = bio.take()
    answer = {"task": offer["id"], "attempt": offer["attempt"]}

    def later() -> float:
        clock.now += 1.0
        return clock.now

    monkeypatch.setattr(api.service, "clock", later)
    ended = {**answer, "event": "ended", "result": "exited", "exit_code": 0, "output": ""}
    bio.say("events", events=[{**answer, "event": "started"}, ended])
    [task] = api.good("GET", f"/v1/jobs/{offer['job']}", None, bio.token)["tasks"]
    held = seconds_of(task["ended_at"]) - seconds_of(task["started_at"])
    assert held > 0
    assert sum(row["used"] for row in rows(api, usage_days) if row["type"] == "core") == pytest.approx(held)


def test_selection_reads_where_the_account_is(api, bio):
    put(api, "bio", budget={"amount": 5})
    steps = [{"filter": "account.factor > 0.5 and account.left > 4 and account.used < 1"}, {"select": "random"}]
    selector = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
    assert submit(api, bio, selector=selector).status_code == 201
    put(api, "bio", budget={"amount": 3})
    answer = submit(api, bio, selector=selector)
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no-cluster-now")


def test_why_says_how_much_of_its_share_the_account_has_used(api, bio, clock):
    job = submit(api, bio).get_json()["id"]
    [offer] = begin(bio)
    clock.now += 50
    bio.end(offer)
    clock.now += 10
    result = api.good("GET", f"/v1/jobs/{job}/why", None, bio.token)["account"]
    assert result["text"] == "account bio has used 150 % of its share, 1 account comes first"
