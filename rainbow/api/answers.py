"""What the API answers, for its document: the keys one may rely on. More may come."""

from __future__ import annotations

from typing import Any

WORD = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}
YES = {"type": "boolean"}
TIME = {"type": "string", "format": "date-time"}
ANY_OBJECT: dict[str, Any] = {"type": "object"}


def _of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _maybe(of: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [of, {"type": "null"}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


TOTALS = {"type": "object", "additionalProperties": NUMBER}
REFERENCE = _of(id=WORD, attempt=WHOLE)
JOB = {
    "id": WORD,
    "name": WORD,
    "requestor": WORD,
    "cluster": WORD,
    "state": WORD,
    "nodes": NUMBER,
    "submitted_at": TIME,
    "canceled_at": _maybe(TIME),
    "ended_at": _maybe(TIME),
    "wait": _maybe(ANY_OBJECT),
    "basis": WORD,
    "tag": WORD,
}
TASK = _of(id=WORD, name=WORD, state=WORD, attempt=WHOLE, placement=ANY_OBJECT, exit_code=_maybe(WHOLE), output=WORD)
CLUSTER = {"name": WORD, "revision": WHOLE, "levels": WORD, "totals": TOTALS, "workers": WHOLE}
STANDING = {"state": {"enum": ["up", "drained", "deleting", "unattended"]}, "ready": WHOLE}
TOKEN = {
    "id": WORD,
    "kind": WORD,
    "name": _maybe(WORD),
    "clusters": _list(WORD),
    "requestors": _maybe(_list(WORD)),
    "created_at": TIME,
    "expires_at": _maybe(TIME),
    "revoked_at": _maybe(TIME),
}
SCHEDULING = {"policy": WORD, "settings": ANY_OBJECT, "limits": ANY_OBJECT, "warnings": _list(WORD)}
OFFER = _of(id=WORD, attempt=WHOLE, job=WORD, name=WORD, command=_list(WORD), duration=NUMBER, placement=ANY_OBJECT)

ANSWERS: dict[str, dict[str, Any]] = {
    "Registered": _of(name=WORD, token=WORD, secret=WORD, revision=WHOLE, totals=TOTALS),
    "Cluster": _of(**CLUSTER, **STANDING),
    "ClusterShown": _of(**CLUSTER, **STANDING, policy=WORD, created_at=TIME, draining=YES, drained_at=_maybe(TIME)),
    "Clusters": _of(clusters=_list(_ref("Cluster"))),
    "Changed": _of(name=WORD, revision=WHOLE),
    "StateShown": _of(state=ANY_OBJECT, effective=ANY_OBJECT, reported_at=_maybe(TIME)),
    "Worker": _of(name=WORD, state=WORD, since=TIME),
    "Workers": _of(workers=_list(_ref("Worker"))),
    "Scheduling": _of(**SCHEDULING),
    "SchedulingShown": _of(**SCHEDULING, figures=ANY_OBJECT, fault=_maybe(WORD)),
    "Changes": _of(changes=_list(_of(changed_at=TIME, who=WORD, what=WORD))),
    "Timeline": _of(lines=_list(ANY_OBJECT), text=WORD, svg=WORD),
    "Stepped": _of(ordered=YES, fault=_maybe(WORD)),
    "Plan": _of(orders=_list(ANY_OBJECT), waits=_list(ANY_OBJECT), figures=ANY_OBJECT),
    "Received": _of(tasks=_list(OFFER), stop=_list(REFERENCE), lease=NUMBER, grace=NUMBER),
    "Accepted": _of(accepted=_list(WORD), refused=_list(_of(id=WORD, reason=WORD))),
    "Recorded": _of(recorded=_list(WORD), stale=_list(WORD)),
    "Beat": _of(stop=_list(REFERENCE), stale=_list(WORD), lease=NUMBER, grace=NUMBER),
    "Placed": _of(id=WORD, cluster=WORD, state=WORD, decision=ANY_OBJECT),
    "Answers": _of(answers=_list(_of(status=WHOLE)), assign=ANY_OBJECT),
    "Match": _of(
        candidates=_list(_of(cluster=WORD, fits=NUMBER, totals=ANY_OBJECT)),
        refusals=_list(_of(cluster=WORD, reason=WORD)),
        undecided=_list(_of(cluster=WORD, reason=WORD)),
        warnings=_list(WORD),
    ),
    "Job": _of(**JOB),
    "JobShown": _of(**JOB, tasks=_list(TASK)),
    "Jobs": _of(jobs=_list(_ref("Job")), next=_maybe(WORD)),
    "Why": _of(id=WORD, cluster=WORD, state=WORD, decision=ANY_OBJECT, wait=_maybe(ANY_OBJECT)),
    "Replay": _of(id=WORD, cluster=WORD, equal=YES, selection=ANY_OBJECT, replayed=ANY_OBJECT),
    "Decisions": _of(decisions=_list(_of(id=WORD, submitted_at=TIME)), next=_maybe(WORD)),
    "TokenShown": _of(**TOKEN),
    "Tokens": _of(tokens=_list(_ref("TokenShown"))),
    "Minted": _of(**TOKEN, token=WORD),
    "Rotated": {**_of(**TOKEN), "anyOf": [_of(token=WORD), _of(secret=WORD)]},
    "Health": _of(status=WORD),
    "Answer": {"type": "object"},
}
BY_ENDPOINT = {
    "clusters.register": "Registered",
    "clusters.listing": "Clusters",
    "clusters.show": "ClusterShown",
    "clusters.graph": "Graph",
    "clusters.put_graph": "Changed",
    "clusters.patch_graph": "Changed",
    "clusters.subsystem": "Graph",
    "clusters.put_subsystem": "Changed",
    "clusters.state": "StateShown",
    "clusters.put_state": "State",
    "clusters.workers": "Workers",
    "clusters.move_worker": "Worker",
    "clusters.scheduler": "SchedulingShown",
    "clusters.put_scheduler": "Scheduling",
    "clusters.scheduler_changes": "Changes",
    "clusters.timeline": "Timeline",
    "clusters.step": "Stepped",
    "clusters.plan": "Plan",
    "agents.receive": "Received",
    "agents.accept": "Accepted",
    "agents.events": "Recorded",
    "agents.heartbeat": "Beat",
    "jobs.submit": "Placed",
    "batch.submit": "Answers",
    "jobs.match": "Match",
    "jobs.listing": "Jobs",
    "jobs.show": "JobShown",
    "jobs.cancel": "JobShown",
    "jobs.why": "Why",
    "jobs.replay": "Replay",
    "jobs.decisions": "Decisions",
    "tokens.mint": "Minted",
    "tokens.listing": "Tokens",
    "tokens.rotate": "Rotated",
    "health.live": "Health",
    "health.ready": "Health",
}
