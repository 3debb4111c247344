"""A cluster's policy, settings and workers, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, PolicyError, RequestError
from rainbow.matching import worker_capacity
from rainbow.regex import RegexError
from rainbow.scheduling import DEFAULT_POLICY, Keeps, diagram, gantt, policies
from rainbow.scheduling.overlaps import overlaps
from rainbow.scheduling.policy import Order
from rainbow.service.access import Caller, own_cluster
from rainbow.service.agents.presence import missed_beats
from rainbow.service.audit import note
from rainbow.service.steps.loop import step_safely
from rainbow.service.steps.stepping import plan_only
from rainbow.service.submits.admission import check_limits
from rainbow.store import agents, changes, clusters, jobs, reservations, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord


PARTS = {"policy", "settings", "limits"}


def show(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show a cluster's policy, settings, limits, figures of the moment, and the fault of its last step, if any."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        told = _told(connection, record)
    fault = service.faults.get(record.id)
    try:
        decided = plan_only(service, record)
    except PolicyError as unusable:  # stored by a version that took what this one refuses
        decided, fault = None, fault or str(unusable)
    return {**told, "figures": dict(decided[1].figures) if decided else {}, "fault": fault}


def put(service: Service, who: Caller, name: str, body: Mapping[str, Any], *, merge: bool = False) -> dict[str, Any]:
    """Set a cluster's policy, settings and limits, or (merge) some of them; effective at the next step.

    What is given replaces what was set; merged, key by key, and null brings a default back.
    """
    _check_parts(body)
    with service.store.write() as connection:
        record = own_cluster(connection, who, name)
        policy = _policy(body.get("policy", record.policy))
        kept = record.settings if merge and policy == record.policy else {}
        settings = _checked(policy, {**kept, **_mapping(body.get("settings", {}), "settings")}, merge)
        begin = asdict(service.settings.admission) if policy == DEFAULT_POLICY else {}
        limits = _limits(record.limits, begin, body, merge)
        after = replace(record, policy=policy, settings=settings, limits=limits)
        note(connection, who, record.id, service.clock(), _parts(record), _parts(after))
        clusters.set_policy(connection, record.id, policy, settings)
        if policy != record.policy:
            _check_kept(connection, record, policy, service.clock())
            tasks.let_go(connection, record.id)
        clusters.set_limits(connection, record.id, after.limits)
        told = _told(connection, after)
    service.tell(record.id)
    return told


def _check_kept(connection: sa.Connection, record: ClusterRecord, policy: str, now: float) -> None:
    """Refuse a policy that would not keep the space that users have reserved."""
    kept = reservations.of_cluster(connection, record.id, now)
    if kept and not isinstance(policies.get(policy), Keeps):
        raise Conflict(f"policy {policy} keeps no reservations; there are {len(kept)}: delete them, or wait")


def _told(connection: sa.Connection, record: ClusterRecord) -> dict[str, Any]:
    """Return what is set, and whom several classes claim."""
    settings, limits = _parts(record)["settings"], _parts(record)["limits"]
    requestors = jobs.live_by_requestor(connection, record.id)
    try:
        claimed = list(overlaps(settings["requestors"], requestors)) if record.policy == "load_based" else []
    except RegexError:  # stored by a version that took what this one refuses; the fault says so
        claimed = []
    return {"policy": record.policy, "settings": settings, "limits": limits, "warnings": claimed}


def _parts(record: ClusterRecord) -> dict[str, dict[str, Any]]:
    """Return what is set with every default filled in; settings that cannot be used any more as they are stored."""
    try:
        settings = dict(policies.get(record.policy).check(record.settings))
    except PolicyError:
        settings = dict(record.settings)
    return {"policy": {"policy": record.policy}, "settings": settings, "limits": check_limits(record.limits)}


def changed(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List the last changes of a cluster's policy, settings and limits, the newest first."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        found = changes.listing(connection, record.id, service.settings.limits.listed)
    return [
        {"changed_at": one.at, "who": one.who, "what": one.what, "from": one.before, "to": one.after} for one in found
    ]


def _check_parts(body: Mapping[str, Any]) -> None:
    for key in body:
        if key not in PARTS:
            raise RequestError(f"{key[:40]!r} is none of: {', '.join(sorted(PARTS))}", pointer=f"/{key}")


def _policy(name: Any) -> str:
    if not isinstance(name, str) or name not in policies.names():
        raise PolicyError(f"there is no such policy; there are: {', '.join(policies.names())}", pointer="/policy")
    return name


def _mapping(given: Any, part: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise PolicyError(f"{part} is a mapping", pointer=f"/{part}")
    return given


def _checked(policy: str, settings: Mapping[str, Any], merge: bool) -> dict[str, Any]:
    given = {key: value for key, value in settings.items() if not (merge and value is None)}
    try:
        return dict(policies.get(policy).check(given))
    except PolicyError as fault:
        fault.pointer = "/settings" + (fault.pointer or "")
        raise


def _limits(
    kept: Mapping[str, int], begin: Mapping[str, int], body: Mapping[str, Any], merge: bool
) -> dict[str, int]:
    """Return the limits as they are to be; what is not given, or null, is as it is in the beginning."""
    given = _mapping(body.get("limits", {} if merge else kept), "limits")
    whole = {**kept, **given} if merge else given
    return check_limits({**begin, **{key: value for key, value in whole.items() if not (merge and value is None)}})


def step_now(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Take one step by hand; say whether anything was ordered, and why it failed if it did."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    ordered = step_safely(service, name)
    return {"ordered": ordered, "fault": service.faults.get(record.id)}


def plan(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Say what the next step would do."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, record)
    if decided is None:
        return {"orders": [], "waits": [], "figures": {}}
    made = decided[1]
    orders = [{"order": type(order).__name__.lower(), **_fields(order)} for order in made.orders]
    return {"orders": orders, "waits": [asdict(wait) for wait in made.waits], "figures": dict(made.figures)}


def _fields(order: Order) -> dict[str, Any]:
    """Return an order's fields; an end that never comes is null, as JSON has no other word for it."""
    return {key: None if value == inf else value for key, value in asdict(order).items()}


def timeline(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show the resource diagram after the next step: lines with their steps, as text, and as an SVG."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, record)
    if decided is None:
        return {"lines": [], "text": "", "svg": ""}
    made = diagram(*decided)
    lines = [
        {
            "worker": worker,
            "type": kind,
            "capacity": made.capacity.get(worker, {}).get(kind, 0),
            "steps": [[time if time < inf else None, level] for time, level in line],
        }
        for (worker, kind), line in made.entries()
    ]
    return {"lines": lines, "text": made.text(decided[0].now), "svg": gantt.draw(made, decided[0].now)}


def workers_of(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List a cluster's workers in natural order: state, since when, heartbeats missed in a row, capacity."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        states = workers.of_cluster(connection, record.id)
        missed = missed_beats(service, record.id, agents.of_cluster(connection, record.id), states)
    capacity = worker_capacity(service.entry(record).cluster)
    return [
        {
            "name": worker,
            "state": states[worker].state,
            "since": states[worker].since,
            "missed": missed[worker],
            "capacity": capacity[worker],
        }
        for worker in capacity
        if worker in states
    ]
