"""JSON Schemas of requests and answers, with examples.

They validate the requests, and the OpenAPI document is made from them. Graphs, jobspecs, states and policies are any
JSON here: the part that reads them reports their faults with code and pointer.
"""

from __future__ import annotations

from typing import Any

from rainbow.accounts.budget import GUARANTEED, LIMITS, LOWEST, PERIODS, REFUSE
from rainbow.accounts.usage import COST
from rainbow.errors import NONE, UNKNOWN
from rainbow.service.clusters.registration import VARIABLE

WORD = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}
YES = {"type": "boolean"}
TIME = {"type": "string", "format": "date-time"}
ANY_OBJECT: dict[str, Any] = {"type": "object"}


def _of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _array(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _maybe(of: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [of, {"type": "null"}]}


def ref(name: str) -> dict[str, str]:
    """Refer to a schema of the document by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


TOTALS, UNITS = ({"type": "object", "additionalProperties": kind} for kind in (NUMBER, WORD))
REFERENCE = _of(id=WORD, attempt=WHOLE)
JOB: dict[str, Any] = {"id": WORD, "name": WORD, "requestor": WORD, "state": WORD, "basis": WORD, "tag": WORD}
JOB |= {"cluster": _maybe(WORD), "nodes": NUMBER, "submitted_at": TIME, "wait": _maybe(ANY_OBJECT)}
JOB |= {key: _maybe(TIME) for key in ("canceled_at", "ended_at")}
WAIT = {"wait": _maybe(ANY_OBJECT), "now": _maybe(ANY_OBJECT)}
TASK = _of(id=WORD, name=WORD, state=WORD, attempt=WHOLE, placement=ANY_OBJECT, exit_code=_maybe(WHOLE), output=WORD)
TASK["properties"] |= {"errors": WORD}
CLUSTER = {"name": WORD, "revision": WHOLE, "levels": WORD, "totals": TOTALS, "units": UNITS, "workers": WHOLE}
STANDING = {"state": {"enum": ["up", "drained", "deleting", "unattended"]}, "ready": WHOLE}
BAND = {"start": _maybe(TIME), "end": _maybe(TIME), "low": _maybe(TIME), "high": _maybe(TIME)}
TURNED_OUT = _of(count=WHOLE, bias=_maybe(NUMBER), factor_2=_maybe(NUMBER), covered=_maybe(NUMBER))
TOKEN = {"id": WORD, "kind": WORD, "name": _maybe(WORD), "clusters": _array(WORD), "created_at": TIME}
TOKEN |= {"requestors": _maybe(_array(WORD)), "accounts": _maybe(_array(WORD))}
TOKEN |= {"expires_at": _maybe(TIME), "revoked_at": _maybe(TIME)}
ACCOUNT = {
    "name": WORD,
    "parent": WORD,
    "shares": _maybe(WHOLE),
    "share": NUMBER,
    "used": NUMBER,
    "used_hours": NUMBER,
}
ACCOUNT |= {"factor": NUMBER, "limits": ANY_OBJECT, "budget": _maybe(ANY_OBJECT)}
ACCOUNT |= {"users": _array(_of(user=WORD, factor=NUMBER))}
SCHEDULING = {
    "policy": WORD,
    "settings": ANY_OBJECT,
    "limits": ANY_OBJECT,
    "warnings": _array(WORD),
    "visibility": WORD,
}
HELD = {"placement": ANY_OBJECT, "units": ANY_OBJECT}
OFFER = _of(id=WORD, attempt=WHOLE, job=WORD, name=WORD, command=_array(WORD), duration=NUMBER, **HELD)
# binding: where cores and GPUs are located; request: under the policy delegate
OFFER["properties"] |= {"output": WHOLE, "files": ANY_OBJECT, "binding": ANY_OBJECT, "request": ANY_OBJECT}

ANSWERS: dict[str, dict[str, Any]] = {
    "Registered": _of(name=WORD, token=WORD, secret=WORD, revision=WHOLE, totals=TOTALS, units=UNITS),
    "Cluster": _of(**CLUSTER, **STANDING),
    "ClusterShown": _of(**CLUSTER, **STANDING, policy=WORD, created_at=TIME, draining=YES, drained_at=_maybe(TIME)),
    "Clusters": _of(clusters=_array(ref("Cluster"))),
    "Changed": _of(name=WORD, revision=WHOLE),
    "StateShown": _of(state=ANY_OBJECT, effective=ANY_OBJECT, reported_at=_maybe(TIME)),
    "Worker": _of(name=WORD, state=WORD, since=TIME),
    "Nodes": _of(nodes=_array(_of(cluster=WORD, state=WORD, nodes=WHOLE, names=WORD, free=TOTALS, total=TOTALS))),
    "Workers": _of(workers=_array(ref("Worker"))),
    "Scheduling": _of(**SCHEDULING),
    "SchedulingShown": _of(**SCHEDULING, figures=ANY_OBJECT, fault=_maybe(WORD)),
    "Changes": _of(changes=_array(_of(changed_at=TIME, who=WORD, what=WORD))),
    "Timeline": _of(lines=_array(ANY_OBJECT), text=WORD, svg=WORD),
    "Forecast": _of(
        cluster=WORD,
        at=_maybe(TIME),
        age=_maybe(NUMBER),
        reached=_maybe(TIME),
        cut=_maybe(WORD),
        fault=_maybe(WORD),
        room=_maybe(ANY_OBJECT),
        jobs=_array(_of(id=WORD, how=WORD, **BAND)),
        next=_maybe(WORD),
    ),
    "Accuracy": _of(cluster=WORD, starts=TURNED_OUT, lengths=TURNED_OUT),
    "Eta": _of(
        id=WORD, cluster=_maybe(WORD), state=WORD, how=WORD, text=WORD, at=_maybe(TIME), age=_maybe(NUMBER), **BAND
    ),
    "Etas": _of(
        candidates=_array(_of(cluster=WORD, known=YES, wait=_maybe(NUMBER), finish=_maybe(TIME), text=WORD)),
        refusals=_array(_of(cluster=WORD, reason=WORD)),
        cover=NUMBER,
    ),
    "Stepped": _of(ordered=YES, fault=_maybe(WORD)),
    "Plan": _of(orders=_array(ANY_OBJECT), waits=_array(ANY_OBJECT), figures=ANY_OBJECT),
    "Received": _of(tasks=_array(OFFER), stop=_array(REFERENCE), lease=NUMBER, grace=NUMBER),
    "Accepted": _of(accepted=_array(WORD), refused=_array(_of(id=WORD, reason=WORD))),
    "Recorded": _of(recorded=_array(WORD), stale=_array(WORD)),
    "Beat": _of(stop=_array(REFERENCE), stale=_array(WORD), lease=NUMBER, grace=NUMBER),
    "Placed": _of(id=WORD, number=WHOLE, cluster=_maybe(WORD), state=WORD, decision=ANY_OBJECT),
    "SlurmAnswer": _of(
        out=WORD, err=WORD, exit=WHOLE, read=_maybe(WORD), again=_maybe(NUMBER), waits_for=_maybe(WORD)
    ),
    "Answers": _of(answers=_array(_of(status=WHOLE)), assign=ANY_OBJECT),
    "Match": _of(
        candidates=_array(_of(cluster=WORD, fits=NUMBER, totals=ANY_OBJECT)),
        refusals=_array(_of(cluster=WORD, reason=WORD)),
        undecided=_array(_of(cluster=WORD, reason=WORD)),
        warnings=_array(WORD),
    ),
    "Job": _of(**JOB),
    "JobShown": _of(**JOB, counts=ANY_OBJECT, tasks=_array(TASK), next=_maybe(WHOLE), definition=ANY_OBJECT),
    "Jobs": _of(jobs=_array(ref("Job")), next=_maybe(WORD)),
    "Found": _of(jobs=_array(_of(id=WORD, name=WORD, state=WORD, element=_maybe(WHOLE)))),
    "ChangedMany": _of(done=WHOLE, refused=_array(_of(job=WORD, code=WORD, text=WORD))),
    "Why": _of(id=WORD, cluster=_maybe(WORD), state=WORD, answer=WORD, decision=ANY_OBJECT, **WAIT),
    "Certificate": _of(version={"const": 1}, graph=_maybe({"type": "integer"})),
    "Replay": _of(id=WORD, cluster=WORD, equal=YES, selection=ANY_OBJECT, replayed=ANY_OBJECT),
    "Decisions": _of(decisions=_array(_of(id=WORD, submitted_at=TIME)), next=_maybe(WORD)),
    "Audit": _of(audit=_array(_of(changed_at=TIME, verb=WORD, object=WORD, credential=WORD)), next=_maybe(WORD)),
    "TokenShown": _of(**TOKEN),
    "Tokens": _of(tokens=_array(ref("TokenShown"))),
    "Minted": _of(**TOKEN, token=WORD),
    "Rotated": {**_of(**TOKEN), "anyOf": [_of(token=WORD), _of(secret=WORD)]},
    "AccountShown": _of(**ACCOUNT),
    "Accounts": _of(accounts=_array(ref("AccountShown")), rules=ANY_OBJECT),
    "Usage": _of(by=_array(WORD), since=WORD, until=_maybe(WORD), rows=_array(_of(hours=TOTALS))),
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
    "nodes.listing_nodes": "Nodes",
    "clusters.move_worker": "Worker",
    "clusters.scheduler": "SchedulingShown",
    "clusters.put_scheduler": "Scheduling",
    "clusters.scheduler_changes": "Changes",
    "clusters.timeline": "Timeline",
    "clusters.forecast": "Forecast",
    "clusters.accuracy": "Accuracy",
    "clusters.step": "Stepped",
    "clusters.plan": "Plan",
    "agents.receive": "Received",
    "agents.accept": "Accepted",
    "agents.events": "Recorded",
    "agents.heartbeat": "Beat",
    "jobs.submit": "Placed",
    "batch.submit": "Answers",
    "jobs.match": "Match",
    **dict.fromkeys(("jobs.bid", "credentials.known", "config.memory", "config.models"), "Answer"),
    "jobs.listing": "Jobs",
    "jobs.find": "Found",
    **dict.fromkeys(("jobs.show", "jobs.cancel", "jobs.change", "jobs.update"), "JobShown"),
    "jobs.change_many": "ChangedMany",
    **dict.fromkeys(("jobs.jobspec", "jobs.script"), "Answer"),
    "jobs.why": "Why",
    "jobs.certificate": "Certificate",
    "jobs.eta": "Eta",
    "jobs.eta_of_jobspec": "Etas",
    "jobs.replay": "Replay",
    "jobs.decisions": "Decisions",
    "config.audit": "Audit",
    "tokens.mint": "Minted",
    "tokens.listing": "Tokens",
    "tokens.rotate": "Rotated",
    "accounts.listing": "Accounts",
    "accounts.show": "AccountShown",
    **dict.fromkeys(("accounts.put", "accounts.put_qos", "accounts.qos"), "Answer"),
    "accounts.usage": "Usage",
    **dict.fromkeys(("health.live", "health.ready"), "Health"),
    "slurm.run": "SlurmAnswer",
}

GRAPH = {
    "graph": {
        "nodes": {
            "c0": {"metadata": {"type": "cluster", "name": "oak"}},
            "n0": {"metadata": {"type": "node", "name": "n0"}},
            "p0": {"metadata": {"type": "core", "name": "core0"}},
        },
        "edges": [
            {"source": "c0", "target": "n0", "relation": "contains"},
            {"source": "n0", "target": "p0", "relation": "contains"},
        ],
    }
}
SUBSYSTEM = {
    "graph": {
        "nodes": {"shm0": {"metadata": {"type": "shm", "name": "shm0"}}},
        "edges": [{"source": "n0", "target": "shm0", "relation": "contains"}],
    }
}
JOBSPEC = {
    "version": 1,
    "resources": {"work": {"type": "core", "replicas": 1}},
    "tasks": [{"command": ["true"], "resources": "work"}],
}
EXAMPLES: dict[str, Any] = {
    "clusters.register": {"name": "oak", "graph": GRAPH, "state": {"nodes_free": 1}},
    "clusters.put_graph": GRAPH,
    "clusters.patch_graph": {"changes": [{"op": "set", "vertex": "n0", "properties": {"rack": "r1"}}]},
    "clusters.put_subsystem": SUBSYSTEM,
    "clusters.put_state": {"nodes_free": 1, "cost": 0.5, "arch": "x86_64"},
    "clusters.put_scheduler": {"policy": "load_based", "settings": {"classes": {"land": 60, "sea": 40}}},
    "jobs.submit": {"jobspec": JOBSPEC, "name": "hello", "requestor": "ann"},
    "jobs.match": {"jobspec": JOBSPEC},
    "jobs.bid": {"jobspec": JOBSPEC},
    "jobs.eta_of_jobspec": {"jobspec": JOBSPEC},
    "slurm.run": {"words": ["--me"], "user": "ann"},
    "jobs.policy_diff": {"config": "scheduler: {algorithms: {selection: {name: random}}}", "limit": 500},
    "jobs.policy_check": {"policy": "load_based", "settings": {"classes": {"land": 60, "sea": 40}}},
    "clusters.plan": {"jobs": [{"jobspec": JOBSPEC, "count": 3}], "workers": {"n0": "OFFLINE"}},
    "batch.submit": {"jobs": [{"jobspec": JOBSPEC}, {"jobspec": JOBSPEC, "name": "second"}]},
    "jobs.change_many": {"where": {"name": "sweep-*", "state": "waiting"}, "limit": 1000},
    "jobs.update": {"time_limit": 1440, "name": "train-2"},
    "agents.receive": {"agent": "a", "max": 4, "wait": 0},
    "agents.accept": {"agent": "a", "tasks": []},
    "agents.events": {"agent": "a", "events": []},
    "agents.heartbeat": {"agent": "a", "workers": ["n0"], "running": []},
    "reservations.create": {"jobspec": JOBSPEC, "duration": 3600, "requestor": "ann", "name": "the demonstration"},
    "accounts.put": {"shares": 50, "users": {"ann": {"shares": 1, "default": True}}, "budget": {"amount": 1000}},
    "accounts.put_qos": {"priority": 100, "preempts": ["default"], "signal": "USR1", "grace": 60},
    "tokens.mint": {"clusters": ["oak"], "requestors": ["ann"], "name": "for ann"},
}

NAME = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "description": "1 to 100 letters, digits, dots, underscores or hyphens, a letter or digit first",
}
WORDS = {"type": "string", "maxLength": 200}
ANY: dict[str, Any] = {}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    """Return an object without other keys: one that is not known may be a misspelt one, and would be ignored."""
    return {**_object(required, **properties), "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str) and "enum" not in schema:  # a fault is told of the type that is meant
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _list(of: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    return {"type": "array", "items": of, **({"maxItems": most} if most else {})}


AGENT = {"type": "string", "minLength": 1, "maxLength": 200}
SEQ = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
RUN = _object(["id", "attempt"], id={"type": "string"}, attempt={"type": "integer"})
FACT = {"type": ["string", "number", "boolean", "null"], "maxLength": 300}
IDS = {"type": "string", "maxLength": 10_000}  # 0-5,8
HAPPENED = ["pending", "started", "ended", "suspended", "resumed", "unable", "output", "placed", "site", "checked"]
EVENT = _object(
    ["task", "attempt", "event"],
    task={"type": "string"},
    attempt={"type": "integer"},
    event={"enum": HAPPENED},
    code=_or_null({"type": "string", "maxLength": 100}),
    **dict.fromkeys(("number", "partition"), _or_null({"type": "string", "maxLength": 100})),
    nodes=_or_null({"type": "string", "maxLength": 1_000}),
    text=_or_null({"type": "string", "maxLength": 300}),
    facts=_or_null({"type": "object", "maxProperties": 20, "additionalProperties": FACT}),
    binding={"type": "object", "additionalProperties": {"type": "object", "additionalProperties": IDS}},
    result={"enum": ["exited", "timed_out", "stopped", "failed", "lost", "canceled"]},
    cause=_or_null({"enum": ["", "memory", "deadline", "lost", "node", "preempted", "directory"]}),
    exit_code=_or_null({"type": "integer", "minimum": -(2**31) + 1, "maximum": 2**31 - 1}),
    **dict.fromkeys(("output", "errors", "detail"), _or_null({"type": "string"})),
)
LOAD = _or_null({"type": "object", "maxProperties": 100, "additionalProperties": {"type": "number"}})
VISIBILITY = {"enum": ["all", "own", None]}  # whose jobs a token that names requestors sees; null: all
ENVELOPE = {
    "jobspec": {"type": ["string", "object"]},
    "selector": _or_null(_object([], name=_or_null(WORDS), options=_or_null({"type": "object"}))),
    "clusters": _or_null(_list(_object(["name"], name={"type": "string"}, token=_or_null({"type": "string"})))),
    "name": _or_null(WORDS),
    "requestor": _or_null(WORDS),
    "login": _or_null(WORDS),  # of who submits: the requestor, where neither the request nor the token names one
    "basis": _or_null(WORDS),
    "tag": _or_null(WORDS),
    "account": _or_null(WORDS),
    "queue": _or_null({"type": "boolean"}),
    "backend": _or_null(WORDS),
    "explain": {"type": "boolean"},  # of a match; a submit says it by itself
    "certificate": {"type": "boolean"},  # of a match
    "stated": _list(WORDS, 1_000),  # of a router: variables that clusters of other servers state
}
MOMENT = {"type": "string", "format": "date-time", "pattern": "^(?!0000)"}  # no calendar of ours has a year 0
LASTING = {"required": ["duration"], "properties": {"duration": {"type": "number"}, "end": {"type": "null"}}}
FROM_TO = {"start": {"type": "string"}, "end": {"type": "string"}, "duration": {"type": "null"}}
SPEC, RANK = {"type": ["string", "object"]}, {"type": "integer", "minimum": -1023, "maximum": 1024}
COUNT = {"type": "integer", "minimum": 1, "maximum": 1_000}
SOME, BOTH = {**WORDS, "minLength": 1}, ["jobspec", "workers"]
EITHER = {"anyOf": [{"required": [one]} for one in BOTH], "not": {"required": BOTH}}
FROM_0 = {"type": "number", "minimum": 0}
OPTIMAL = {"required": ["assign"], "properties": {"assign": {"const": "optimal"}}}
CHANGE = _object(
    ["op"],
    op={"enum": ["add", "remove", "set", "resize"]},
    vertex={"type": "string"},
    nodes={"type": "object"},
    edges=_list({"type": "object"}),
    properties=ANY,
    size=ANY,
)

CHOOSING = ("number", "id", "site", "name", "user", "state", "cluster", "account", "reason", "since", "until")
SHARES = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
AMOUNT = {"type": "number", "minimum": 0, "exclusiveMaximum": 10**18}
WEIGHTS = {"type": "object", "minProperties": 1, "additionalProperties": AMOUNT}
ACCOUNT_LIMITS = dict.fromkeys(LIMITS, AMOUNT)
OF_CLUSTERS = {"type": "object", "additionalProperties": _closed([], **ACCOUNT_LIMITS)}
BUDGET = _closed(
    [],
    amount=AMOUNT,
    of={"anyOf": [{"const": COST}, WEIGHTS]},
    period={"enum": list(PERIODS)},
    over={"enum": [REFUSE, LOWEST]},
) | {"dependentRequired": {key: ["amount"] for key in ("of", "period", "over")}}  # {} is no budget
SCHEMAS: dict[str, dict[str, Any]] = {
    "Registration": _object(
        ["name", "graph"],
        name=NAME,
        graph=ANY,
        subsystems=_or_null({"type": "object", "propertyNames": NAME}),
        state=ANY,
        levels=ANY,
        worker_type={"type": "string"},
        policy=ANY,
        visibility=VISIBILITY,
    ),
    "Graph": {
        "description": "JGF, NetworkX's node-link, adjacency and Cytoscape data, R version 1",
        "type": ["object", "array"],
    },
    "Delta": _object(["changes"], changes=_list(CHANGE)),
    "State": {
        "type": "object",
        "propertyNames": {"pattern": f"^{VARIABLE.pattern}$"},
        "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
    },
    "Policy": {
        **_object([], policy=ANY, settings=ANY, limits=ANY, visibility=VISIBILITY),
        "additionalProperties": False,
    },
    "Jobspec": {"description": "a jobspec of any dialect", "type": "object", "not": {"required": ["jobspec"]}},
    "Submission": _closed(["jobspec"], **ENVELOPE),
    "Question": _closed(["jobspec"], **ENVELOPE),
    "Batch": _closed(
        ["jobs"],
        jobs={**_list(ANY), "minItems": 1},
        selector=ENVELOPE["selector"],
        clusters=ENVELOPE["clusters"],
        requestor=ENVELOPE["requestor"],
        login=ENVELOPE["login"],
        account=ENVELOPE["account"],
        queue=ENVELOPE["queue"],
        backend=ENVELOPE["backend"],
        assign=_or_null({"enum": ["greedy", "optimal"]}),
        minimise=_or_null(WORDS),
        time_limit=FROM_0,
    )
    | {"if": OPTIMAL, "then": _object(["minimise"], minimise=SOME)},
    "ManyJobs": _closed(
        [],
        jobs={**_list(SOME, 10_000), "minItems": 1},
        where=_closed(
            [], **{key: {"anyOf": [{"type": "string"}, _list({"type": "string"}, 1_000)]} for key in CHOOSING}
        ),
        limit={"type": "integer", "minimum": 1, "maximum": 10_000},
        dry_run={"type": "boolean"},
    )
    | {"oneOf": [{"required": ["jobs"]}, {"required": ["where"]}]},
    "JobChange": _closed(
        [], time_limit=FROM_0, nodes=COUNT, without=SOME, cluster=NAME, priority=RANK, name=SOME, held=YES
    )
    | {"minProperties": 1},
    "Receive": _object(["agent"], agent=AGENT, max=FROM_0, wait=FROM_0),
    "Accept": _object(["agent", "tasks"], agent=AGENT, tasks=_list(RUN), seq=SEQ),
    "Events": _object(["agent", "events"], agent=AGENT, events=_list(EVENT), seq=SEQ),
    "Heartbeat": _object(
        ["agent"],
        agent=AGENT,
        workers=_or_null(_list({"type": "string"})),
        running=_list(RUN),
        seq=SEQ,
        load=LOAD,
        checks=_or_null({"type": "boolean"}),
        on_lost_server=_or_null({"enum": ["stop", "keep"]}),
    ),
    "Token": {
        **_object(
            [],
            clusters={**_list({**NAME}, 1_000), "minItems": 1},
            requestors=_or_null(_list(SOME, 1_000)),
            accounts=_or_null(_list(SOME, 1_000)),
            monitor={"const": True},
            expires_at=_or_null(MOMENT),
            name=_or_null({"type": "string", "maxLength": 100}),
        ),
        "oneOf": [
            {"required": ["clusters"]},
            {"required": ["monitor"], "properties": {"requestors": {"type": "null"}}},
        ],
    },
    "Account": _closed(
        [],
        parent=_or_null(SOME),
        shares=_or_null(SHARES),
        limits=_or_null(_closed([], **ACCOUNT_LIMITS, **{GUARANTEED: AMOUNT}, clusters=OF_CLUSTERS)),
        budget=_or_null(BUDGET),
        users={
            "type": "object",
            "propertyNames": {"minLength": 1, "maxLength": 200},
            "additionalProperties": _or_null(_closed([], shares=_or_null(SHARES), default={"type": "boolean"})),
        },
        half_life={"type": "number", "minimum": 0, "maximum": 10**12},
        weights={"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 10**9}},
    ),
    "Qos": ANY_OBJECT,
    "Reservation": _object(
        [],
        jobspec=SPEC,
        workers={"anyOf": [SOME, {**_list(SOME, 10_000), "minItems": 1}]},
        start=_or_null(MOMENT),
        end=_or_null(MOMENT),
        duration=_or_null({"type": "number", "exclusiveMinimum": 0, "maximum": 2**31}),
        **dict.fromkeys(("requestor", "login"), _or_null(SOME)),
        requestors=_or_null(_list(SOME, 1_000)),
        name=_or_null({"type": "string", "maxLength": 100}),
        at_begin=_or_null({"enum": ["requeue", "cancel"]}),
    )
    | {"oneOf": [LASTING, {"required": ["start", "end"], "properties": FROM_TO}], **EITHER},
    "Supposition": _closed(
        [],
        jobs=_list(_closed(["jobspec"], jobspec=SPEC, requestor=_or_null(SOME), priority=RANK, count=COUNT), 1_000),
        settings={"type": "object"},
        workers={"type": "object", "additionalProperties": {"enum": ["READY", "OFFLINE", "LOST", "DRAINING"]}},
    ),
    "SlurmCall": _closed(
        ["words"],
        words={"type": "array", "items": {"type": "string"}, "maxItems": 10_000},
        environment={"type": "object", "additionalProperties": {"type": "string"}},
        **{key: {"type": "string"} for key in ("folder", "user", "host", "script", "key", "waits_for")},
        uid={"type": "integer", "minimum": 0},
        gid={"type": "integer", "minimum": 0},
        umask={"type": "integer", "minimum": 0, "maximum": 0o777},
        at={"type": "number", "minimum": 0, "maximum": 32_503_680_000},
        offset={"type": "integer", "minimum": -86_399, "maximum": 86_399},
    ),
    "PolicyDiff": _closed(["config"], config={"type": "string"}, limit=COUNT),
    "PolicyCheck": _closed([], config={"type": "string"}, policy=SOME, settings={"type": "object"})
    | {"oneOf": [{"required": ["config"]}, {"required": ["policy"]}]},
    "Problem": _object(
        ["type", "title", "status", "code", "detail"],
        type={"type": "string", "format": "uri"},
        status={"type": "integer"},
        **{key: {"type": "string"} for key in ("title", "code", "detail", "pointer")},
        line={"type": "integer"},
        column={"type": "integer"},
        outcome={
            "enum": [NONE, UNKNOWN],
            "description": "of a status from 500 on: nothing was stored and nothing will be, or it may be done",
        },
    ),
}
