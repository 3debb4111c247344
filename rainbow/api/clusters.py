"""/v1/clusters: graphs, subsystems, states, workers, policy."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from rainbow.api.asking import flag, read_json, read_mapping, read_state, service, who
from rainbow.api.times import timed
from rainbow.service.clusters import draining, graphs, operating, policy, registering, showing

clusters = Blueprint("clusters", __name__, url_prefix="/v1/clusters")


@clusters.post("")
def register() -> Any:
    """Register a cluster; its token and secret are told once."""
    asking = who()
    return jsonify(registering.register(service(), asking, read_mapping("Registration", graph=True))), 201


@clusters.get("")
def listing() -> Any:
    """List the clusters these credentials may see."""
    return jsonify(clusters=showing.listing(service(), who()))


@clusters.get("/<id:name>")
def show(name: str) -> Any:
    """Show one cluster."""
    return jsonify(timed(showing.show(service(), who(), name)))


@clusters.delete("/<id:name>")
def delete(name: str) -> Any:
    """Forget a cluster: 204; with drain=true and jobs that still run: 202, and it goes when they have ended."""
    left = draining.delete(service(), who(), name, drain=flag("drain"))
    return (jsonify(left), 202) if left else ("", 204)


@clusters.get("/<name>/graph")
def graph(name: str) -> Any:
    """Return the graph as it was given."""
    document, revision = graphs.graph(service(), who(), name)
    return _tagged(jsonify(document), revision)


@clusters.put("/<name>/graph")
def put_graph(name: str) -> Any:
    """Replace the graph; If-Match names the revision it must have."""
    asking = who()
    body = read_json(graph=True)
    answer = graphs.put_graph(service(), asking, name, body, _expected(), drain=flag("drain"))
    return _tagged(jsonify(answer), answer["revision"])


@clusters.patch("/<name>/graph")
def patch_graph(name: str) -> Any:
    """Change the graph by {"changes": [...]}: all of them or none."""
    asking = who()
    body = read_mapping("Delta", graph=True)
    answer = graphs.patch_graph(service(), asking, name, body, _expected(), drain=flag("drain"))
    return _tagged(jsonify(answer), answer["revision"])


def _expected() -> set[str] | None:
    return None if "*" in request.if_match or not request.if_match else request.if_match.as_set()


def _tagged(answer: Response, revision: int) -> Response:
    answer.set_etag(str(revision))
    return answer


@clusters.put("/<name>/subsystems/<subsystem>")
def put_subsystem(name: str, subsystem: str) -> Any:
    """Hang a subsystem on the cluster."""
    asking = who()
    return jsonify(graphs.put_subsystem(service(), asking, name, subsystem, read_json(graph=True)))


@clusters.get("/<name>/subsystems/<subsystem>")
def subsystem(name: str, subsystem: str) -> Any:
    """Return a subsystem's graph as it was given."""
    return jsonify(graphs.subsystem(service(), who(), name, subsystem))


@clusters.delete("/<name>/subsystems/<subsystem>")
def delete_subsystem(name: str, subsystem: str) -> Any:
    """Take a subsystem away."""
    graphs.delete_subsystem(service(), who(), name, subsystem)
    return "", 204


@clusters.route("/<name>/state", methods=["PUT", "PATCH"])
def put_state(name: str) -> Any:
    """Store the state: all of it (PUT) or some of it (PATCH)."""
    asking = who()
    return jsonify(registering.put_state(service(), asking, name, read_state(), merge=request.method == "PATCH"))


@clusters.get("/<name>/state")
def state(name: str) -> Any:
    """Show the state as reported and as booked."""
    told = registering.state(service(), who(), name)
    # a state's own variables are never taken for times, whatever they are called
    return jsonify({**told, **timed({"reported_at": told["reported_at"]})})


@clusters.get("/<name>/workers")
def workers(name: str) -> Any:
    """List workers and their states."""
    return jsonify(workers=timed(policy.workers_of(service(), who(), name)))


@clusters.post("/<name>/workers/<path:worker>:offline", defaults={"verb": "offline"})
@clusters.post("/<name>/workers/<path:worker>:drain", defaults={"verb": "drain"})
@clusters.post("/<name>/workers/<path:worker>:reinstate", defaults={"verb": "reinstate"})
def move_worker(name: str, worker: str, verb: str) -> Any:
    """Take a worker away, let it end what it has, or bring it back."""
    return jsonify(timed(operating.move(service(), who(), name, worker, verb)))


@clusters.post("/<id:name>:drain", defaults={"verb": "drain"})
@clusters.post("/<id:name>:reinstate", defaults={"verb": "reinstate"})
def move_cluster(name: str, verb: str) -> Any:
    """Let a cluster take nothing new, or take tasks again."""
    return jsonify(timed(operating.move_cluster(service(), who(), name, verb)))


@clusters.get("/<name>/scheduler")
def scheduler(name: str) -> Any:
    """Show the policy, its settings and figures."""
    return jsonify(policy.show(service(), who(), name))


@clusters.route("/<name>/scheduler", methods=["PUT", "PATCH"])
def put_scheduler(name: str) -> Any:
    """Set the policy, its settings and the limits: all of what is given (PUT) or key by key (PATCH)."""
    asking = who()
    body = read_mapping("Policy")
    return jsonify(policy.put(service(), asking, name, body, merge=request.method == "PATCH"))


@clusters.get("/<name>/scheduler/changes")
def scheduler_changes(name: str) -> Any:
    """List who changed the policy, its settings or the limits, when, from what, to what."""
    found = policy.changed(service(), who(), name)
    # what was set is never taken for times, whatever it is called
    return jsonify(changes=[{**one, **timed({"changed_at": one["changed_at"]})} for one in found])


@clusters.get("/<name>/timeline")
def timeline(name: str) -> Any:
    """Show the resource diagram after the next step."""
    return jsonify(policy.timeline(service(), who(), name))


@clusters.post("/<name>/step")
def step(name: str) -> Any:
    """Take one step now."""
    return jsonify(policy.step_now(service(), who(), name))


@clusters.post("/<name>/plan")
def plan(name: str) -> Any:
    """Say what the next step would do, without doing it."""
    return jsonify(policy.plan(service(), who(), name))
