"""How a cluster is scheduled: policy and settings, and who changed them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, PolicyError, RequestError
from rainbow.matching import is_located, worker_capacity
from rainbow.plugins import UnknownPlugin
from rainbow.regex import RegexError
from rainbow.scheduling import Begins, Broken, Keeps, Warns, installed, policies, traits_of
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.core.limits import check_limits, limits_of
from rainbow.service.jobs.expectation import take_back
from rainbow.store import clusters, events, jobs, reservations, tasks
from rainbow.store.events import Change

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, before, after) of everything that differs.

    >>> list(differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}))
    [('b', 2, 3), ('c', None, 4)]
    """
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)


Parts = Mapping[str, Mapping[str, Any]]  # "policy", "settings" or "limits" → name → value


def note(connection: sa.Connection, who: Caller, cluster_id: str, now: float, before: Parts, after: Parts) -> None:
    """Store what is changed of a cluster's settings, limits and policy: the last one is listed first."""
    for part in sorted(after, key="policy".__eq__):
        for name, was, becomes in differences(before[part], after[part]):
            what = name if part == "policy" else f"{part}.{name}"
            events.add_change(connection, cluster_id, Change(now, who.called(cluster_id), what, was, becomes))


PARTS = {"policy", "settings", "limits", "visibility"}


def put(service: Service, who: Caller, name: str, body: Mapping[str, Any], *, merge: bool = False) -> dict[str, Any]:
    """Set a cluster's policy, settings, limits and visibility, or (merge) some of them; effective at the next step.

    What is given replaces what was set; merged, key by key, and null brings a default back.
    """
    _check_parts(body)
    with service.store.write() as connection:
        record = own_cluster(connection, who, name)
        policy = _policy(body.get("policy", record.policy))
        settings = _settings(service, record, policy, _mapping(body.get("settings", {}), "settings"), merge)
        begin = dict(service.settings.admission) if traits_of(policy).admission else {}
        limits = _limits(record.limits, begin, body, merge)
        shown = body.get("visibility", record.visibility) or clusters.ALL
        after = replace(record, policy=policy, settings=settings, limits=limits, visibility=shown)
        note(connection, who, record.id, service.clock(), _parts(record), _parts(after))
        clusters.set_policy(connection, record.id, policy, settings)
        if policy != record.policy:
            _check_kept(connection, record, policy, service.clock())
            tasks.let_go(connection, record.id)
            text = f"the cluster's policy is {policy} now"
            broken = Broken("", 0, 0.0, None, service.clock(), "settings", text)
            take_back(connection, record.id, record.name, broken)
        clusters.set_limits(connection, record.id, after.limits)
        clusters.set_visibility(connection, record.id, shown)
        answer = settings_document(service, connection, after)
    service.tell(record.id, agents=True)  # what the old policy held continues
    return answer


def _check_kept(connection: sa.Connection, record: ClusterRecord, policy: str, now: float) -> None:
    """Refuse a policy that would not keep the space that users have reserved."""
    stored = reservations.of_cluster(connection, record.id, now)
    if stored and not isinstance(policies.get(policy), Keeps):
        raise Conflict(
            f"policy {policy} does not support reservations and the cluster has {len(stored)}; delete them or wait "
            "until they end"
        )


def settings_document(service: Service, connection: sa.Connection, record: ClusterRecord) -> dict[str, Any]:
    """Return what is set, and what the policy finds doubtful about it."""
    settings, limits = _parts(record)["settings"], _parts(record)["limits"]
    entry = service.catalogue.get(record.name)
    workers = entry.cluster.workers if entry else ()
    warnings = _warnings(record.policy, settings, jobs.live_by_requestor(connection, record.id), workers)
    answer = {"policy": record.policy, "settings": settings, "limits": limits, "warnings": warnings}
    return {**answer, "visibility": record.visibility}


def _warnings(
    name: str, settings: Mapping[str, Any], requestors: Collection[str], workers: Collection[str]
) -> list[Mapping[str, Any]]:
    policy = installed(name)
    try:
        return list(policy.warnings(settings, requestors, workers)) if isinstance(policy, Warns) else []
    except (PolicyError, RegexError):  # stored by a version that took what this one refuses; the step's fault says so
        return []


def _parts(record: ClusterRecord) -> dict[str, dict[str, Any]]:
    """Return what is set with every default filled in; settings that cannot be used any more as they are stored."""
    try:
        settings = dict(policies.get(record.policy).check(record.settings))
    except (PolicyError, UnknownPlugin):
        settings = dict(record.settings)
    named = {"policy": record.policy, "visibility": record.visibility}
    return {"policy": named, "settings": settings, "limits": limits_of(record.limits)}


def changed(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List the last changes of a cluster's policy, settings and limits, the newest first."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        changes = events.list_changes(connection, record.id, service.settings.limits.listed)
    return [
        {"changed_at": one.at, "who": one.who, "what": one.what, "from": one.before, "to": one.after}
        for one in changes
    ]


def _check_parts(body: Mapping[str, Any]) -> None:
    for key in body:
        if key not in PARTS:
            raise RequestError(f"unknown key {key[:40]!r}; valid keys: {', '.join(sorted(PARTS))}", pointer=f"/{key}")


def _policy(name: Any) -> str:
    if not isinstance(name, str) or name not in policies:
        known = ", ".join(policies.names())
        raise PolicyError(f"unknown policy {str(name)[:40]}; available policies: {known}", pointer="/policy")
    return name


def _mapping(options: Any, part: str) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise PolicyError(f"{part} is a mapping", pointer=f"/{part}")
    return options


def _settings(
    service: Service, record: ClusterRecord, policy: str, settings: Mapping[str, Any], merge: bool
) -> dict[str, Any]:
    """Return the settings as they are to be, checked; what is not given, or null, is as the policy begins."""
    before = _parts(record)["settings"] if policy == record.policy else {}
    if merge:
        before = {key: value for key, value in before.items() if settings.get(key, value) is not None}
        settings = {key: value for key, value in settings.items() if value is not None}
    entry = service.catalogue.get(record.name)
    try:
        options = begun(policy, settings, before, entry.cluster if entry else None)
        return dict(policies.get(policy).check({**before, **options} if merge else options))
    except PolicyError as fault:
        fault.pointer = "/settings" + (fault.pointer or "")
        raise


def begun(
    policy: str, settings: Mapping[str, Any], before: Mapping[str, Any], cluster: Cluster | None
) -> Mapping[str, Any]:
    """Return settings that replace those before, with what the policy chooses by the workers of the cluster."""
    result = policies.get(policy)
    if not isinstance(result, Begins):
        return settings
    workers = worker_capacity(cluster) if cluster is not None and is_located(cluster) else {}
    return result.begin(settings, before, workers.values())


def _limits(
    stored: Mapping[str, int], begin: Mapping[str, int], body: Mapping[str, Any], merge: bool
) -> dict[str, int]:
    """Return the limits as they are to be; what is not given, or null, is as it is in the beginning."""
    options = _mapping(body.get("limits", {} if merge else stored), "limits")
    whole = {**stored, **options} if merge else options
    return check_limits({**begin, **{key: value for key, value in whole.items() if not (merge and value is None)}})
