"""Selection goes where an agent is: clusters without one are left out while another candidate has one."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.service.placement import candidates
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec

CHEAPEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}
ONLY_ELM = {"priorities": [{"priority": 1, "steps": [{"filter": "cost < 2"}, {"select": "first"}]}]}
RANDOM = {"name": "random"}


def constraint(options: Any) -> dict[str, Any]:
    return {"name": "constraint", "options": options}


@pytest.fixture
def three(api: Api) -> list[Cluster]:
    costs = {"ash": 3, "elm": 1, "oak": 2}
    return [api.register(name, grid(9, 9), state={"cost": cost}) for name, cost in costs.items()]


def submit(api: Api, clusters: list[Cluster], selector: Any) -> Any:
    return api.good(
        "POST", "/v1/jobs", {"jobspec": jobspec(), "selector": selector}, *(one.token for one in clusters)
    )


def why(api: Api, made: Any, verb: str) -> Any:
    return api.good("GET", f"/v1/jobs/{made['id']}/{verb}", None, ADMIN)


@pytest.mark.parametrize("selector", [RANDOM, constraint(CHEAPEST)], ids=["random", "constraint"])
def test_cluster_without_an_agent_is_not_chosen_while_another_has_one(
    api: Api, three: list[Cluster], selector: Any
) -> None:
    three[2].say("heartbeat", running=[])
    for made in [submit(api, three, selector) for _ in range(8)]:
        assert made["cluster"] == "oak"
        assert made["decision"]["unattended"] == ["ash", "elm"]
        assert [one["cluster"] for one in made["decision"]["candidates"]] == ["ash", "elm", "oak"]
        assert why(api, made, "why")["decision"]["unattended"] == ["ash", "elm"]
        assert why(api, made, "replay")["equal"]


def test_without_any_agent_all_are_candidates(api: Api, three: list[Cluster]) -> None:
    made = submit(api, three, constraint(CHEAPEST))
    assert made["cluster"] == "elm"
    assert "unattended" not in made["decision"]
    assert len({submit(api, three, RANDOM)["cluster"] for _ in range(40)}) == 3


def test_what_the_expressions_leave_to_clusters_without_an_agent_waits_there(api: Api, three: list[Cluster]) -> None:
    three[2].say("heartbeat", running=[])
    made = submit(api, three, constraint(ONLY_ELM))
    assert made["cluster"] == "elm"
    assert "unattended" not in made["decision"]


def test_cluster_whose_jobs_are_pulled_needs_no_agent(api: Api, three: list[Cluster]) -> None:
    fir = api.register("fir", grid(9, 9), state={"cost": 0}, policy={"name": "delegate"})
    three[2].say("heartbeat", running=[])
    made = submit(api, [*three, fir], constraint(CHEAPEST))
    assert made["cluster"] == "fir"
    assert made["decision"]["unattended"] == ["ash", "elm"]


def test_of_many_candidates_the_agents_are_looked_for_once_a_second(
    api: Api, clock: Clock, three: list[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "FEW_CANDIDATES", 2)
    submit(api, three, RANDOM)
    three[2].say("heartbeat", running=[])
    clock.now += candidates.NOTED
    assert {submit(api, three, RANDOM)["cluster"] for _ in range(8)} == {"oak"}
