"""rainbow audit: each change that was asked for has one line, with who asked, and no line has a secret."""

from __future__ import annotations

import json
import threading
from typing import Any

from structlog.testing import capture_logs

from rainbow.text import rfc3339
from tests.conftest import ADMIN, REGISTRATION, Api, Clock, grid, jobspec

AUDIT = "/v1/audit"


def audit(api: Api, token: str = ADMIN, **chosen: Any) -> list[dict[str, Any]]:
    query = "&".join(f"{key}={value}" for key, value in chosen.items())
    results: list[dict[str, Any]] = api.good("GET", f"{AUDIT}?{query}", None, token)["audit"]
    return results


def test_twelve_kinds_of_change_give_twelve_lines(api: Api) -> None:
    oak = api.register("oak", grid(2, 4))
    job = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "ann"}, oak.token)["id"]
    token = api.good("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret)
    api.good("POST", f"/v1/tokens/{token['id']}:rotate", None, oak.secret)
    api.good("DELETE", f"/v1/tokens/{token['id']}", None, oak.secret)
    api.good("PATCH", "/v1/clusters/oak/scheduler", {"policy": "priority"}, oak.secret)
    api.good("PUT", "/v1/clusters/oak/state", {"price": 3}, oak.secret)
    oak.say("heartbeat", running=[])
    api.good("POST", "/v1/clusters/oak/workers/n0:drain", None, oak.secret)
    api.good("PUT", "/v1/accounts/physics", {}, ADMIN)
    api.good("PUT", "/v1/qos/fast", {}, ADMIN)
    api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    api.good("POST", "/v1/clusters/oak:drain", None, oak.secret)
    lines = audit(api)[::-1]
    assert [(line["verb"], line["object"].split()[0]) for line in lines] == [
        ("clusters.register", "cluster"),
        ("jobs.submit", "job"),
        ("tokens.mint", "credential"),
        ("tokens.rotate", "credential"),
        ("tokens.revoke", "credential"),
        ("clusters.put_scheduler", "cluster"),
        ("clusters.put_state", "cluster"),
        ("workers.drain", "cluster"),
        ("accounts.put", "account"),
        ("accounts.put_qos", "qos"),
        ("jobs.cancel", "job"),
        ("clusters.drain", "cluster"),
    ]
    text = json.dumps(lines)
    for secret in (ADMIN, REGISTRATION, oak.secret, oak.token, token["token"]):
        assert secret not in text
    assert {line["cluster"] for line in lines if line["object"] != "account physics"} <= {"oak", None}


def test_a_cancel_is_found_by_its_job_with_who_asked(api: Api) -> None:
    oak = api.register("oak", grid(2, 4))
    job = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "ann"}, oak.token)["id"]
    login = {"Rainbow-Login": "bob", "X-Request-ID": "call-7"}
    answer = api.call("DELETE", f"/v1/jobs/{job}", None, oak.token, **login)
    assert answer.status_code == 200
    [cancel, submit] = audit(api, job=job)
    assert (cancel["verb"], cancel["login"], cancel["request"]) == ("jobs.cancel", "bob", "call-7")
    assert cancel["credential"] == submit["credential"]
    assert cancel["address"] == "127.0.0.1"
    assert audit(api, credential=cancel["credential"], job=job) == [cancel, submit]
    assert audit(api, credential="admin") == []


def test_what_is_refused_or_repeated_is_no_change(api: Api) -> None:
    oak = api.register("oak", grid(2, 4))
    before = audit(api)
    key = {"Idempotency-Key": "0123456789abcdef0123456789abcdef"}
    for _ in range(3):
        api.call("POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token, **key)
    with capture_logs() as lines:
        assert api.call("DELETE", "/v1/clusters/oak", None, oak.token).status_code == 403
        assert api.call("DELETE", "/v1/clusters/oak", None, "rbt_nobody").status_code == 401
    assert [line["status"] for line in lines if line["event"] == "refused"] == [403, 401]
    oak.say("heartbeat", running=[])
    api.good("POST", "/v1/match", {"jobspec": jobspec()}, oak.token)
    assert [line["verb"] for line in audit(api)] == ["jobs.submit", *(line["verb"] for line in before)]


def test_an_owner_sees_what_concerns_their_clusters_alone(api: Api) -> None:
    oak, elm = api.register("oak", grid(1, 1)), api.register("elm", grid(1, 1))
    api.good("PUT", "/v1/accounts/physics", {}, ADMIN)
    assert [line["cluster"] for line in audit(api, oak.secret)] == ["oak"]
    assert [line["cluster"] for line in audit(api, elm.secret)] == ["elm"]
    api.problem(403, "forbidden", "GET", AUDIT, None, oak.token)


def test_submits_that_share_a_commit_are_told_apart(api: Api) -> None:
    oak = api.register("oak", grid(2, 4))
    made: dict[str, str] = {}

    def submit(number: int) -> None:
        answer = api.call("POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token, **{"X-Request-ID": f"call-{number}"})
        made[answer.get_json()["id"]] = f"call-{number}"

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {
        one["object"].removeprefix("job "): one["request"] for one in audit(api) if one["verb"] == "jobs.submit"
    } == made


def test_pages_times_and_their_end(api: Api, clock: Clock) -> None:
    for number in range(5):
        clock.now += 10
        api.good("PUT", f"/v1/accounts/a{number}", {}, ADMIN)
    first = api.good("GET", f"{AUDIT}?limit=2", None, ADMIN)
    second = api.good("GET", f"{AUDIT}?limit=2&cursor={first['next']}", None, ADMIN)
    assert [line["object"] for line in first["audit"] + second["audit"]] == [f"account a{n}" for n in (4, 3, 2, 1)]
    assert [line["object"] for line in audit(api, since=rfc3339(clock.now))] == ["account a4"]
    assert [line["object"] for line in audit(api, until=rfc3339(clock.now - 35))] == ["account a0"]
    for wrong in ("limit=0", "since=x", "cursor=x"):
        assert api.call("GET", f"{AUDIT}?{wrong}", None, ADMIN).status_code == 400
