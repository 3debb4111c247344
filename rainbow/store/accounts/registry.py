"""The accounts and their members. The row of the root ("") has the rules of usage and counts changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from rainbow.accounts.tree import ROOT, Account, Member, Tree
from rainbow.accounts.usage import UsageRules
from rainbow.store.accounts.tables import accounts, members
from rainbow.store.accounts.tables import qos as qualities

_VERSION = sa.select(accounts.c.changes).where(accounts.c.name == ROOT)
_RULES = sa.select(accounts.c.limits).where(accounts.c.name == ROOT)
_FIELDS = ("name", "parent", "shares", "limits", "budget")


def version(connection: sa.Connection) -> int:
    """Return how often accounts have changed; 0: there have never been any."""
    return connection.execute(_VERSION).scalar() or 0


def rules(connection: sa.Connection) -> UsageRules:
    """Return how usage counts."""
    return rules_of(connection.execute(_RULES).scalar() or {})


def rules_of(options: Mapping[str, Any]) -> UsageRules:
    """Read rules as they are stored."""
    return UsageRules(**{key: options[key] for key in ("half_life", "weights") if key in options})


def tree(connection: sa.Connection) -> Tree:
    """Return all accounts and members."""
    rows = connection.execute(sa.select(*(accounts.c[name] for name in _FIELDS)).where(accounts.c.name != ROOT))
    results = [Account(**row._mapping) for row in rows]
    own = [Member(**row._mapping) for row in connection.execute(sa.select(members))]
    return Tree.of(results, own)


def put_rules(connection: sa.Connection, options: Mapping[str, Any]) -> None:
    """Store how usage counts."""
    touch(connection)
    connection.execute(accounts.update().where(accounts.c.name == ROOT).values(limits=dict(options)))


def put(connection: sa.Connection, account: Account) -> None:
    """Store an account, new or changed."""
    touch(connection)
    values = {name: getattr(account, name) for name in _FIELDS}
    values |= {"limits": dict(account.limits), "budget": dict(account.budget)}
    if not connection.execute(accounts.update().where(accounts.c.name == account.name).values(values)).rowcount:
        connection.execute(accounts.insert().values(values))


def put_member(connection: sa.Connection, member: Member) -> None:
    """Store a user of an account; a default is the only one of that user."""
    touch(connection)
    if member.default:
        connection.execute(members.update().where(members.c.user == member.user).values(default=False))
    remove_member(connection, *member.key)
    values = {"account": member.account, "user": member.user, "shares": member.shares, "default": member.default}
    connection.execute(members.insert().values(values))


def remove_member(connection: sa.Connection, account: str, user: str) -> bool:
    """Remove a user from an account; return whether they were in it."""
    touch(connection)
    own = (members.c.account == account, members.c.user == user)
    return bool(connection.execute(members.delete().where(*own)).rowcount)


def remove(connection: sa.Connection, name: str) -> None:
    """Remove an account with its members; what was used stays in the record."""
    touch(connection)
    connection.execute(members.delete().where(members.c.account == name))
    connection.execute(accounts.delete().where(accounts.c.name == name))


def qos(connection: sa.Connection) -> dict[str, dict[str, Any]]:
    """Return the settings of each quality of service."""
    return {row.name: row.given for row in connection.execute(sa.select(qualities))}


def put_qos(connection: sa.Connection, name: str, options: Mapping[str, Any]) -> None:
    """Store a quality of service, new or changed."""
    remove_qos(connection, name)
    connection.execute(qualities.insert().values(name=name, given=dict(options)))


def remove_qos(connection: sa.Connection, name: str) -> None:
    """Remove a quality of service."""
    touch(connection)
    connection.execute(qualities.delete().where(qualities.c.name == name))


def touch(connection: sa.Connection) -> None:
    """Note that accounts change."""
    more = {"changes": accounts.c.changes + 1}
    if not connection.execute(accounts.update().where(accounts.c.name == ROOT).values(more)).rowcount:
        connection.execute(accounts.insert().values(name=ROOT, limits={}, budget={}, changes=1))
