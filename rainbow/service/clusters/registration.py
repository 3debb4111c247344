"""Registration of clusters and reports of their states; drain.py removes clusters."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, InputError, LimitError, PolicyError, RequestError, StateError
from rainbow.graph import read_cluster
from rainbow.matching import cluster_totals, prepare, stated_units
from rainbow.outcome import after_commit, note_cluster
from rainbow.scheduling import policies, traits_of
from rainbow.selection.choice import is_number
from rainbow.service.clusters.scheduling_settings import begun
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.core.keyed_call import KeyedCall
from rainbow.service.core.service import RegisteredCluster, keep_summary
from rainbow.store import cluster_states, clusters, events, workers
from rainbow.store.clusters import ClusterRecord
from rainbow.store.credentials import SECRET, TOKEN, add, minted

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.service.core.service import Service


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


def check_name(name: Any, what: str) -> str:
    """Return a name that is one."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestError(
            f"invalid {what} name: use 1 to 100 letters, digits, dots, dashes or underscores", pointer="/name"
        )
    return name


def register(service: Service, who: Caller, body: Mapping[str, Any], call: KeyedCall | None = None) -> dict[str, Any]:
    """Register a cluster with its subsystems, state and policy, all or nothing; its credentials are shown once."""
    call = call or KeyedCall(service)
    if not who.registers:
        raise Forbidden("the registration secret is required to register a cluster")
    name = check_name(body.get("name"), "cluster")
    documents = _documents(body.get("subsystems"))
    cluster = prepare(check_size(service, _read(body, name, documents)), service.settings.backend)
    state = check_state(body.get("state") or {})
    policy, settings = check_policy(body.get("policy") or {}, service.settings.policy, cluster)
    now = service.clock()
    record = ClusterRecord(
        secrets.token_hex(8),
        name,
        cluster.levels,
        cluster.worker_type,
        now,
        policy,
        settings,
        limits=dict(service.settings.admission) if traits_of(policy).admission else {},
        visibility=body.get("visibility") or clusters.ALL,
    )
    shown = {"name": name, "revision": record.revision}
    shown |= {"totals": cluster_totals(cluster), "units": stated_units(cluster)}
    made = {kind: (kind, call.credential(kind, kind)) for kind in (TOKEN, SECRET)}
    with service.store.write() as connection:
        if (earlier := call.earlier(connection)) is not None:
            return earlier
        if clusters.find(connection, name):
            raise Conflict(f"cluster {name} already exists")
        clusters.add(connection, record, body["graph"])
        note_cluster(name, record.id)
        for subsystem, document in documents.items():
            clusters.put_subsystem(connection, record.id, subsystem, document)
        keep_summary(connection, record.id, record.revision, cluster)
        if state:
            cluster_states.put(connection, record.id, state, now)
        workers.keep_only(connection, record.id, list(cluster.workers), now)
        events.add(connection, now, record.id, "cluster", cluster=name, state="registered")
        for kind, value in made.values():
            add(connection, minted(value, kind, now, (record.id,)))
        answer = call.keep(connection, shown, **made)
    with after_commit("compile"):
        service.put_entry(RegisteredCluster(record.id, record.revision, cluster))
    service.tell(record.id, changed=True)
    return answer


def check_size(service: Service, cluster: Cluster) -> Cluster:
    """Return a cluster that is not larger than is allowed."""
    limits = service.settings.limits
    hung = [subsystem.graph for subsystem in cluster.subsystems.values()]
    own = sum(cluster.outline.many)  # templates count as what they stand for, and are not written out for it
    for what, count, most in (
        ("vertices", own + sum(len(graph) for graph in hung), limits.vertices),
        ("edges", own - 1 + sum(graph.number_of_edges() for graph in hung), limits.edges),
    ):
        if count > most:
            raise LimitError(f"graph has {count} {what}; the limit is {most}", limit=what)
    return cluster


def _documents(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise RequestError("subsystems is a mapping of names to graphs", pointer="/subsystems")
    with _below("/subsystems"):
        return {check_name(name, "subsystem"): document for name, document in options.items()}


def _read(body: Mapping[str, Any], name: str, documents: Mapping[str, Any]) -> Cluster:
    if "graph" not in body:
        raise RequestError("a cluster needs a graph", pointer="/graph")
    worker_type = body.get("worker_type", "node")
    if not isinstance(worker_type, str):
        raise RequestError("worker_type must be text", pointer="/worker_type")
    with _below("/graph"):
        cluster = read_cluster(body["graph"], name, body.get("levels", "any"), worker_type)
    for subsystem, document in documents.items():
        with _below(f"/subsystems/{subsystem}"):
            cluster = cluster.with_subsystem(subsystem, document)
    return cluster


class _below:  # noqa: N801 - reads as a preposition where it is used
    """Lengthens the pointer of a fault by the document's place in the request."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, fault: object, at: object) -> None:
        if isinstance(fault, InputError):
            fault.pointer = self.pointer + (fault.pointer or "")


def check_state(values: Any) -> dict[str, Any]:
    """Return a flat state: names to numbers, text or booleans; StateError names the first fault."""
    if not isinstance(values, Mapping):
        raise StateError("a state is a flat mapping", pointer="")
    for key, value in values.items():
        if not isinstance(key, str) or not VARIABLE.fullmatch(key):
            raise StateError(f"{str(key)[:40]!r} is not a valid name of a variable", pointer=f"/{key}")
        if not isinstance(value, (str, bool, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
            raise StateError(f"{key} must be a number, text or a boolean", pointer=f"/{key}")
    return dict(values)


def check_policy(options: Any, default: str, cluster: Cluster) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a new cluster's policy, all checked."""
    if not isinstance(options, Mapping) or not set(options) <= {"name", "settings"}:
        raise PolicyError("a policy is {name, settings}", pointer="/policy")
    name, settings = options.get("name", default), options.get("settings", {})
    if name not in policies:
        raise PolicyError(
            f"policy {name} not found; there are: {', '.join(policies.names())}", pointer="/policy/name"
        )
    if not isinstance(settings, Mapping):
        raise PolicyError("settings is a mapping", pointer="/policy/settings")
    with _below("/policy/settings"):
        return name, dict(policies.get(name).check(begun(name, settings, {}, cluster)))


# ── states ──


def put_state(service: Service, who: Caller, name: str, values: Any, merge: bool = False) -> dict[str, Any]:
    """Store what a cluster reports of itself: all of it, or (merge) some of it, where null removes a variable."""
    removed = {key for key, value in values.items() if value is None} if merge and isinstance(values, Mapping) else ()
    options = check_state({key: value for key, value in values.items() if key not in removed} if removed else values)
    with service.store.write() as connection:
        record = own_cluster(connection, who, name)
        if merge:
            return cluster_states.change(connection, record.id, options, service.clock(), removed)
        cluster_states.put(connection, record.id, options, service.clock())
    return options


def state(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Return a cluster's state as reported, and nodes_free as booked."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        result = cluster_states.get(connection, [record.id]).get(record.id)
        booked = cluster_states.booked(connection, [record.id])[record.id]
    values = dict(result.values) if result else {}
    effective = {"nodes_free": values["nodes_free"] + booked} if is_number(values.get("nodes_free")) else {}
    return {
        "state": values,
        "effective": {**values, **effective},
        "reported_at": result.reported_at if result else None,
    }
