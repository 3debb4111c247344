"""What is remembered of matches is true, and bounded."""

from __future__ import annotations

import pytest

from rainbow.service import Service
from rainbow.service.placement.match_cache import Matches
from tests.conftest import Api, grid, jobspec


def test_match_is_made_anew_when_a_graph_or_the_clusters_have_changed(api: Api) -> None:
    oak, elm = api.register("oak", grid(2, 2)), api.register("elm", grid(4, 2))

    def candidates(*tokens: str) -> list[str]:
        return [each["cluster"] for each in api.good("POST", "/v1/match", jobspec(3), *tokens)["candidates"]]

    for _ in range(2):
        assert candidates(oak.token) == []
        assert candidates(oak.token, elm.token) == ["elm"]
    api.good("PUT", "/v1/clusters/oak/graph", grid(3, 2), oak.secret)
    assert candidates(oak.token) == ["oak"]
    api.good("DELETE", "/v1/clusters/elm", None, elm.secret)
    assert candidates(oak.token) == ["oak"]


@pytest.mark.remembers
def test_remembered_match_is_the_same_object_and_text_is_not_a_mapping(api: Api, service: Service) -> None:
    oak = api.register("oak")
    for body in (jobspec(), jobspec(), {"jobspec": jobspec()}):
        api.good("POST", "/v1/match", body, oak.token)
    assert len(service.state(Matches)) == 1
    api.good("POST", "/v1/match", {"jobspec": "resources: {w: {type: node}}"}, oak.token)
    assert len(service.state(Matches)) == 2


@pytest.mark.remembers
def test_what_is_remembered_is_bounded(api: Api, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matches, "most", 10)
    oak = api.register("oak")
    for nodes in range(1, 30):
        api.good("POST", "/v1/match", jobspec(nodes), oak.token)
    assert len(service.state(Matches)) == 5
