"""The tree of accounts and the users in it.

    Account ─┬─ Account ── Member      shares count among siblings: accounts and users of one parent
             └─ Member

The root has no name (""): accounts without a parent and users without an account hang there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.errors import Forbidden, ValueRefused
from rainbow.text import meant

ROOT = ""
DEEPEST = 32  # levels of the tree


@dataclass(frozen=True, slots=True)
class Account:
    """An account. `shares` None: its children count as children of its parent (Slurm's `parent`)."""

    name: str
    parent: str = ROOT
    shares: int | None = 1
    limits: Mapping[str, Any] = field(default_factory=dict)  # see limits.py
    budget: Mapping[str, Any] = field(default_factory=dict)  # see budget.py; empty: none


@dataclass(frozen=True, slots=True)
class Member:
    """A user in an account. `shares` None: they come before all other users of it, as in Slurm."""

    account: str
    user: str
    shares: int | None = 1
    default: bool = False  # the account of this user's jobs that name none

    @property
    def key(self) -> tuple[str, str]:
        """Account and user."""
        return self.account, self.user


@dataclass(frozen=True, slots=True)
class Tree:
    """All accounts and members."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    members: Mapping[tuple[str, str], Member] = field(default_factory=dict)
    by_user: Mapping[str, list[str]] = field(default_factory=dict)  # the accounts of each, the default first

    @classmethod
    def of(cls, accounts: Iterable[Account], members: Iterable[Member]) -> Tree:
        """Make a tree of accounts and members in any order."""
        named = {one.name: one for one in sorted(accounts, key=lambda one: one.name)}
        own = sorted(members, key=lambda one: one.key)
        by_user: dict[str, list[str]] = {}
        for one in sorted(own, key=lambda one: not one.default):
            by_user.setdefault(one.user, []).append(one.account)
        return cls(named, {one.key: one for one in own}, by_user)

    def line(self, account: str) -> list[Account]:
        """Return an account and those above it, the nearest first.

        >>> tree = Tree.of([Account("bio"), Account("dna", "bio")], [])
        >>> [one.name for one in tree.line("dna")]
        ['dna', 'bio']
        """
        result: list[Account] = []
        while account in self.accounts and len(result) <= DEEPEST:
            result.append(self.accounts[account])
            account = result[-1].parent
        return result

    def below(self, account: str) -> Iterator[Account]:
        """Give the accounts right below one."""
        return (one for one in self.accounts.values() if one.parent == account)

    def walk(self, account: str = ROOT, depth: int = 0) -> Iterator[tuple[int, Account]]:
        """Give every account below one with its depth, parents first, by name."""
        for one in self.below(account) if depth < DEEPEST else ():
            yield depth, one
            yield from self.walk(one.name, depth + 1)

    def of_user(self, user: str) -> list[str]:
        """Return the accounts a user is in, the default first."""
        return self.by_user.get(user, [])

    def account_of(self, user: str, query: str | None) -> str:
        """Return the account of a user's job: the one asked for, else their default, else none.

        Forbidden names the accounts they may use. Without accounts every job is without one, whatever it asks for.
        """
        if not self.accounts:
            return ROOT
        own = self.of_user(user)
        if query is not None:
            if query in own:
                return query
            near = meant(query, own)
            hint = f"{near}; " if near else ""
            raise Forbidden(f"user {user} may not use account {query:.40}; {hint}{_may(user, own)}", accounts=own)
        if not own:
            raise Forbidden(f"user {user} is in no account; ask an operator: rainbow account set NAME --user {user}")
        if len(own) > 1 and not self.members[own[0], user].default:
            raise Forbidden(
                f"user {user} has no default account; use --account NAME: {_may(user, own)}", accounts=own
            )
        return own[0]

    def check(self) -> None:
        """Refuse a tree with an account whose parent is missing, or below itself."""
        for one in self.accounts.values():
            line = self.line(one.name)
            if line[-1].parent != ROOT:
                ring = len(line) > DEEPEST
                text = (
                    f"more than {DEEPEST} levels, or below itself" if ring else f"parent {line[-1].parent} not found"
                )
                raise ValueRefused(f"account {one.name}: {text}", pointer="/parent", account=one.name)


def _may(user: str, own: list[str]) -> str:
    return f"{user} may use: {', '.join(own) or 'none'}"
