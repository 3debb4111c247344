"""A submit that was matched on graphs which another process has replaced since."""

from tests.conftest import Api, grid, open_service_at


def test_graph_another_server_has_replaced_is_not_matched_any_more(database, clock, api, oak):
    other = open_service_at(database, clock)
    try:
        there = Api(other)
        wide = _cores(4)
        there.problem(422, "unsatisfiable", "POST", "/v1/jobs", wide, oak.token)  # nodes have 2 cores
        api.good("PUT", "/v1/clusters/oak/graph", grid(1, 4), oak.secret)
        there.problem(422, "unsatisfiable", "POST", "/v1/jobs", _cores(5), oak.token)
        placed = there.good("POST", "/v1/jobs", _cores(1), oak.token)  # matched anew when it is stored
        assert placed["cluster"] == "oak"
        assert there.good("POST", "/v1/jobs", wide, oak.token)["cluster"] == "oak"
        if other.store.many_processes:  # what the graphs of before do not fit is matched anew before it is refused
            api.good("PUT", "/v1/clusters/oak/graph", grid(1, 8), oak.secret)
            assert there.good("POST", "/v1/jobs", _cores(8), oak.token)["cluster"] == "oak"
        api.good("PUT", "/v1/clusters/oak/graph", grid(1, 2), oak.secret)
        there.problem(422, "unsatisfiable", "POST", "/v1/jobs", wide, oak.token)
    finally:
        other.close()


def test_cluster_another_server_has_deleted_is_not_found(database, clock, api, oak):
    other = open_service_at(database, clock)
    try:
        api.good("DELETE", "/v1/clusters/oak", None, oak.secret)
        Api(other).problem(401, "unauthenticated", "POST", "/v1/jobs", _cores(1), oak.token)
    finally:
        other.close()


def _cores(count):
    """A job of one slot of some cores in one node."""
    slot = {"type": "node", "replicas": 1, "with": [{"type": "core", "count": count}]}
    return {"resources": {"w": slot}, "tasks": [{"command": ["true"], "resources": "w"}]}
