"""Nothing is forgotten by a clock that jumped, on either database."""

from __future__ import annotations

import time

import pytest

from rainbow.service import Service, Settings
from rainbow.service.jobs.lifecycle import forget_old
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, Api, jobspec

DAY = 86_400.0


def started(database: str, monkeypatch: pytest.MonkeyPatch, ahead: float) -> Service:
    """Start a server whose time of day is wrong."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    return Service(open_store(database), Settings(secret=REGISTRATION, admin=ADMIN), time.time)


def ended_job(service: Service) -> str:
    api = Api(service)
    oak = api.register(f"oak{time.time_ns()}")
    job: str = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    return job


def is_there(service: Service, job: str) -> bool:
    return bool(Api(service).call("GET", f"/v1/jobs/{job}", None, ADMIN).status_code == 200)


@pytest.mark.parametrize("ahead", [400 * DAY, -400 * DAY])
def test_a_server_whose_day_is_not_that_of_the_database_forgets_nothing(
    database: str, ahead: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as wrong:
        service = started(database, wrong, -400 * DAY)
        job = ended_job(service)  # to the database it is older than the history
    with monkeypatch.context() as wrong:
        service = started(database, wrong, ahead)
        capsys.readouterr()
        assert [forget_old(service) for _ in range(3)] == [0, 0, 0]
        assert is_there(service, job)
        answer = capsys.readouterr()
        assert (answer.out + answer.err).count("nothing-forgotten") == 1
    service = started(database, monkeypatch, 0.0)
    assert forget_old(service) >= 1
    assert not is_there(service, job)


def test_a_clock_that_was_set_within_a_day_forgets_nothing(database: str) -> None:
    day, monotonic = [time.time() - 200 * DAY], [0.0]
    service = Service(
        open_store(database),
        Settings(secret=REGISTRATION, admin=ADMIN),
        lambda: day[0] + monotonic[0],
        lambda: monotonic[0],
    )
    job = ended_job(service)
    assert forget_old(service) == 0
    day[0] += 200 * DAY
    for hours in (0, 1, 12, 24):
        monotonic[0] = hours * 3_600.0
        assert forget_old(service) == 0
        assert is_there(service, job)
    monotonic[0] = 25 * 3_600.0
    assert forget_old(service) >= 1
    assert not is_there(service, job)
