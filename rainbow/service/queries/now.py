"""Why a job does not start now, and what would start it: read from the plan in force, found by planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import TryLater
from rainbow.plugins import PluginFault, UnknownPlugin
from rainbow.scheduling.sooner import Sooner
from rainbow.service.core.counters import count
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.scheduler.plan_in_force import KEPT, PlansInForce
from rainbow.state_machine import JobState

if TYPE_CHECKING:
    from rainbow.scheduling.sooner import Change
    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord

WAITED = 0.2  # seconds for a cluster that is being scheduled
NOTHING = Sooner((), 0, complete=False)
KEYS = {"limit": "seconds", "nodes": "nodes", "slots": "slots", "without": "without", "cluster": "cluster"}


def now_document(service: Service, record: JobRecord, wait: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what the plan in force says of a waiting job and what starts it now; None if no plan speaks of it.

    `wait` is its reason, as `reason_of` gives it to the same reader.
    """
    if record.state is not JobState.WAITING or wait is None or wait["plan"] is None:
        return None
    free, found = _tried(service, record, wait["plan"])
    return {
        **{key: wait[key] for key in ("plan", "at", "reason", "text")},
        "ahead": wait["facts"].get("ahead"),
        "free": free,
        "kept": [_block(row) for row in wait["facts"]["kept"]] if wait["reason"] == KEPT else [],
        "changes": [change_document(one) for one in found.changes],
        "searched": {"plans": found.plans, "complete": found.complete},
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
            except (PluginFault, UnknownPlugin, ArithmeticError, LookupError, TypeError, ValueError):
                count("rainbow_step_faults", record.cluster)
                known.changes[record.id] = NOTHING
                return free, NOTHING
    except TryLater:
        return {}, NOTHING


def _block(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block of space that is kept; a job that its reader may not see has no name."""
    job = {key: row.get(key) for key in ("job", "name", "user")} if row.get("job") else {"job": None}
    return {"for": job, **{key: row.get(key) for key in ("amounts", "workers", "until")}}


def change_document(change: Change) -> dict[str, Any]:
    """Return a change that starts a job, with the command that makes it."""
    to = {"to": change.command[-1]} if change.kind == "limit" else {}
    told = {"change": change.kind, KEYS[change.kind]: change.value, **to}
    return {**told, "text": change.text, "command": [*change.command]}
