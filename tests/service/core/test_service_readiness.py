"""readyz says whether anything can be stored, with the cause, and the log says when that changed."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from rainbow.errors import Unavailable
from rainbow.service.core.readiness import Readiness
from tests.conftest import Api, Clock


def ready(api: Api) -> tuple[int, Any]:
    answer = api.call("GET", "/readyz")
    return answer.status_code, answer.get_json()


def test_a_store_that_takes_no_write_is_not_ready_until_it_does(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = sa.exc.OperationalError("INSERT", {}, type("Full", (Exception,), {"sqlite_errorname": "SQLITE_FULL"})())
    assert ready(api)[0] == 200

    def fail(*_: Any) -> None:
        raise full

    with capture_logs() as lines:
        clock.now += 2
        with monkeypatch.context() as patch:
            patch.setattr("rainbow.store.engine._commit", fail)
            assert [ready(api)[0] for _ in range(3)] == [503] * 3
            assert "disk of the database is full" in str(ready(api)[1])
        clock.now += 2
        assert ready(api)[0] == 200
    answers = [(line["event"], line["log_level"]) for line in lines if "ready" in line["event"]]
    assert answers == [("not-ready", "warning"), ("ready-again", "warning")]


def test_however_many_ask_one_row_a_second_is_written(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes: list[int] = []
    monkeypatch.setattr(type(api.service.store), "probe", lambda _: probes.append(1))
    for _ in range(20):
        ready(api)
    clock.now += 1.5
    ready(api)
    assert len(probes) == 2


def test_a_probe_leaves_nothing(api: Api) -> None:
    api.service.store.probe()
    with api.service.store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM answers").scalar() == 0


def test_damage_that_a_long_look_has_shown_is_said(api: Api, clock: Clock) -> None:
    api.service.state(Readiness).damage = "store s.db is damaged: row 7 missing"
    clock.now += 2
    code, answer = ready(api)
    assert code == 503
    assert "store s.db is damaged: row 7 missing" in str(answer)


def test_without_a_database_a_cluster_has_no_figures_but_a_503(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    oak = api.register()
    path = "/v1/clusters/oak/scheduler"
    assert "idle" in api.good("GET", path, None, oak.secret)["figures"]

    def away(*_: Any) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr("rainbow.service.scheduler.step.take_snapshot", away)
    assert api.problem(503, "unavailable", "GET", path, None, oak.secret)["outcome"] == "none"
