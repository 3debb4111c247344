"""Clusters in short: a start reads no vertices, and everything is as it would be with them."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings

import rainbow
from rainbow.errors import Unavailable
from rainbow.graph.outline import PARTS
from rainbow.matching.equivalence.subtree_classes import (
    classify,
    nameless,
    restored,
    root_of,
    summarise,
)
from rainbow.service import Service
from rainbow.store.schema import clusters as stored
from rainbow.store.schema import summaries
from tests.conftest import ADMIN, Api, Clock, grid, jobspec, open_service_at
from tests.support import strategies

GRAPH = grid(3, 2)
IO = {"graph": {"nodes": {"io0": {"metadata": {"type": "io"}}}, "edges": [{"source": "n0", "target": "io0"}]}}


NEED = [{"name": "io", "field": "type", "match": "io"}]


def is_read(service: Service, name: str) -> bool:
    return PARTS[0] in vars(service.catalogue[name].cluster.outline)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.cases())
def test_restored_cluster_answers_as_the_one_it_was_made_from(case: Any) -> None:
    shape, hung, request = case
    cluster = strategies.cluster(shape, hung, name="one")
    summary = summarise(cluster)
    assert summary is not None
    again = restored(summary[1], "one", cluster.levels, cluster.worker_type, lambda: cluster)
    assert root_of(again) is root_of(cluster)
    assert nameless(again) == nameless(cluster)
    assert [*again.subsystems] == [*cluster.subsystems]
    assert (again.totals, again.worker_count) == (cluster.totals, len(cluster.workers))
    assert PARTS[0] not in vars(again.outline)
    assert rainbow.match(request, [again]) == rainbow.match(request, [cluster])
    assert classify(again) == classify(cluster)


@pytest.fixture
def restarted(api: Api, database: str, clock: Clock) -> Api:
    """The API of a second process, started after two clusters were registered."""
    api.register("oak", GRAPH)
    api.register("elm", GRAPH, subsystems={"io": IO})
    return Api(open_service_at(database, clock))


def test_start_reads_no_vertices_until_somebody_looks_at_them(restarted: Api) -> None:
    service = restarted.service
    listed = restarted.good("GET", "/v1/clusters", None, ADMIN)["clusters"]
    assert {one["name"]: one["workers"] for one in listed} == {"oak": 3, "elm": 3}
    placed = restarted.good("POST", "/v1/jobs", {"jobspec": jobspec(3), "clusters": [{"name": "oak"}]}, ADMIN)
    assert (placed["cluster"], is_read(service, "oak"), is_read(service, "elm")) == ("oak", False, False)
    assert list(service.catalogue["oak"].cluster.workers) == ["n0", "n1", "n2"]
    assert is_read(service, "oak")


def test_subsystems_are_read_when_somebody_looks_at_them(restarted: Api) -> None:
    elm = restarted.service.catalogue["elm"].cluster
    needy = {"tasks": [{"command": ["a"], "resources": "w"}], "resources": {"w": {"type": "node", "requires": NEED}}}
    [result] = rainbow.match(rainbow.parse_jobspec(needy), [elm])
    assert (result.matched, result.fits, is_read(restarted.service, "elm")) == (True, 1, False)
    assert [*elm.subsystems["io"].graph] == ["io0"]
    assert elm.subsystems["io"].attached == {"n0": ("io0",)}


@pytest.mark.parametrize("change", [{"layout": -1}, {"revision": 7}], ids=["another format", "another revision"])
def test_summary_that_is_not_of_now_is_made_anew(api: Api, database: str, clock: Clock, change: Any) -> None:
    api.register("oak", GRAPH)
    with api.service.store.write() as connection:
        connection.execute(summaries.update().values(content=b"nonsense", **change))
    with open_service_at(database, clock).store.read() as connection:
        result = connection.execute(sa.select(summaries)).one()
    assert (result.revision, result.content == b"nonsense") == (1, False)
    assert not is_read(open_service_at(database, clock), "oak")


def test_summary_follows_the_graph_and_goes_with_the_cluster(api: Api, database: str, clock: Clock) -> None:
    oak = api.register("oak", GRAPH)
    api.good("PUT", "/v1/clusters/oak/graph", grid(7, 2), oak.secret)
    later = open_service_at(database, clock)
    assert (later.catalogue["oak"].cluster.worker_count, is_read(later, "oak")) == (7, False)
    api.good("DELETE", "/v1/clusters/oak", None, oak.secret)
    with api.service.store.read() as connection:
        assert connection.execute(sa.select(summaries)).all() == []


def test_vertices_of_a_graph_that_was_replaced_meanwhile_are_not_mixed_with_those_of_another(restarted: Api) -> None:
    with restarted.service.store.write() as connection:
        connection.execute(stored.update().values(revision=2))
    with pytest.raises(Unavailable):
        restarted.service.catalogue["oak"].cluster.workers  # noqa: B018 - looking is what reads it
