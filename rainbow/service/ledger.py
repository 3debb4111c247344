"""The decision ledger: with every placement what the selection was given, so that it can be taken again.

    decision ─┬─ candidates, selection, seed    shown to whoever may see the job
              └─ ledger                         policy (selector, options), states, revisions of the graphs; digests

The job's parameters are in its jobspec. Each part of the ledger is kept as JSON text, written once, and its digest is
the SHA-256 of that text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden
from rainbow.selection import Choice, Step
from rainbow.selection.redeciding import Recorded, Rules, read_recorded, redecide
from rainbow.service.jobspecs import reading
from rainbow.store import jobs
from rainbow.store.jobs import Filter, JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.access import Caller
    from rainbow.service.service import Service

LEDGER = "ledger"


def written(choice: Choice) -> dict[str, Any]:
    """Write a choice as JSON, with every candidate's rank and the step that dropped it."""
    return {
        "cluster": choice.cluster,
        "selector": choice.selector,
        "steps": [_step(step) for step in choice.steps],
        "reason": choice.reason,
        "warnings": [*choice.warnings],
        "values": choice.values,
        "ranks": choice.ranks,
        "drops": choice.drops,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "priority": step.priority,
        "step": step.step,
        "argument": step.argument,
        "survivors": [*step.survivors],
        "values": {**step.values},
        "dropped": {**step.dropped},
        "note": step.note,
    }


def entry(
    service: Service, selector: str, options: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what is kept of what a selection was given."""
    parts = {"policy": [selector, options], "states": states, "graphs": _revisions(service, states)}
    texts = {name: json.dumps(part, default=str) for name, part in parts.items()}
    return {**texts, "digests": {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}}


def _revisions(service: Service, names: Iterable[str]) -> dict[str, str]:
    """Return {cluster: its id and revision}: one that was registered again is another."""
    entries = service.catalogue
    return {name: f"{entries[name].id}/{entries[name].revision}" for name in names if name in entries}


def shown(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision without its ledger: the states of clusters are theirs."""
    return {key: value for key, value in decision.items() if key != LEDGER}


def replay(service: Service, connection: sa.Connection, record: JobRecord) -> dict[str, Any]:
    """Take a job's decision again from what was kept; say whether the same comes of it."""
    decision = jobs.decision(connection, record.id)
    kept = decision.get(LEDGER)
    if kept is None:
        raise Conflict(f"job {record.id} was placed before what a decision is given was kept")
    again = written(redecide(*_recorded(connection, record, decision)))
    then = json.loads(kept["graphs"])
    now = _revisions(service, then)
    changed = [name for name, revision in then.items() if now.get(name) != revision]
    return {
        "id": record.id,
        "cluster": record.cluster,
        "equal": again == decision["selection"],
        "selection": decision["selection"],
        "replayed": again,
        "digests": kept["digests"],
        "graphs_changed_since": changed,
    }


def listing(service: Service, who: Caller, chosen: Filter) -> tuple[list[dict[str, Any]], str | None]:
    """List what recorded decisions were given, the newest first, and the job to go on from."""
    if not who.admin:
        raise Forbidden("recorded decisions need the admin token")
    with service.store.read() as connection:
        records = jobs.listing(connection, chosen)
        found = [(record, jobs.decision(connection, record.id)) for record in records]
        listed = [_listed(connection, record, decision) for record, decision in found if LEDGER in decision]
    return listed, records[-1].id if len(records) == chosen.limit else None


def _listed(connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any]) -> dict[str, Any]:
    kept = decision[LEDGER]
    selector, options = json.loads(kept["policy"])
    return {
        "id": record.id,
        "submitted_at": record.submitted_at,
        "cluster": record.cluster,
        "candidates": decision["candidates"],
        "parameters": _plain(reading(connection, record.id).request.parameters),
        "states": json.loads(kept["states"]),
        "seed": decision["seed"],
        "selector": {"name": selector, "options": options},
    }


def _recorded(connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any]) -> tuple[Recorded, Rules]:
    listed = _listed(connection, record, decision)
    return read_recorded(listed), Rules(listed["selector"]["name"], listed["selector"]["options"])


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
