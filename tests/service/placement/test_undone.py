"""A commit that fails: what it has changed in memory is undone before anybody is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from rainbow.errors import Unavailable
from rainbow.service.jobs.numbers import note_site, take
from rainbow.store import Store
from rainbow.store.names import numbers
from rainbow.store.sqlite import WRITING
from tests.conftest import ADMIN, Api, grid
from tests.service.placement.test_choose_by_time import BY_TIME, alive, forecast, submit, wide


@contextmanager
def failing_commits(store: Store) -> Iterator[None]:
    """Let each commit of what is written fail, with nothing stored."""

    def broken(connection: sa.Connection) -> None:
        if connection.get_execution_options().get(WRITING):
            raise sa.exc.OperationalError("COMMIT", {}, Exception("the disk is away"))

    sa.event.listen(store.engine, "commit", broken)
    try:
        yield
    finally:
        sa.event.remove(store.engine, "commit", broken)


def test_a_job_that_was_not_stored_holds_nothing_in_the_forecasts(api: Api) -> None:
    """Each cluster has room for one: what a lost submit has booked would send the next one elsewhere, or later."""
    clusters = [api.register(name, grid(1, 8)) for name in ("ash", "elm")]
    for cluster in clusters:
        alive(cluster)
    forecast(api)
    tokens = [one.token for one in clusters]
    body = {"jobspec": wide(8), "selector": BY_TIME}
    take(api.service, 1)  # a block of numbers, so that what fails is the commit of the submit
    with failing_commits(api.service.store):
        for _ in range(3):
            assert api.call("POST", "/v1/jobs", body, *tokens).status_code == 503
    first, second = submit(api, clusters, wide(8)), submit(api, clusters, wide(8))
    assert {first["cluster"], second["cluster"]} == {"ash", "elm"}
    now = api.service.clock()
    states: Any = [one["states"] for one in api.good("GET", "/v1/decisions", None, ADMIN)["decisions"]]
    assert [min(state[name]["eta.finish"] for name in state) - now for state in states] == [300, 300]


def test_a_site_whose_number_was_not_stored_is_noted_with_its_next_one(api: Api) -> None:
    service = api.service
    with pytest.raises(Unavailable), failing_commits(service.store), service.store.write() as connection:
        note_site(service, connection)
    with service.store.write() as connection:
        note_site(service, connection)
    with service.store.read() as connection:
        assert numbers.first_number(connection, numbers.AUTO) >= numbers.OF_SITES


def test_a_commit_that_fails_keeps_no_other_writer_out(api: Api) -> None:
    """SQLite goes on with the transaction; the pool would give the connection to the next who writes."""
    for _ in range(3):
        with pytest.raises(Unavailable), failing_commits(api.service.store), api.service.store.write() as connection:
            note_site(api.service, connection)
    for _ in range(10):
        api.service.store.probe()
