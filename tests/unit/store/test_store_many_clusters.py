"""States, bookings and queues of more clusters than a statement names one by one, on both stores."""

from __future__ import annotations

from rainbow.service import Service
from rainbow.store import cluster_states
from rainbow.store.cluster_states import FEW_CLUSTERS
from tests.conftest import Api, grid, jobspec


def test_many_clusters_are_read_as_a_few_are(api: Api, service: Service) -> None:
    oak = api.register("oak", grid(2, 1))
    api.good("PUT", "/v1/clusters/oak/state", {"nodes_free": 2}, oak.secret)
    api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token)
    own = service.catalogue["oak"].id
    others = [f"{k:016x}" for k in range(FEW_CLUSTERS)]
    with service.store.read() as connection:
        few = cluster_states.queues(connection, [own]), cluster_states.booked(connection, [own])
        queues, booked = (of(connection, [own, *others]) for of in (cluster_states.queues, cluster_states.booked))
        assert (queues[own], booked[own]) == (few[0][own], few[1][own])
        assert cluster_states.get(connection, [own, *others]) == cluster_states.get(connection, [own])
    assert queues[own]["waiting_tasks"] == 1
    assert booked[own] == -1
    assert not any(booked[one] or queues[one]["waiting_tasks"] for one in others)
