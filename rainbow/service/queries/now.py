"""Why a job does not start now, and what would start it: read from the plan in force, found by planning.

Other clusters are planned with the job in its place there, on request of a reader of this one job. Those are looked
at that match, that its submit allowed and that the reader may use, where it is expected to start first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.errors import TryLater
from rainbow.plugins import PluginFault, UnknownPlugin
from rainbow.scheduling.sooner import Change, Sooner, offered
from rainbow.service.core.counters import count
from rainbow.service.jobs.expectation import expectation
from rainbow.service.jobs.jobspecs import reading_of
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.placement.facts import facts_for
from rainbow.service.placement.failover import by_hand, is_movable
from rainbow.service.scheduler.changes import starts_at
from rainbow.service.scheduler.plan_in_force import KEPT, PlansInForce
from rainbow.service.scheduler.reasons import ITS_OWN
from rainbow.service.scheduler.view import take_snapshot
from rainbow.state_machine import JobState

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord

WAITED = 0.2  # seconds for a cluster that is being scheduled
CLUSTERS = 3  # others that are planned for one answer
FAULTS = (PluginFault, UnknownPlugin, ArithmeticError, LookupError, TypeError, ValueError)  # of anybody's policy
NOTHING = Sooner((), 0, complete=False)
KEYS = {"limit": "seconds", "nodes": "nodes", "slots": "slots", "without": "without", "cluster": "cluster"}


def now_document(
    service: Service, who: Caller, record: JobRecord, wait: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return what the plan in force says of a waiting job and what starts it now; None if no plan speaks of it.

    `wait` is its reason, as `reason_of` gives it to the same reader.
    """
    if record.state is not JobState.WAITING or wait is None or wait["plan"] is None:
        return None
    free, result = _tried(service, record, wait["plan"])
    eta = expectation(service, who, record, wait) or {}
    earned = bool(eta.get("earned"))
    elsewhere = _elsewhere(service, who, record) if wait["reason"] not in ITS_OWN else []
    return {
        **{key: wait[key] for key in ("plan", "at", "reason", "text")},
        "ahead": wait["facts"].get("ahead"),
        "free": free,
        "kept": [_block(row) for row in wait["facts"]["kept"]] if wait["reason"] == KEPT else [],
        "changes": [change_document(one) for one in offered([*result.changes, *elsewhere])],
        "searched": {"plans": result.plans, "complete": result.complete},
        "start": {
            "expected": eta["start"] if earned else None,
            **{key: eta.get(key) for key in ("low", "high")},
            "earned": earned,
            "text": eta.get("text", ""),
        },
    }


def _tried(service: Service, record: JobRecord, plan: int) -> tuple[dict[str, int], Sooner]:
    """Return what is free by type, and what starts a job by the plan of this number; nothing if another one holds."""
    entry = service.catalogue.get(record.cluster)
    if entry is None or entry.id != record.cluster_id:
        return {}, NOTHING
    try:
        with mirrored(service, entry, WAITED) as mirror:
            known = service.state(PlansInForce).get(entry.id)
            if known is None or known.number != plan or not known.is_of(mirror):
                return {}, NOTHING
            free = {kind: amount for kind, amount in sorted(mirror.census.free.items()) if amount > 0}
            try:
                return free, known.sooner(record.id)
            except FAULTS:
                count("rainbow_step_faults", record.cluster)
                known.changes[record.id] = NOTHING
                return free, NOTHING
    except TryLater:
        return {}, NOTHING


def _elsewhere(service: Service, who: Caller, record: JobRecord) -> list[Change]:
    """Return the first other cluster where a job of which nothing has begun starts as it is."""
    with service.store.read() as connection:
        if not is_movable(connection, record):
            return []
        others, read = by_hand(service, connection, record, {}), reading_of(connection, record)
        going = others.going(record)
        seen = {name for name in going.ids.values() if who.submits_to(service.catalogue[name].id, record.requestor)}
        going = replace(going, ids={key: name for key, name in going.ids.items() if name in seen})
        if not going.ids:
            return []
        made = facts_for(service, connection, going.arrival(record), going, forecast=True).forecast
        start = made.starts if made else {}
        nearest = sorted(seen, key=lambda name: (start.get(name, inf), name))[:CLUSTERS]
        allowed = [name for name in nearest if others.look(record, {name}, going)]
    for name in allowed:
        try:
            with mirrored(service, service.catalogue[name], WAITED) as mirror:
                there = take_snapshot(service, mirror)
                if there is not None and starts_at(there, record.moved(there.record.id, name, record.nodes), read):
                    update = ("rainbow", "job", "update", record.id, "--cluster", name)
                    return [Change("cluster", name, f"on cluster {name}", update)]
        except (TryLater, *FAULTS):
            count("rainbow_step_faults", name)
    return []


def _block(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block of space that is kept; a job that its reader may not see has no name."""
    job = {key: row.get(key) for key in ("job", "name", "user")} if row.get("job") else {"job": None}
    return {"for": job, **{key: row.get(key) for key in ("amounts", "workers", "until")}}


def change_document(change: Change) -> dict[str, Any]:
    """Return a change that starts a job, with the command that makes it."""
    to = {"to": change.command[-1]} if change.kind == "limit" else {}
    answer = {"change": change.kind, KEYS[change.kind]: change.value, **to}
    return {**answer, "text": change.text, "command": [*change.command]}
