"""What the text of rainbow's algorithms states, at a server that selects as its sample configuration says."""

from __future__ import annotations

from typing import Any

import networkx
import pytest
import yaml

from rainbow.client import Client
from tests.conftest import REGISTRATION
from tests.support.founding.door import Door, grid, machines

CONFIG = """
scheduler:
    secret: chocolate-cookies
    name: keebler
    algorithms:
        selection:
            name: constraint
            options:
                priorities: |
                  - priority: 1
                    steps:
                    - filter: "nodes_free > 0"
                    - calc: "build_cost=(cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60)"
                    - sort_descending: build_cost
                    - select: random
                  - priority: 2
                    steps:
                    - filter: "nodes_free > 0"
                    - calc: "memory_min=min(100, memory_per_node - 100)"
                    - calc: "build_cost=(cost_per_node_hour * (memory_min * seconds_per_gb)/60/60)"
                    - sort_descending: build_cost
                    - select: random
"""
LITERAL = """
version: 1
resources:
- count: 2
  type: node
  with:
  - count: 1
    label: default
    type: slot
    with:
    - count: 2
      type: core
task:
  command:
  - ior
  slot: default
  count:
    per_slot: 1
"""
SHM = "  resources:\n    io:\n      match:\n      - type: shm\n"
SPACK1 = {
    "basename": "package",
    "exclusive": True,
    "id": 1,
    "name": "package0",
    "paths": {"containment": "/spack0/package0"},
    "size": 1,
    "type": "package",
    "uniq_id": 1,
    "version": "0.5.2",
}


def literal(extra: str = "", **changes: Any) -> dict[str, Any]:
    """Return the text's jobspec, with more under `task` and other values at its top."""
    return {**yaml.safe_load(LITERAL + extra), **changes}


def needs(subsystem: str, algorithm: str, *entries: dict[str, Any], nodes: int = 1) -> dict[str, Any]:
    """Return the text's jobspec of so many nodes with needs of a subsystem."""
    spec = literal()
    spec["resources"][0]["count"] = nodes
    spec["task"]["resources"] = {subsystem: {algorithm: list(entries)}}
    return spec


def subsystem(
    root: str, below: dict[str, tuple[str, dict[str, Any]]], links: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return a subsystem's graph: {vertex: (its parent, metadata)} and what it hangs on."""
    nodes = {root: {"metadata": {"type": "cluster", "name": root}}}
    nodes |= {name: {"metadata": data} for name, (_, data) in below.items()}
    edges = [{"source": parent, "target": name, "relation": "contains"} for name, (parent, _) in below.items()]
    edges += [{"source": vertex, "target": name, "relation": "contains"} for vertex, name in links]
    return {"graph": {"nodes": nodes, "edges": edges}}


def put(door: Door, place: Any, name: str, graph: dict[str, Any]) -> dict[str, Any]:
    """Register a subsystem."""
    return door.ask("PUT", f"/v1/clusters/{place.name}/subsystems/{name}", graph, place.secret)


def fits(answer: dict[str, Any]) -> Any:
    """Return how often the one cluster fits, or why it does not."""
    if answer["status"] != 200:
        return {key: answer.get(key) for key in ("status", "detail", "pointer", "line")}
    if answer["candidates"]:
        return answer["candidates"][0]["fits"]
    return {key: answer["refusals"][0].get(key) for key in ("reason", "text")}


def without_library(door: Door, token: str) -> dict[str, Any]:
    """Ask for the backend fluxion where its library is nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAINBOW_FLUXION", raising=False)
        return door.match(LITERAL, token, backend="fluxion")


def matching(door: Door) -> dict[str, Any]:
    """A cluster of four nodes of two cores, two of which have shared memory."""
    place = door.register("finder", grid(4, 2))
    below = {"shm0": ("io0", {"type": "shm"}), "fs0": ("io0", {"type": "fs"}), "shm1": ("fs0", {"type": "shm"})}
    put(door, place, "io", subsystem("io0", below, [("n0", "shm0"), ("n1", "fs0")]))
    plain = door.match(LITERAL, place.token)
    five, gpus = literal(), literal()
    five["resources"][0]["count"] = 5
    gpus["resources"][0]["with"][0]["with"] = [{"type": "gpu", "count": 1}]
    nope = literal()
    nope["task"]["slot"] = "nope"
    cores = {"resources": [{"type": "core", "count": 3}], "task": {"command": ["x"]}}
    nodes_in_slot = literal()
    nodes_in_slot["resources"] = [
        {"type": "slot", "count": 2, "label": "default", "with": [{"type": "node", "count": 2}]}
    ]
    return {
        "registered": place.told,
        "default": fits(plain),
        "networkx": fits(door.match(LITERAL, place.token, backend="networkx")),
        "fluxion_without_its_library": without_library(door, place.token),
        "unknown_backend": door.match(LITERAL, place.token, backend="neo4j"),
        "five_nodes": fits(door.match(five, place.token)),
        "gpus": fits(door.match(gpus, place.token)),
        "nope": fits(door.match(yaml.safe_dump(nope), place.token)),
        "nope_in_yaml": door.ask("POST", "/v1/match", yaml.safe_dump({"jobspec": nope}), place.token),
        "slot_of_nodes": fits(door.match(nodes_in_slot, place.token)),
        "cores": fits(door.match(cores, place.token)),
        "shm": fits(door.match(literal(SHM), place.token)),
        "shm_by_field": fits(
            door.match(needs("io", "match", {"field": "type", "value": "shm"}, nodes=2), place.token)
        ),
        "shm_on_three": fits(door.match(needs("io", "match", {"type": "shm"}, nodes=3), place.token)),
        "shm_on_two": fits(door.match(needs("io", "match", {"type": "shm"}, nodes=2), place.token)),
        "no_subsystem": fits(door.match(needs("power", "match", {"type": "shm"}), place.token)),
        "unknown_algorithm": door.match(needs("io", "matsch", {"type": "shm"}), place.token),
        "explained": door.match(literal(), place.token, explain=True),
        "version": {str(v): door.match(literal(version=v), place.token).get("warnings") for v in (0, 1, 9)},
    }


def versions(door: Door) -> dict[str, Any]:
    """Six clusters, each with one version of a package; the literal of the text is one of them."""
    ranges = {
        "both": {"min": "0.5.1", "max": "0.5.5"},
        "least": {"min": "0.5.3"},
        "most": {"max": "0.5.2"},
        "short": {"max": "0.5"},
    }
    there = ["0.5.0", "0.5.1", "0.5.2", "0.5.5", "0.5.6", "0.5.10", "0.5.2-rc1", "not-a-version"]
    tokens = {}
    for version in there:
        place = door.register(f"spack-{version.replace('.', '-')}", grid(1, 2))
        data = {**SPACK1, "version": version, "flavour": "2.1.0"}
        put(door, place, "spack", subsystem("spack0", {"spack1": ("spack0", data)}, [("n0", "spack1")]))
        tokens[version] = place.token
    results: dict[str, Any] = {}
    for name, bounds in ranges.items():
        spec = needs("spack", "range", {"field": "version", **bounds})
        results[name] = [version for version in there if fits(door.match(spec, tokens[version])) == 1]
    plain = needs("spack", "range", {"field": "version", "min": "0.1"})
    other = needs("spack", "range", {"field": "flavour", "min": "2.0", "max": "2.2"})
    open_range = needs("spack", "range", {"field": "version"})
    return {
        "in": results,
        "no_version": fits(door.match(plain, tokens["not-a-version"])),
        "other_field": fits(door.match(other, tokens["0.5.0"])),
        "without_both": door.match(open_range, tokens["0.5.0"]),
    }


def nested(door: Door) -> dict[str, Any]:
    """Software two levels below what hangs on a node, and edges of a third subsystem."""
    place = door.register("nested", grid(2, 2))
    below = {
        "software": ("sw0", {"type": "software"}),
        "compilers": ("software", {"type": "group"}),
        "gcc": ("compilers", {"type": "gcc"}),
    }
    below["other"] = ("sw0", {"type": "other"})
    graph = subsystem("sw0", below, [("n0", "software"), ("n1", "other")])
    graph["graph"]["edges"].append({"source": "n0", "target": "other", "subsystem": "third"})
    registered = put(door, place, "software", graph)
    return {
        "registered": registered["status"],
        "gcc": fits(door.match(needs("software", "match", {"type": "gcc"}), place.token)),
        "third": fits(door.match(needs("software", "match", {"type": "other"}, nodes=2), place.token)),
        "no_lookahead": fits(door.match(needs("software", "match", {"type": "clang"}), place.token)),
    }


def job(seconds: Any = 2) -> dict[str, Any]:
    """Return the text's jobspec of spack with its attributes under `task`."""
    spec = literal()
    spec["task"]["command"] = ["spack"]
    if seconds is not None:
        spec["task"]["attributes"] = {"parameter": {"seconds_per_gb": seconds}}
    return spec


def constraint(door: Door) -> dict[str, Any]:
    """Two clusters with the text's state and its configuration, until no node is free."""
    places = {name: door.register(name, grid(20, 2)) for name in ("dear", "cheap")}
    literal_state = '{\n    "cost_per_node_hour": 3,\n    "nodes_free": 20,\n    "memory_per_node": 200\n}'
    stated = door.ask("PATCH", "/v1/clusters/dear/state", literal_state, places["dear"].secret)
    cheap = {"cost_per_node_hour": 2, "nodes_free": 20, "node_memory_gb": 200}
    door.good("PATCH", "/v1/clusters/cheap/state", cheap, places["cheap"].secret)
    tokens = [place.token for place in places.values()]
    unheard = door.ask("POST", "/v1/jobs", {"jobspec": job(None)}, *tokens)
    first = door.ask("POST", "/v1/jobs", {"jobspec": job()}, *tokens)
    placed = [unheard["cluster"], first["cluster"]]
    while (answer := door.ask("POST", "/v1/jobs", {"jobspec": job()}, *tokens))["status"] < 300:
        placed.append(answer["cluster"])
    states = {name: door.good("GET", f"/v1/clusters/{name}/state", None, p.secret) for name, p in places.items()}
    replay = door.ask("GET", f"/v1/jobs/{first['id']}/replay", None, tokens[placed[1] == "cheap"])
    return {
        "stated": stated["status"],
        "uninformed": unheard,
        "first": first,
        "decision": door.good("GET", f"/v1/jobs/{first['id']}/why", None, *tokens),
        "placed": {name: placed.count(name) for name in places},
        "order": placed,
        "refused": answer,
        "states": states,
        "replay": replay,
        "random": door.ask("POST", "/v1/jobs", {"jobspec": job(), "selector": {"name": "random"}}, *tokens),
    }


def selection(door: Door) -> dict[str, Any]:
    """Selectors of one request: what each of the steps does."""
    costs = {"one": 5, "two": 3, "three": 9}
    places = {name: door.register(name, grid(4, 2)) for name in costs}
    for name, cost in costs.items():
        state = {"cost_per_node_hour": cost, "nodes_free": 4, "memory_per_node": 150}
        door.good("PATCH", f"/v1/clusters/{name}/state", state, places[name].secret)
    tokens = [place.token for place in places.values()]

    def chosen(*steps: Any, more: list[Any] | None = None) -> Any:
        priorities = [{"priority": 1, "steps": list(steps)}, *(more or ())]
        body = {"jobspec": job(), "selector": {"name": "constraint", "options": {"priorities": priorities}}}
        answer = door.ask("POST", "/v1/jobs", body, *tokens)
        if answer["status"] < 300:
            door.ask("DELETE", f"/v1/jobs/{answer['id']}", None, *tokens)
        return answer

    def name_of(*steps: Any, more: list[Any] | None = None) -> Any:
        return chosen(*steps, more=more).get("cluster")

    second = [{"priority": 2, "steps": [{"sort_ascending": "cost_per_node_hour"}, {"select": "first"}]}]
    by_cost: dict[str, str] = {"sort_ascending": "cost_per_node_hour"}
    precedence = {"calc": "x = 1 + 2 * cost_per_node_hour / 60 / 60 * 60 * 60 - 1"}
    return {
        "ascending_first": name_of(by_cost, {"select": "first"}),
        "ascending_last": name_of(by_cost, {"select": "last"}),
        "descending_first": name_of({"sort_descending": "cost_per_node_hour"}, {"select": "first"}),
        "random": name_of({"select": "random"}) in costs,
        "filter": name_of({"filter": "cost_per_node_hour < 4"}, {"select": "random"}),
        "none_left": name_of({"filter": "cost_per_node_hour < 1"}, {"select": "first"}, more=second),
        "precedence": chosen(precedence, {"sort_ascending": "x"}, {"select": "first"}),
        "minimum": chosen(
            {"calc": "memory_min=min(100, memory_per_node - 100)"},
            {"sort_ascending": "memory_min"},
            {"select": "first"},
        ),
        "matched": chosen(
            {"calc": "n = matched.nodes + matched.cores"}, {"sort_ascending": "n"}, {"select": "first"}
        ),
        "line": chosen({"calc": "runtime = seconds_per_gb * memory_per_node + 7"}, by_cost, {"select": "first"}),
    }


def secrets(door: Door) -> dict[str, Any]:
    """Registration by the secret that the configuration names."""
    body = {"name": "stranger", "graph": machines({"n0": 1})}
    graph = networkx.DiGraph(name="drawn")
    graph.add_node("drawn0", type="cluster")
    graph.add_node("node0", type="node")
    graph.add_node("core0", type="core", size=4)
    graph.add_edge("drawn0", "node0")
    graph.add_edge("node0", "core0")
    with Client(f"http://127.0.0.1:{door.port}", REGISTRATION) as client:
        drawn = client.register_cluster("drawn", graph)
    return {
        "networkx": drawn["totals"],
        "wrong": door.ask("POST", "/v1/clusters", body, "rbr_wrong")["status"],
        "ready": door.ask("GET", "/readyz"),
    }


SCENARIOS = (matching, versions, nested, constraint, selection, secrets)
