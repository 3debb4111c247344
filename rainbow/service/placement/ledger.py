"""The ledger: every decision with its inputs, so that it can be replayed.

decision ─┬─ candidates, refusals, selection, seed    shown to all who may see the job; of many clusters the first
              └─ ledger    policy (selector, options), states, graphs (revisions): what the selection was given;
                           match, selection: both whole, where the answer is shortened

The job's parameters are in its jobspec. Each part of the ledger is JSON text, known by its SHA-256. Long ones are
kept once for all jobs that share them (store/jobs.py): the candidates of equal jobs are the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden
from rainbow.selection import Choice, Step, reads_states
from rainbow.selection.replay import Rules, read_recorded, redecide
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.placement.candidates import Part, revision_of
from rainbow.service.placement.match_cache import TOLD
from rainbow.store import jobs, pages
from rainbow.store.jobs import JobRecord
from rainbow.store.pages import Filter

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.service.placement.match_cache import Match


LEDGER = "ledger"
SHORT = 2_000  # characters of a part that is kept with its job


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


def told(choice: Choice, found: Match) -> dict[str, Any]:
    """Write a choice as a submit is answered: of many clusters only what it says of those listed."""
    whole = written(choice)
    if found.is_told:
        return whole
    names = [verdict.cluster for verdict in found.candidates[:TOLD]]
    if choice.cluster is not None and choice.cluster not in names:
        names.append(choice.cluster)
    steps = [_about(step, names) for step in whole["steps"]]
    return {**whole, "steps": steps, **{key: _of(names, whole[key]) for key in ("values", "ranks", "drops")}}


def _about(step: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    survivors = [name for name in step["survivors"] if name in names]
    return {**step, "survivors": survivors, **{key: _of(names, step[key]) for key in ("values", "dropped")}}


def _of(names: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def longer(choice: Choice, found: Match, selector: str) -> dict[str, Part]:
    """Return the complete match and choice for the decision log; empty if the response has them."""
    if found.is_told:
        return {}
    if not reads_states(selector):  # it has looked at no candidate either
        return {"match": found.named}
    return {"match": found.worked_out, "selection": Part.of(written(choice))}


def entry(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Return the log entry of a decision: the digest of each part, plus short parts inline."""
    texts = {name: part.text for name, part in parts.items() if len(part.text) <= SHORT}
    return {**texts, "digests": {name: part.digest for name, part in parts.items()}}


def long(parts: Mapping[str, Part]) -> dict[str, str]:
    """Return the other parts, by digest."""
    return {part.digest: part.text for part in parts.values() if len(part.text) > SHORT}


def _parts(connection: sa.Connection, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Read the parts of a ledger again."""
    elsewhere = {digest: name for name, digest in kept["digests"].items() if name not in kept}
    texts = {name: kept[name] for name in kept["digests"] if name in kept}
    texts |= {elsewhere[digest]: text for digest, text in jobs.get_records(connection, elsewhere).items()}
    return {name: json.loads(text) for name, text in texts.items()}


def whole(connection: sa.Connection, job_id: str) -> dict[str, Any]:
    """Return a decision with all its clusters and `given`, what it was given by part: empty if that was not kept."""
    decision = jobs.decision(connection, job_id)
    kept = decision.pop(LEDGER, None)
    given = _parts(connection, kept) if kept else {}
    decision |= {"selection": given.get("selection", decision.get("selection"))}
    for which, listed in given.get("match", {}).items():
        known = {one["cluster"]: one for one in decision[which]}
        decision[which] = [{**one, **known.get(one["cluster"], {})} for one in listed]
    decision.pop("more", None)
    if "again" in decision and "clusters" not in decision["again"]:
        names = [one["cluster"] for one in decision["candidates"]]
        decision["again"] = {"clusters": names, **decision["again"]}
    return {**decision, "given": given, "digests": kept["digests"] if kept else {}}


def shown(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision without its ledger: the states of clusters are theirs."""
    return {key: value for key, value in decision.items() if key != LEDGER}


def replay(service: Service, connection: sa.Connection, record: JobRecord) -> dict[str, Any]:
    """Take a job's decision again from what was kept; say whether the same comes of it."""
    decision = whole(connection, record.id)
    if not decision["given"]:
        raise Conflict(f"job {record.id} cannot be replayed: it was placed before decision inputs were recorded")
    listed = _listed(connection, record, decision)
    rules = Rules(listed["selector"]["name"], listed["selector"]["options"])
    again = written(redecide(read_recorded(listed), rules))
    return {
        "id": record.id,
        "cluster": record.cluster,
        "equal": again == decision["selection"],
        "selection": decision["selection"],
        "replayed": again,
        "digests": decision["digests"],
        "graphs_changed_since": _changed(service, decision),
    }


def _changed(service: Service, decision: Mapping[str, Any]) -> list[str]:
    """Name the candidates whose graphs are no longer those that were matched."""
    then = decision["given"]["graphs"]
    now = {name: revision_of(entry) for name, entry in service.catalogue.items()}
    names = [one["cluster"] for one in decision["candidates"]]
    return [name for name in names if name in then and now.get(name) != then[name]]


def listing(service: Service, who: Caller, chosen: Filter) -> tuple[list[dict[str, Any]], str | None]:
    """List what recorded decisions were given, the newest first, and the job to continue from."""
    if not who.admin:
        raise Forbidden("recorded decisions need the admin token")
    with service.store.read() as connection:
        placed = pages.listing(connection, chosen)
        found = [(record, whole(connection, record.id)) for record in placed]
        listed = [_listed(connection, record, decision) for record, decision in found if decision["given"]]
    return listed, placed[-1].id if len(placed) == chosen.limit else None


def _listed(connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any]) -> dict[str, Any]:
    selector, options = decision["given"]["policy"]
    names = {one["cluster"] for one in decision["candidates"]} - set(decision.get("unattended", ()))
    return {
        "id": record.id,
        "submitted_at": record.submitted_at,
        "cluster": record.cluster,
        "candidates": [one for one in decision["candidates"] if one["cluster"] in names],
        "parameters": _plain(reading(connection, record.id).request.parameters),
        "states": {name: state for name, state in decision["given"]["states"].items() if name in names},
        "seed": decision["seed"],
        "selector": {"name": selector, "options": options},
    }


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
