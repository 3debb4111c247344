"""The decision ledger: with every placement what the selection was given, so that it can be taken again.

    decision ─┬─ candidates, selection, seed    shown to whoever may see the job
              └─ ledger                         selector, options, states, revisions of the graphs; digests

The job's parameters are in its jobspec. Digests are SHA-256 of canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden
from rainbow.selection import Choice
from rainbow.selection.redeciding import Policy, Recorded, read_recorded, redecide
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
    found = {**asdict(choice), "values": choice.values, "ranks": choice.ranks, "drops": choice.drops}
    found["steps"] = [{**step, "values": dict(step["values"])} for step in found["steps"]]
    return _plain(found)  # type: ignore[no-any-return]


def entry(
    service: Service, selector: str, options: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what is kept of what a selection was given."""
    revisions = {name: service.catalogue[name].revision for name in states if name in service.catalogue}
    kept = {"selector": selector, "options": _plain(options), "states": _plain(states), "revisions": revisions}
    digests = {"states": _digest(states), "policy": _digest([selector, options]), "graphs": _digest(revisions)}
    return {**kept, "digests": digests}


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
    seen = {name: entry.revision for name, entry in service.catalogue.items()}
    changed = [name for name, revision in kept["revisions"].items() if seen.get(name) != revision]
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
    return {
        "id": record.id,
        "submitted_at": record.submitted_at,
        "cluster": record.cluster,
        "candidates": decision["candidates"],
        "parameters": _plain(reading(connection, record.id).request.parameters),
        "states": kept["states"],
        "seed": decision["seed"],
        "selector": {"name": kept["selector"], "options": kept["options"]},
    }


def _recorded(connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any]) -> tuple[Recorded, Policy]:
    kept = decision[LEDGER]
    return read_recorded(_listed(connection, record, decision)), Policy(kept["selector"], kept["options"])


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
