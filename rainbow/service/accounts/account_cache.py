"""Accounts and qualities of service, remembered: the place of each user, a job's quality, and the rules of a step.

The tree is read again when it has changed. Standings are worked out again after REFRESH seconds: usage decays by the
hour, and a step that starts a thousand tasks a second need not look each time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from rainbow.accounts.budget import GUARANTEED, read_budget
from rainbow.accounts.fair_tree import Key, Standing, standings
from rainbow.accounts.tree import Tree
from rainbow.errors import Forbidden, JobspecError
from rainbow.scheduling.qos import DEFAULT, Limit, Qos, Rules, read_qos
from rainbow.scheduling.rules.running_limits import held_cores
from rainbow.service.core.memory import picture
from rainbow.store.accounts import charges, registry
from rainbow.store.engine import once_stored
from rainbow.text import meant, some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.service.core.service import RegisteredCluster, Service


REFRESH = 5.0  # seconds


@picture("accounts", most="all accounts", true="read again when the stored version is another; standings after 5 s")
class KnownAccounts:
    """What is remembered of accounts."""

    def __init__(self) -> None:
        self.version = -1  # of the tree; -1: not read
        self.least = 0  # the version that this server has stored last
        self.tree = Tree()
        self.qos: Mapping[str, Qos] = {}
        self.rules: dict[str, Rules] = {}  # by cluster
        self.at = -inf  # of the standings
        self.standings: Mapping[Key, Standing] = {}
        self.lock = threading.Lock()

    def outdate(self, version: int) -> None:
        """Read everything again. A transaction that began before this was stored may still remember what it saw."""
        self.least, self.at = version, -inf


def accounts_change(service: Service, connection: sa.Connection) -> None:
    """Let accounts be read again once this transaction, which has changed them, is stored."""
    once_stored(partial(service.state(KnownAccounts).outdate, registry.version(connection)))


def known_of(service: Service, connection: sa.Connection) -> KnownAccounts:
    """Return what is known of accounts; one server on SQLite asks the store only after a change of its own."""
    known = service.state(KnownAccounts)
    if known.version >= known.least and not service.store.many_processes:
        return known
    version = registry.version(connection)
    if version != known.version:
        known.tree, known.rules = registry.tree(connection), {}
        known.qos = {name: read_qos(name, options) for name, options in registry.qos(connection).items()}
        known.version, known.at = version, -inf
    return known


def tree_of(service: Service, connection: sa.Connection) -> Tree:
    """Return all accounts."""
    return known_of(service, connection).tree


def standings_of(service: Service, connection: sa.Connection) -> Mapping[Key, Standing]:
    """Return where accounts and members are; none without accounts."""
    known, now = service.state(KnownAccounts), service.clock()
    tree = tree_of(service, connection)
    if not tree.accounts:
        return {}
    with known.lock:
        if not 0 <= now - known.at < REFRESH:
            known.standings, known.at = standings(tree, charges.recent(connection, now)), now
        return known.standings


def variables(service: Service, connection: sa.Connection, account: str, user: str) -> dict[str, float]:
    """Return what selection reads of a job's account: factor, part of its share that is used, what budgets leave."""
    tree, results = tree_of(service, connection), standings_of(service, connection)
    own, mine = results.get(account), results.get((account, user))
    if own is None or mine is None:
        return {}
    values = {"account.factor": mine.factor, "account.used": own.used / own.shares if own.shares else 0.0}
    budgets = {one.name: budget for one in tree.line(account) if (budget := read_budget(one.budget))}
    there = {name: charges.balance(connection, name, one.at(service.clock())) for name, one in budgets.items()}
    remaining = [one.amount - there[name].held - there[name].charged for name, one in budgets.items()]
    return {**values, **({"account.left": min(remaining)} if remaining else {})}


def members_of(results: Mapping[Key, Standing]) -> dict[tuple[str, str], Standing]:
    """Return the standings of users alone."""
    return {key: one for key, one in results.items() if isinstance(key, tuple)}


def standing_document(account: str, user: str, results: Mapping[Key, Standing]) -> dict[str, object] | None:
    """Say where a job's account is; None of one that is not in the tree."""
    own, mine = results.get(account), results.get((account, user))
    if own is None or mine is None:
        return None
    first = (
        f"{some(own.ahead, 'account')} come{'s' if own.ahead == 1 else ''} first" if own.ahead else "it comes first"
    )
    text = f"account {account} has used {own.percent} % of its share, {first}"
    facts = {"factor": round(mine.factor, 6), "ahead": mine.ahead, "percent": own.percent}
    return {"account": account, "text": text, **facts}


AT = "/attributes/system/qos"


def qos_table(service: Service, connection: sa.Connection) -> Mapping[str, Qos]:
    """Return all qualities of service by name."""
    return known_of(service, connection).qos


def asked_qos(request: Request) -> str:
    """Return what a jobspec names; "" if it names none."""
    system, site = request.attributes.get("system") or {}, request.attributes.get("site") or {}
    slurm = site.get("slurm") or {}
    result = system.get("qos") or slurm.get("qos") or ""
    if not isinstance(result, str):
        raise JobspecError(f"qos must be a name, got {result!r:.40}", pointer=AT)
    return result


def qos_of(service: Service, connection: sa.Connection, user: str, account: str, request: Request) -> Qos | None:
    """Return the quality of service of a user's job; Forbidden says which ones they may use.

    A server that has none leaves what a job names to its cluster.
    """
    known, query = qos_table(service, connection), asked_qos(request)
    if not known:
        return None
    result = known.get(query or DEFAULT)
    if result is not None and result.admits(user, account):
        return result
    if not query:
        return None
    own = [name for name, one in sorted(known.items()) if one.admits(user, account)]
    near = meant(query, own)
    hint = f"{near}; " if near else ""
    raise Forbidden(
        f"user {user} may not use qos {query:.40}; {hint}{user} may use: {', '.join(own) or 'none'}", qos=own
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


def stored_rules(connection: sa.Connection, names: Iterable[str]) -> dict[str, Rules]:
    """Return what holds on each of some clusters by name, without what runs."""
    tree, options = registry.tree(connection), registry.qos(connection)
    qos = {name: read_qos(name, one) for name, one in options.items()}
    return {name: _rules(tree, qos, name) for name in names}


def _rules(tree: Tree, qos: Mapping[str, Qos], cluster: str) -> Rules:
    lines = {name: tuple((one.name, one.limits) for one in tree.line(name) if one.limits) for name in tree.accounts}
    lending = {name: one.parent for name, one in tree.accounts.items() if GUARANTEED in one.limits}
    return Rules(cluster, qos, {name: line for name, line in lines.items() if line}, parents=lending)
