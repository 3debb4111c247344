"""Qualities of service at the server: the verbs, which one a job has, and the rules of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rainbow.accounts.budget import GUARANTEED
from rainbow.accounts.tree import Tree
from rainbow.errors import Conflict, Forbidden, JobspecError, NotFound, PolicyError, RequestError
from rainbow.scheduling.qos import DEFAULT, Limit, Qos, Rules, check_qos, read_qos
from rainbow.scheduling.rules.running_limits import held_cores
from rainbow.service.accounts.administration import NAME, check_admin
from rainbow.service.accounts.ranks import KnownAccounts, known_of
from rainbow.store.accounts import charges, registry
from rainbow.text import meant, some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import RegisteredCluster, Service

AT = "/attributes/system/qos"


def qos_table(service: Service, connection: sa.Connection) -> Mapping[str, Qos]:
    """Return all qualities of service by name."""
    return known_of(service, connection).qos


def asked_qos(request: Request) -> str:
    """Return what a jobspec names; "" if it names none."""
    system, site = request.attributes.get("system") or {}, request.attributes.get("site") or {}
    slurm = site.get("slurm") or {}
    found = system.get("qos") or slurm.get("qos") or ""
    if not isinstance(found, str):
        raise JobspecError(f"qos must be a name, got {found!r:.40}", pointer=AT)
    return found


def qos_of(service: Service, connection: sa.Connection, user: str, account: str, request: Request) -> Qos | None:
    """Return the quality of service of a user's job; Forbidden says which ones they may use.

    A server that has none leaves what a job names to its cluster.
    """
    known, asked = qos_table(service, connection), asked_qos(request)
    if not known:
        return None
    found = known.get(asked or DEFAULT)
    if found is not None and found.admits(user, account):
        return found
    if not asked:
        return None
    own = [name for name, one in sorted(known.items()) if one.admits(user, account)]
    near = meant(asked, own)
    hint = f"{near}; " if near else ""
    raise Forbidden(
        f"user {user} may not use qos {asked:.40}; {hint}{user} may use: {', '.join(own) or 'none'}", qos=own
    )


# ── the rules of a step ──


def rules_of(service: Service, connection: sa.Connection, entry: RegisteredCluster) -> Rules | None:
    """Return what holds on a cluster; None where no rule can matter."""
    known, name = known_of(service, connection), entry.cluster.name
    if name not in known.rules:
        known.rules[name] = _rules(known.tree, known.qos, name)
    rules = known.rules[name]
    if not (rules.has_limits or rules.has_preemption or rules.parents):
        return None
    return with_elsewhere(connection, entry, rules)


def with_elsewhere(connection: sa.Connection, entry: RegisteredCluster, rules: Rules) -> Rules:
    """Return rules with what runs on other clusters by now."""
    if not rules.has_shared_limits:
        return rules
    used: Counter[Limit] = Counter()
    for owner, placement in charges.placed_elsewhere(connection, entry.id):
        over_all = [limit for limit in rules.counted(owner) if not limit.cluster]
        used.update(dict.fromkeys(over_all, held_cores(placement)))
    return replace(rules, elsewhere=dict(used))


def _rules(tree: Tree, qos: Mapping[str, Qos], cluster: str) -> Rules:
    lines = {name: tuple((one.name, one.limits) for one in tree.line(name) if one.limits) for name in tree.accounts}
    lending = {name: one.parent for name, one in tree.accounts.items() if GUARANTEED in one.limits}
    return Rules(cluster, qos, {name: line for name, line in lines.items() if line}, parents=lending)


# ── verbs ──


def listing(service: Service, who: Caller) -> list[dict[str, Any]]:
    """List the qualities of service by name."""
    with service.store.read() as connection:
        return [_document(one) for _, one in sorted(qos_table(service, connection).items())]


def put(service: Service, who: Caller, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create a quality of service, or change what the body names of it."""
    check_admin(who)
    if not NAME.fullmatch(name):
        raise RequestError(f"a qos is named by letters, digits, '.', '_' and '-', got {name!r:.60}", pointer="")
    with service.store.write() as connection:
        known = registry.qos(connection)
        given = check_qos({**known.get(name, {}), **body})
        for k, other in enumerate(given["preempts"]):
            if other not in {*known, name, DEFAULT}:
                raise PolicyError(f"qos {other:.40} not found", pointer=f"/preempts/{k}")
        accounts = registry.tree(connection).accounts
        for k, account in enumerate(given["accounts"]):
            if account not in accounts:
                raise PolicyError(f"account {account:.40} not found", pointer=f"/accounts/{k}")
        registry.put_qos(connection, name, given)
    service.state(KnownAccounts).forget()
    return _document(read_qos(name, given))


def delete(service: Service, who: Caller, name: str) -> None:
    """Delete a quality of service that no active job has."""
    check_admin(who)
    with service.store.write() as connection:
        if name not in registry.qos(connection):
            raise NotFound(f"qos {name} not found")
        if there := charges.active_of_qos(connection, name):
            raise Conflict(f"qos {name} has {some(there, 'active job')}; cancel them or wait until they end")
        registry.remove_qos(connection, name)
    service.state(KnownAccounts).forget()


def _document(one: Qos) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(one).items()}
