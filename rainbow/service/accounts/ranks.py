"""The tree of accounts and the place of each user in it, remembered.

The tree is read again when it has changed. Standings are worked out again after REFRESH seconds: usage decays by the
hour, and a step that starts a thousand tasks a second need not look each time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from rainbow.accounts.budget import read_budget
from rainbow.accounts.fair_tree import Key, Standing, standings
from rainbow.accounts.tree import Tree
from rainbow.scheduling.qos import Qos, Rules, read_qos
from rainbow.store.accounts import charges, registry
from rainbow.text import some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service

REFRESH = 5.0  # seconds


class KnownAccounts:
    """What is remembered of accounts."""

    def __init__(self) -> None:
        self.version = -1  # of the tree; -1: not read
        self.tree = Tree()
        self.qos: Mapping[str, Qos] = {}
        self.rules: dict[str, Rules] = {}  # by cluster
        self.at = -inf  # of the standings
        self.standings: Mapping[Key, Standing] = {}
        self.lock = threading.Lock()

    def forget(self) -> None:
        """Read everything again."""
        self.version, self.at = -1, -inf


def known_of(service: Service, connection: sa.Connection) -> KnownAccounts:
    """Return what is known of accounts; one server on SQLite asks the store only after a change of its own."""
    known = service.state(KnownAccounts)
    if known.version >= 0 and not service.store.many_processes:
        return known
    version = registry.version(connection)
    if version != known.version:
        known.tree, known.rules = registry.tree(connection), {}
        known.qos = {name: read_qos(name, given) for name, given in registry.qos(connection).items()}
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
    tree, found = tree_of(service, connection), standings_of(service, connection)
    own, mine = found.get(account), found.get((account, user))
    if own is None or mine is None:
        return {}
    values = {"account.factor": mine.factor, "account.used": own.used / own.shares if own.shares else 0.0}
    budgets = {one.name: budget for one in tree.line(account) if (budget := read_budget(one.budget))}
    there = {name: charges.balance(connection, name, one.at(service.clock())) for name, one in budgets.items()}
    left = [one.amount - there[name].held - there[name].charged for name, one in budgets.items()]
    return {**values, **({"account.left": min(left)} if left else {})}


def members_of(found: Mapping[Key, Standing]) -> dict[tuple[str, str], Standing]:
    """Return the standings of users alone."""
    return {key: one for key, one in found.items() if isinstance(key, tuple)}


def standing_document(account: str, user: str, found: Mapping[Key, Standing]) -> dict[str, object] | None:
    """Say where a job's account is; None of one that is not in the tree."""
    own, mine = found.get(account), found.get((account, user))
    if own is None or mine is None:
        return None
    first = (
        f"{some(own.ahead, 'account')} come{'s' if own.ahead == 1 else ''} first" if own.ahead else "it comes first"
    )
    text = f"account {account} has used {own.percent} % of its share, {first}"
    facts = {"factor": round(mine.factor, 6), "ahead": mine.ahead, "percent": own.percent}
    return {"account": account, "text": text, **facts}
