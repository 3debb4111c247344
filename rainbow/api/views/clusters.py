"""/v1/clusters: graphs, subsystems, states, workers, policy, reservations, and the agent's verbs."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Blueprint, Response, jsonify, request

from rainbow.api.pauses import park, waited
from rainbow.api.wire import (
    count_in_query,
    flag,
    number_of,
    once,
    read_json,
    read_mapping,
    read_state,
    service,
    timed,
    who,
)
from rainbow.errors import RequestError
from rainbow.service import reservations as service_reservations
from rainbow.service.agents import protocol
from rainbow.service.clusters import drain, graphs, inventory, registration, scheduling_settings
from rainbow.service.core.access import Caller
from rainbow.service.core.keyed_call import KeyedCall
from rainbow.service.queries import fleet, forecasts, monitoring, occupancy
from rainbow.text import LATEST, rfc3339

nodes = Blueprint("nodes", __name__, url_prefix="/v1")


@nodes.get("/nodes")
def listing_nodes() -> Any:
    """Count the workers of every visible cluster by state.

    States are idle, mixed, allocated, draining, drained, offline, lost, quarantined and unattended. Each row has
    `nodes`, `names` (a hostlist of the first 1,000), and the `free` and `total` amounts with `units`.
    """
    return jsonify(nodes=inventory.nodes(service(), who()))


@nodes.get("/summary")
def summary() -> Any:
    """Count the workers and jobs of all clusters; name those that need their operator first, and why."""
    top = count_in_query("top", 40, forecasts.MOST_JOBS, least=0)
    return jsonify(fleet.written(fleet.summary(service(), who(), top)))


@nodes.get("/series")
def series() -> Any:
    """Return waiting and running jobs, nodes in use and jobs started, every two minutes of the last 24 hours.

    Of one `cluster`, or of all together; null where nothing is known. A server keeps them in memory.
    """
    result = fleet.series(service(), who(), request.args.get("cluster"))
    return jsonify({**result, "from": rfc3339(result["from"])})


agents = Blueprint("agents", __name__, url_prefix="/v1/clusters/<name>")


@agents.post("/receive")
def receive(name: str) -> Any:
    """Offer tasks to an agent; wait for some if there are none."""
    asking, body, agent = _message("Receive")
    limits = service().settings.limits
    most = int(number_of(body, "max", 16, limits.offers))
    seconds = number_of(body, "wait", 0, limits.wait)
    before = waited()
    if before is None:
        return jsonify(protocol.receive(service(), asking, name, agent, most, seconds))
    result, pause, cluster_id = protocol.look(service(), asking, name, agent, most, seconds - before)
    park(pause, (cluster_id, agent))
    return jsonify(result)


@agents.post("/accept")
def accept(name: str) -> Any:
    """Assign offered tasks to the agent."""
    asking, body, agent = _message("Accept")
    return jsonify(protocol.accept(service(), asking, name, agent, body["tasks"], body.get("seq", 0)))


@agents.post("/events")
def events(name: str) -> Any:
    """Record events of tasks."""
    asking, body, agent = _message("Events")
    return jsonify(protocol.record_events(service(), asking, name, agent, body["events"], body.get("seq", 0)))


@agents.post("/heartbeat")
def heartbeat(name: str) -> Any:
    """Renew the agent's lease."""
    asking, body, agent = _message("Heartbeat")
    keeps = body.get("on_lost_server") == "keep"
    up, running, seq = body.get("workers"), body.get("running", []), body.get("seq", 0)
    return jsonify(
        protocol.heartbeat(
            service(),
            asking,
            name,
            agent,
            up,
            running,
            seq,
            body.get("load"),
            keeps=keeps,
            checks=bool(body.get("checks")),
        )
    )


def _message(form: str) -> tuple[Any, dict[str, Any], str]:
    asking = who()
    body = read_mapping(form)
    return asking, body, body["agent"]


clusters = Blueprint("clusters", __name__, url_prefix="/v1/clusters")


@clusters.post("")
def register() -> Any:
    """Register a cluster; its token and secret are shown once.

    Needs the registration secret.
    """
    return once(partial(registration.register, service()), 201, partial(read_mapping, "Registration", graph=True))


@clusters.get("")
def listing() -> Any:
    """List the clusters that the caller may see.

    `state` is up, drained, deleting (the cluster goes when its last job ends) or unattended (no agent serves its
    workers). `totals` are in the base units that `units` names.
    """
    return jsonify(clusters=inventory.listing(service(), who()))


@clusters.get("/<id:name>")
def show(name: str) -> Any:
    """Show one cluster with its policy.

    `drained_at` is null while the cluster takes jobs; `draining` is true while it is being deleted.
    """
    return jsonify(timed(inventory.show(service(), who(), name)))


@clusters.delete("/<id:name>")
def delete(name: str) -> Any:
    """Delete a cluster; its waiting jobs move to other clusters.

    409 while jobs are active, unless `drain=true`: then waiting jobs that fit nowhere else are rejected, and the
    cluster is deleted (202) when its running tasks have ended.
    """

    def delete_once(asking: Caller, _: None, call: KeyedCall) -> dict[str, Any]:
        return drain.delete(service(), asking, name, call, drain=flag("drain")) or {"deleted": name}

    answer, _ = once(delete_once)
    if "deleted" not in answer.get_json():
        return answer, 202
    answer.set_data(b"")
    del answer.headers["Content-Type"]
    return answer, 204


@clusters.get("/<name>/graph")
def graph(name: str) -> Any:
    """Return the graph as it was given."""
    document, revision = graphs.graph(service(), who(), name)
    return _tagged(jsonify(document), revision)


@clusters.put("/<name>/graph")
def put_graph(name: str) -> Any:
    """Replace the graph; `If-Match` names the revision it must have (412).

    409 if the new graph lacks a worker in use, unless `drain=true`: then the tasks there end.
    """
    asking = who()
    body = read_json(graph=True)
    answer = graphs.put_graph(service(), asking, name, body, _expected(), drain=flag("drain"))
    return _tagged(jsonify(answer), answer["revision"])


@clusters.patch("/<name>/graph")
def patch_graph(name: str) -> Any:
    """Change the graph by {"changes": [...]}: all of them or none."""

    def patch(asking: Caller, options: Any, call: KeyedCall) -> dict[str, Any]:
        return graphs.patch_graph(service(), asking, name, options, _expected(), call, drain=flag("drain"))

    answer, _ = once(patch, read=partial(read_mapping, "Delta", graph=True))
    return _tagged(answer, answer.get_json()["revision"])


def _expected() -> set[str] | None:
    return None if "*" in request.if_match or not request.if_match else request.if_match.as_set()


def _tagged(answer: Response, revision: int) -> Response:
    answer.set_etag(str(revision))
    return answer


@clusters.put("/<name>/subsystems/<subsystem>")
def put_subsystem(name: str, subsystem: str) -> Any:
    """Attach a subsystem, in place of one with the same name."""
    asking = who()
    return jsonify(graphs.put_subsystem(service(), asking, name, subsystem, read_json(graph=True)))


@clusters.get("/<name>/subsystems/<subsystem>")
def subsystem(name: str, subsystem: str) -> Any:
    """Return a subsystem's graph as it was given."""
    return jsonify(graphs.subsystem(service(), who(), name, subsystem))


@clusters.delete("/<name>/subsystems/<subsystem>")
def delete_subsystem(name: str, subsystem: str) -> Any:
    """Detach a subsystem; requirements on it no longer match."""
    graphs.delete_subsystem(service(), who(), name, subsystem)
    return "", 204


@clusters.route("/<name>/state", methods=["PUT", "PATCH"])
def put_state(name: str) -> Any:
    """Report the state, a flat mapping in JSON or YAML: all of it (PUT) or some of it (PATCH; null removes)."""
    asking = who()
    return jsonify(registration.put_state(service(), asking, name, read_state(), merge=request.method == "PATCH"))


@clusters.get("/<name>/state")
def state(name: str) -> Any:
    """Show the state as reported, and less the bookings."""
    answer = registration.state(service(), who(), name)
    # a state's own variables are never taken for times, whatever they are called
    return jsonify({**answer, **timed({"reported_at": answer["reported_at"]})})


@clusters.get("/<name>/workers")
def workers(name: str) -> Any:
    """List workers with states, capacities and missed heartbeats.

    `missed` is null where no agent has ever served the worker.
    """
    return jsonify(workers=timed(inventory.workers_of(service(), who(), name)))


@clusters.post("/<name>/workers/<path:worker>:offline", defaults={"verb": "offline"})
@clusters.post("/<name>/workers/<path:worker>:drain", defaults={"verb": "drain"})
@clusters.post("/<name>/workers/<path:worker>:reinstate", defaults={"verb": "reinstate"})
def move_worker(name: str, worker: str, verb: str) -> Any:
    """Take a worker offline, drain it, or reinstate it.

    Running tasks continue. 409 on reinstating a worker that is in service.
    """
    return jsonify(timed(drain.move(service(), who(), name, worker, verb)))


@clusters.post("/<id:name>:drain", defaults={"verb": "drain"})
@clusters.post("/<id:name>:reinstate", defaults={"verb": "reinstate"})
def move_cluster(name: str, verb: str) -> Any:
    """Drain a cluster, or reinstate it.

    A drained cluster starts nothing; running tasks continue, waiting jobs move to other clusters.
    """
    return jsonify(timed(drain.move_cluster(service(), who(), name, verb)))


@clusters.get("/<name>/scheduler")
def scheduler(name: str) -> Any:
    """Show the policy, its settings, limits, figures and warnings, and the error of the last cycle."""
    return jsonify(monitoring.show(service(), who(), name))


@clusters.route("/<name>/scheduler", methods=["PUT", "PATCH"])
def put_scheduler(name: str) -> Any:
    """Set policy, settings and limits: as a whole (PUT) or key by key (PATCH).

    Takes effect at the next scheduling cycle. PUT returns settings that are not given to their defaults, except
    `unit` of load_based; in a PATCH `null` returns a key to its default.
    """
    asking = who()
    body = read_mapping("Policy")
    return jsonify(scheduling_settings.put(service(), asking, name, body, merge=request.method == "PATCH"))


@clusters.get("/<name>/scheduler/changes")
def scheduler_changes(name: str) -> Any:
    """List the changes of policy, settings and limits, the newest first."""
    result = scheduling_settings.changed(service(), who(), name)
    # what was set is never taken for times, whatever it is called
    return jsonify(changes=[{**one, **timed({"changed_at": one["changed_at"]})} for one in result])


@clusters.get("/<name>/timeline")
def timeline(name: str) -> Any:
    """Show the resource diagram after the next scheduling cycle.

    `lines` have `worker`, `type`, `capacity` and `steps`; a time of null never comes.
    """
    return jsonify(monitoring.timeline(service(), who(), name))


@clusters.get("/<name>/occupancy")
def occupancies(name: str) -> Any:
    """Say how full each worker is, those of one kind together, as one letter each.

    `levels` has a letter for each worker of `names`, in order: 0 (idle) to 9 and A (full) in tenths, upwards;
    N: no agent yet, L: lost, O: offline, Q: quarantined, D: draining. `taken`: whether it holds any task.
    """
    answer = occupancy.occupancy(service(), who(), name)
    return jsonify({**answer, "at": rfc3339(answer["at"])})


@clusters.get("/<name>/workers/<worker:worker>")
def worker(name: str, worker: str) -> Any:
    """Show one worker, and the tasks that hold some of it; `hidden`: those of jobs that the caller does not see."""
    return jsonify(timed(occupancy.worker(service(), who(), name, worker)))


@clusters.get("/<name>/bars")
def bars(name: str) -> Any:
    """Return past, running and planned tasks in a window of time, as columns: a bar for each task and worker.

    Times are seconds since 1970. `kind`: 0 completed, 1 failed, 2 it still runs. By default an hour back and ahead.
    """
    now = service().clock()
    begin, end = (_second(key, default) for key, default in (("from", now - 3600), ("to", now + 3600)))
    limit = _second("limit", 10_000)
    if not 1 <= limit <= occupancy.MOST_BARS:
        raise RequestError(f"limit must be between 1 and {occupancy.MOST_BARS}", pointer="/limit")
    return jsonify(occupancy.bars(service(), who(), name, begin, end, int(limit)))


def _second(key: str, default: float) -> float:
    try:
        value = float(request.args.get(key, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < LATEST:
        raise RequestError(f"{key} must be a number of seconds since 1970", pointer=f"/{key}")
    return value


@clusters.get("/<name>/forecast")
def forecast(name: str) -> Any:
    """Show when each job is expected to start and end.

    `age`, `cut` (why plans end where they do: all, plans, seconds, horizon, stuck), `fault` (why there is none),
    `jobs` (`start`, `end`, `low`, `high`, `how`, `text`), and `room`, what is left free.
    """
    asking, limit = who(), count_in_query("limit", 100, forecasts.MOST_JOBS)
    return jsonify(forecasts.of_cluster(service(), asking, name, limit, request.args.get("after")))


@clusters.get("/<name>/forecast/accuracy")
def accuracy(name: str) -> Any:
    """Compare past forecasts with the actual starts: `count`, `bias`, `factor_2`, `covered`."""
    return jsonify(forecasts.accuracy(service(), who(), name))


@clusters.post("/<name>/step")
def step(name: str) -> Any:
    """Run one scheduling cycle now."""
    return jsonify(monitoring.step_now(service(), who(), name))


@clusters.post("/<name>/plan")
def plan(name: str) -> Any:
    """Return the plan of the next scheduling cycle, without carrying it out.

    A body supposes other things: `jobs` ({jobspec, requestor, priority, count}, at most 1,000; they are called
    supposed-1, ...), `settings` (merged; null: the default) and `workers` ({name: READY, OFFLINE, LOST or DRAINING}).
    """
    asking, is_given = who(), request.content_length or "Transfer-Encoding" in request.headers
    options = read_mapping("Supposition") if is_given else None
    return jsonify(monitoring.plan(service(), asking, name, options))


reservations = Blueprint("reservations", __name__, url_prefix="/v1/clusters/<name>/reservations")


@reservations.post("")
def create(name: str) -> Any:
    """Reserve resources in advance, or workers for maintenance.

    `start` may be left out: as soon as there is room. 422 lists every worker's reason if there is no room. With
    `workers` (a list or a hostlist) in place of `jobspec` nothing starts there that would still run then; needs the
    cluster's secret. `must_end` lists tasks to end before, `promised` the jobs whose promised starts break,
    `reservations` those that lose workers. With `at_begin` (`requeue` or `cancel`) the server ends what still runs
    on these workers then; without it, tasks run on. With `preview=true` nothing is made.
    """
    preview = flag("preview")

    def create(asking: Caller, options: Any, call: KeyedCall) -> dict[str, Any]:
        return service_reservations.create(service(), asking, name, options, call, preview=preview)

    return once(create, 200 if preview else 201, partial(read_mapping, "Reservation"))


@reservations.get("", endpoint="listing")
def list_reservations(name: str) -> Any:
    """List the reservations of a cluster that the caller may see, by start.

    `over=true` includes those that have ended.
    """
    return jsonify(reservations=service_reservations.listing(service(), who(), name, every=flag("over")))


@reservations.get("/<reservation_id>", endpoint="show")
def show_reservation(name: str, reservation_id: str) -> Any:
    """Show a reservation; to its owners with the jobs that are in its way now."""
    return jsonify(service_reservations.show(service(), who(), name, reservation_id))


@reservations.delete("/<reservation_id>", endpoint="delete")
def delete_reservation(name: str, reservation_id: str) -> Any:
    """End a reservation now, with the jobs that name it."""
    service_reservations.delete(service(), who(), name, reservation_id)
    return "", 204
