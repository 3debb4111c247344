"""The founding text's configuration behind the API, and that no request changes another's."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.service.core.settings import read_config
from tests.conftest import Api, Clock, Cluster, grid, jobspec, open_service_at

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "policies" / "founding.yaml").read_text()
STATES = yaml.load((ROOT / "policies" / "founding-test.yaml").read_text(), yaml.CSafeLoader)["states"]


def serve(folder: Path, text: str) -> Api:
    path = folder / "config.yaml"
    path.write_text(text)
    settings = read_config(path)
    service = open_service_at(folder, Clock(), selector=settings.selector, selector_options=settings.selector_options)
    return Api(service)


def register(api: Api) -> list[Cluster]:
    return [api.register(name, grid(20, 2), state=state) for name, state in STATES.items()]


def submit(api: Api, clusters: list[Cluster], parameters: dict[str, Any], **more: Any) -> Any:
    spec = jobspec(2)
    spec["attributes"]["parameter"] = parameters
    return api.good("POST", "/v1/jobs", {"jobspec": spec, **more}, *(one.token for one in clusters))


def state(cluster: Cluster) -> Any:
    return cluster.api.good("GET", f"/v1/clusters/{cluster.name}/state", None, cluster.secret)


def test_founding_configuration_books_two_nodes_once_and_writes_nothing_into_states(tmp_path: Path) -> None:
    api = serve(tmp_path, TEXT)
    clusters = register(api)
    made = submit(api, clusters, {"seconds_per_gb": 2})
    assert made["decision"]["selection"]["reason"].startswith("priority 1: random of 3")
    for cluster in clusters:
        answer = state(cluster)
        taken = 2 if cluster.name == made["cluster"] else 0
        assert answer["state"] == STATES[cluster.name]
        assert answer["effective"] == {
            **STATES[cluster.name],
            "nodes_free": STATES[cluster.name]["nodes_free"] - taken,
        }


def test_founding_configuration_without_the_parameter_is_uninformed_and_first_takes_the_dearest(
    tmp_path: Path,
) -> None:
    api = serve(tmp_path, TEXT.replace("random", "first"))
    clusters = register(api)
    made = submit(api, clusters, {})
    assert made["cluster"] == "bravo"
    warnings = made["decision"]["selection"]["warnings"]
    assert any(warning.startswith("uninformed: not provided by the job or by any cluster: ") for warning in warnings)
    assert state(clusters[1])["effective"]["nodes_free"] == 2
    assert [state(cluster)["state"] for cluster in clusters] == list(STATES.values())


def test_founding_configuration_under_priority_1_and_2_with_first(tmp_path: Path) -> None:
    text = TEXT.replace("random", "first")
    first = serve(tmp_path, text)
    assert submit(first, register(first), {"seconds_per_gb": 2})["cluster"] == "bravo"
    (tmp_path / "two").mkdir()
    second = serve(tmp_path / "two", text.replace("nodes_free > 0", "nodes_free > 100", 1))
    made = submit(second, register(second), {"seconds_per_gb": 2})
    assert made["cluster"] == "alpha"
    assert made["decision"]["selection"]["ranks"] == {"alpha": 1, "bravo": 2, "carol": 3}
    dropped = made["decision"]["selection"]["steps"][0]["dropped"]
    assert dropped == {
        name: f"nodes_free > 100 is false: nodes_free is {free}"
        for name, free in (("alpha", 20), ("bravo", 4), ("carol", 7))
    }


def test_options_of_one_request_never_serve_another(tmp_path: Path) -> None:
    """Eight threads with options of their own beside the server's; then the server's still decide."""
    api = serve(tmp_path, TEXT.replace("random", "first"))
    clusters = [api.register(n, grid(20, 2), state={**s, "nodes_free": 1000}) for n, s in STATES.items()]
    expected = {"sort_ascending": "carol", "sort_descending": "bravo"}
    wrong: list[Any] = []

    def ask(direction: str | None) -> None:
        options = {"priorities": [{"priority": 1, "steps": [{direction: "cost_per_node_hour"}]}]}
        own = {"selector": {"name": "constraint", "options": options}} if direction else {}
        for _ in range(6):
            made = submit(api, clusters, {"seconds_per_gb": 2}, **own)
            if made["cluster"] != expected.get(direction or "", "bravo"):
                wrong.append((direction, made["cluster"]))

    before = api.service.settings
    directions = itertools.islice(itertools.cycle([None, "sort_ascending", "sort_descending", "sort_ascending"]), 8)
    threads = [threading.Thread(target=ask, args=(direction,)) for direction in directions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert api.service.settings is before
    assert submit(api, clusters, {"seconds_per_gb": 2})["cluster"] == "bravo"


@pytest.mark.parametrize("where", ["attributes", "task"])
def test_parameters_at_the_top_and_under_the_task_are_read(tmp_path: Path, where: str) -> None:
    api = serve(tmp_path, TEXT)
    clusters = register(api)
    spec = {
        "version": 1,
        "resources": [
            {
                "count": 2,
                "type": "node",
                "with": [{"count": 1, "label": "default", "type": "slot", "with": [{"count": 2, "type": "core"}]}],
            }
        ],
        "task": {"command": ["spack"], "slot": "default", "count": {"per_slot": 1}},
    }
    attributes = {"parameter": {"seconds_per_gb": 2}}
    if where == "attributes":
        spec["attributes"] = attributes
    else:
        spec["task"]["attributes"] = attributes  # type: ignore[index]  # as the founding text writes it
    made = api.good("POST", "/v1/jobs", {"jobspec": spec}, *(one.token for one in clusters))
    assert made["decision"]["selection"]["values"]["alpha"]["build_cost"] == pytest.approx(1 / 3, rel=1e-12)


def refused(api: Api, clusters: list[Cluster], options: dict[str, Any]) -> Any:
    body = {"jobspec": jobspec(), "selector": {"name": "constraint", "options": options}}
    return api.problem(409, "no-cluster-now", "POST", "/v1/jobs", body, *(one.token for one in clusters))


def test_state_that_is_too_old_bars_its_cluster_until_the_next_report(tmp_path: Path) -> None:
    clock = Clock()
    api = Api(open_service_at(tmp_path, clock))
    oak = api.register("oak", state={"cost": 1})
    options = {"priorities": [{"priority": 1, "steps": [{"filter": "state.age >= 0"}]}], "stale_after": 600}
    clock.now += 601
    drops = refused(api, [oak], options)["selection"]["drops"]
    assert drops == {"oak": "stale_after: cluster state is 601 s old; stale_after is 600 s"}
    api.good("PUT", "/v1/clusters/oak/state", {"cost": 1}, oak.secret)
    clock.now += 600
    submit(api, [oak], {}, selector={"name": "constraint", "options": options})


def test_what_matching_and_the_queue_say_can_be_read(tmp_path: Path) -> None:
    api = Api(open_service_at(tmp_path, Clock()))
    oak = api.register("oak", grid(4, 2))
    names = [f"matched.{name}" for name in ("nodes", "cores", "gpus", "memory", "fits")]
    names += [f"queue.{name}" for name in ("waiting_tasks", "running_tasks", "idle_workers")]
    options = {"priorities": [{"priority": 1, "steps": [{"calc": f"x{n}={name}"} for n, name in enumerate(names)]}]}
    selector = {"name": "constraint", "options": options}
    oak.say("heartbeat", running=[])
    submit(api, [oak], {}, selector=selector)
    oak.take()
    submit(api, [oak], {}, selector=selector)
    answer = submit(api, [oak], {}, selector=selector)["decision"]["selection"]["values"]["oak"]
    assert list(answer.values()) == [2, 2, 0, 0, 4, 1, 1, 2]


def test_cluster_that_matches_and_takes_none_now_is_told_from_one_that_never_can(tmp_path: Path) -> None:
    """409 with the step that dropped each, and 422 only where no cluster can ever run the job."""
    api = Api(open_service_at(tmp_path, Clock()))
    clusters = [api.register(name, grid(4, 2), state={"nodes_free": 0, "cost": 3}) for name in ("oak", "elm")]
    tokens = [one.token for one in clusters]
    priorities = [{"priority": 1, "steps": [{"filter": "cost < 3"}]}]
    selector = {"name": "constraint", "options": {"priorities": priorities}}
    api.good("PATCH", "/v1/clusters/oak/state", {"nodes_free": 4}, clusters[0].secret)
    answer = api.problem(
        409, "no-cluster-now", "POST", "/v1/jobs", {"jobspec": jobspec(), "selector": selector}, *tokens
    )
    assert answer["dropped"] == {
        "elm": "booking: job needs 1 node, but none is free (nodes_free)",
        "oak": "priority 1, filter: cost < 3 is false: cost is 3",
    }
    assert answer["detail"].startswith("2 clusters could run this job, none takes it now: elm: booking: ")
    api.problem(422, "unsatisfiable", "POST", "/v1/jobs", {"jobspec": jobspec(5), "selector": selector}, *tokens)
    assert api.good("GET", "/v1/jobs", None, *tokens)["jobs"] == []


def test_drained_cluster_that_matches_could_run_the_job_later(tmp_path: Path) -> None:
    api = Api(open_service_at(tmp_path, Clock()))
    oak, elm = api.register("oak", grid(4, 2)), api.register("elm", grid(1, 2))
    api.good("POST", "/v1/clusters/oak:drain", None, oak.secret)
    answer = api.problem(409, "no-cluster-now", "POST", "/v1/jobs", jobspec(3), oak.token, elm.token)
    assert answer["dropped"] == {"oak": "drained: it takes nothing new until it is reinstated"}
    api.problem(422, "unsatisfiable", "POST", "/v1/jobs", jobspec(5), oak.token, elm.token)
