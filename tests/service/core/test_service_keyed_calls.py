"""Registering, minting, rotating and reserving, sent again under their Idempotency-Key, on both stores."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

import pytest

from rainbow.service import Service, Settings
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, Api, Clock, Cluster, grid, jobspec

PRIORITY = {"policy": "priority", "settings": {"discipline": "conservative"}}


def calls(api: Api, oak: Cluster, clock: Clock) -> dict[str, tuple[str, Any, str]]:
    """The calls that take a key: path, body, credential."""
    [secret] = [one for one in api.good("GET", "/v1/tokens", None, oak.secret)["tokens"] if one["kind"] == "secret"]
    minted = api.good("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret)
    start = datetime.fromtimestamp(clock.now + 100, UTC).isoformat()
    return {
        "register": ("/v1/clusters", {"name": "elm", "graph": grid(1, 1)}, REGISTRATION),
        "mint": ("/v1/tokens", {"clusters": ["oak"], "name": "of a script"}, oak.secret),
        "mint a monitor": ("/v1/tokens", {"monitor": True}, ADMIN),
        "rotate a token": (f"/v1/tokens/{minted['id']}:rotate", None, oak.secret),
        "reserve": (
            "/v1/clusters/oak/reservations",
            {"jobspec": jobspec(2), "start": start, "duration": 50, "requestor": "ann"},
            oak.token,
        ),
        "rotate its own secret": (f"/v1/tokens/{secret['id']}:rotate", None, oak.secret),
    }


@pytest.fixture
def oak(api: Api) -> Cluster:
    result = api.register("oak")
    result.say("heartbeat")
    api.good("PUT", "/v1/clusters/oak/scheduler", PRIORITY, result.secret)
    return result


def count(api: Api) -> tuple[int, int, int]:
    """How many clusters, credentials and reservations there are."""
    return (
        len(api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]),
        len(api.good("GET", "/v1/tokens", None, ADMIN)["tokens"]),
        len(api.good("GET", "/v1/clusters/oak/reservations", None, ADMIN)["reservations"]),
    )


def test_sent_again_each_is_done_once_and_answered_as_the_first_time_for_a_day(
    api: Api, oak: Cluster, clock: Clock
) -> None:
    for name, (path, body, credential) in calls(api, oak, clock).items():
        key = secrets.token_hex(16)
        first = api.call("POST", path, body, credential, Idempotency_Key=key)
        assert first.status_code in (200, 201), (name, first.get_data(as_text=True))
        after = count(api)
        clock.now += 10
        again = api.call("POST", path, body, credential, Idempotency_Key=key)
        assert (again.status_code, again.get_json()) == (first.status_code, first.get_json()), name
        assert again.headers["Idempotent-Replayed"] == "true"
        assert count(api) == after, name


def test_secrets_open_what_they_are_for_and_are_not_stored(api: Api, oak: Cluster, clock: Clock) -> None:
    path, body, credential = calls(api, oak, clock)["register"]
    key = secrets.token_urlsafe(16)
    for _ in range(2):
        answer = api.good("POST", path, body, credential, Idempotency_Key=key)
    assert api.good("GET", "/v1/clusters/elm", None, answer["token"])["name"] == "elm"
    api.good("PUT", "/v1/clusters/elm/state", {"load": 1}, answer["secret"])
    assert (answer["token"][:4], answer["secret"][:4]) == ("rbt_", "rbs_")
    with api.service.store.read() as connection:
        rows = str(connection.exec_driver_sql("SELECT * FROM answers").all())
    assert not any(hidden in rows for hidden in (key, answer["token"], answer["secret"]))


def test_another_body_under_the_same_key_is_409(api: Api, oak: Cluster) -> None:
    key, path = secrets.token_hex(16), "/v1/tokens"
    api.good("POST", path, {"clusters": ["oak"]}, oak.secret, Idempotency_Key=key)
    answer = api.call("POST", path, {"clusters": ["oak"], "name": "other"}, oak.secret, Idempotency_Key=key)
    assert (answer.status_code, answer.get_json()["code"]) == (409, "conflict")
    reordered = b'{ "clusters" : ["oak"] }'
    again = api.call("POST", path, reordered, oak.secret, Idempotency_Key=key, Content_Type="application/json")
    assert again.status_code == 201


@pytest.mark.parametrize("key", ["night-7", "a" * 100, "9d1e1b5c-6f0a-4c3e-8a57-0d2f4b6c8e1a", ""])
def test_key_that_may_be_guessed_is_400_and_nothing_is_done(api: Api, oak: Cluster, key: str) -> None:
    before = count(api)
    answer = api.call("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret, Idempotency_Key=key)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "request-invalid")
    assert count(api) == before


def test_key_is_its_senders_and_good_for_a_day(api: Api, oak: Cluster, clock: Clock) -> None:
    key, body = secrets.token_hex(16), {"clusters": ["oak"]}
    first = api.good("POST", "/v1/tokens", body, oak.secret, Idempotency_Key=key)
    other = api.good("POST", "/v1/tokens", body, ADMIN, Idempotency_Key=key)
    assert first["token"] != other["token"]
    assert api.call("POST", "/v1/tokens", body, "rbs_stranger", Idempotency_Key=key).status_code == 401
    clock.now += 86_401
    assert api.good("POST", "/v1/tokens", body, oak.secret, Idempotency_Key=key)["id"] != first["id"]
    with api.service.store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM answers").scalar_one() == 1


def test_answer_outlives_a_restart_and_a_server_of_another_secret_says_so(
    api: Api, oak: Cluster, database: str, clock: Clock
) -> None:
    key, body = secrets.token_hex(16), {"clusters": ["oak"]}
    first = api.good("POST", "/v1/tokens", body, oak.secret, Idempotency_Key=key)
    for admin, status in ((ADMIN, 201), ("rba_another", 409)):
        service = Service(open_store(database), Settings(secret=REGISTRATION, admin=admin), clock)
        answer = Api(service).call("POST", "/v1/tokens", body, oak.secret, Idempotency_Key=key)
        assert answer.status_code == status
        assert status == 409 or answer.get_json() == first
        service.close()


def test_nothing_is_kept_of_a_call_that_is_refused_and_the_key_is_free(api: Api, oak: Cluster) -> None:
    key = secrets.token_hex(16)
    register = {"name": "oak", "graph": grid(1, 1)}
    for _ in range(2):
        assert api.call("POST", "/v1/clusters", register, REGISTRATION, Idempotency_Key=key).status_code == 409
    register["name"] = "elm"
    assert api.call("POST", "/v1/clusters", register, REGISTRATION, Idempotency_Key=key).status_code == 201


def test_a_deleted_cluster_is_deleted_again_with_its_own_secret(api: Api, oak: Cluster) -> None:
    key = secrets.token_hex(16)
    answers = [api.call("DELETE", "/v1/clusters/oak", None, oak.secret, Idempotency_Key=key) for _ in range(3)]
    assert [(one.status_code, one.data) for one in answers] == [(204, b"")] * 3
    assert [one.headers.get("Idempotent-Replayed") for one in answers] == [None, "true", "true"]
    assert api.call("DELETE", "/v1/clusters/oak", None, oak.secret).status_code == 401
    assert api.call("DELETE", "/v1/clusters/oak", None, "rbs_stranger", Idempotency_Key=key).status_code == 401
    api.register("oak")  # a new one of this name is another cluster, and stays
    assert api.call("DELETE", "/v1/clusters/oak", None, oak.secret, Idempotency_Key=key).status_code == 204
    assert [one["name"] for one in api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]] == ["oak"]
