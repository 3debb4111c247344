"""Fair share factors by Slurm's fair tree (priority/multifactor, FAIR_TREE).

    shares    of an account or user, divided by those of its siblings
    used      its usage divided by its parent's
    level     shares / used: above 1 it has used less than its share of what its parent used
    factor    place in the order / number of users, from 1 (first) down

The tree is walked from the root. Siblings are ordered by level; all users of a better account come before all users
of a worse one, however much each has used. Equal users share a place; equal accounts are walked as if they were one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from math import inf

from rainbow.accounts.tree import ROOT, Account, Member, Tree

Usage = Mapping[tuple[str, str], float]  # decayed, by account and user


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an account or a user is in the fair tree. `factor` of an account: that of its first user."""

    shares: float  # of its siblings', 0 to 1
    usage: float
    used: float  # of its parent's usage, 0 to 1
    level: float  # shares / used; infinite where nothing is used
    factor: float = 0.0
    ahead: int = 0  # accounts (of an account) or users (of a user) that come first

    @property
    def percent(self) -> int:
        """The used part of its share, in percent."""
        return round(100 * self.used / self.shares) if self.shares else 0


Node = Account | Member
Key = str | tuple[str, str]


def standings(tree: Tree, usage: Usage) -> dict[Key, Standing]:
    """Return where each account (by name) and each member (by account and user) is.

    >>> tree = Tree.of([Account("a"), Account("b")], [Member("a", "ann"), Member("b", "bob")])
    >>> found = standings(tree, {("a", "ann"): 3.0, ("b", "bob"): 1.0})
    >>> found["a", "ann"].factor, found["b", "bob"].factor, found["a"].percent
    (0.5, 1.0, 150)
    """
    walk = _Walk(tree, usage)
    walk.level([ROOT], tied=False)
    walk.count_accounts()
    return walk.found


class _Walk:
    def __init__(self, tree: Tree, usage: Usage) -> None:
        self.tree = tree
        self.own = _sums(tree, usage)
        self.children = _children(tree)
        self.users = self.rank = self.tied_rank = len(tree.members)
        self.found: dict[Key, Standing] = {}
        self.accounts: list[tuple[str, bool]] = []  # in order, and whether one is tied with that before it

    def level(self, parents: list[str], tied: bool) -> None:
        """Order the children of these parents, which count as one, and go down."""
        nodes = [node for parent in parents for node in self._measured(parent)]
        nodes.sort(key=lambda node: (-self.found[_key(node)].level, isinstance(node, Account)))
        before: float | None = None
        for level, group in groupby(nodes, key=lambda node: self.found[_key(node)].level):
            alike = list(group)
            for node in (node for node in alike if isinstance(node, Member)):
                tied = before == level or (before is None and tied)
                before = level
                self._place(node, tied)
            accounts = [node.name for node in alike if isinstance(node, Account)]
            if accounts:
                tied = before == level or (before is None and tied)
                before = level
                self.accounts += [(name, tied or k > 0) for k, name in enumerate(accounts)]
                self.level(accounts, tied)

    def _measured(self, parent: str) -> list[Node]:
        """Return a parent's children, and record their parts of its usage."""
        nodes = self.children.get(parent, [])
        whole, shares = self.own[parent], sum(node.shares or 0 for node in nodes)
        for node in nodes:
            self.found[_key(node)] = self._standing(node, whole, shares)
        return nodes

    def _standing(self, node: Node, whole: float, shares: int) -> Standing:
        own = self.own[_key(node)]
        share = (node.shares or 0) / shares if shares else 0.0
        used = own / whole if whole else 0.0
        level = 0.0 if share <= 0 else share / used if used else inf
        return Standing(share, own, used, inf if node.shares is None else level)

    def _place(self, node: Member, tied: bool) -> None:
        if not tied:
            self.tied_rank = self.rank
        self.rank -= 1
        known = self.found[node.key]
        factor, ahead = self.tied_rank / self.users, self.users - self.tied_rank
        self.found[node.key] = Standing(known.shares, known.usage, known.used, known.level, factor, ahead)

    def count_accounts(self) -> None:
        """Note of each account how many come before it, and the factor of its first user."""
        best: dict[str, float] = {}
        for member in self.tree.members.values():
            for account in self.tree.line(member.account):
                best[account.name] = max(best.get(account.name, 0.0), self.found[member.key].factor)
        for name, account in self.tree.accounts.items():
            known = self.found.get(name) or Standing(0.0, self.own[name], 0.0, 0.0)
            beside = [one for one in self.children.get(_above(self.tree, account), []) if isinstance(one, Account)]
            ahead = sum(self.found[one.name].level > known.level for one in beside)
            self.found[name] = Standing(
                known.shares, known.usage, known.used, known.level, best.get(name, 0.0), ahead
            )


def _sums(tree: Tree, usage: Usage) -> dict[Key, float]:
    """Add up usage, from users to the root."""
    sums: dict[Key, float] = {ROOT: 0.0, **dict.fromkeys(tree.accounts, 0.0), **dict.fromkeys(tree.members, 0.0)}
    for key, amount in usage.items():
        if key in tree.members:
            sums[key] = amount
        for account in tree.line(key[0]):
            sums[account.name] += amount
        sums[ROOT] += amount
    return sums


def _children(tree: Tree) -> dict[str, list[Node]]:
    result: dict[str, list[Node]] = {}
    for account in tree.accounts.values():
        if account.shares is not None:
            result.setdefault(_above(tree, account), []).append(account)
    for member in tree.members.values():
        parent = tree.accounts.get(member.account)
        above = _above(tree, parent) if parent and parent.shares is None else member.account
        result.setdefault(above, []).append(member)
    return result


def _above(tree: Tree, account: Account) -> str:
    """Return the nearest account above that has shares of its own."""
    line = tree.line(account.name)[1:]
    return next((one.name for one in line if one.shares is not None), ROOT)


def _key(node: Node) -> Key:
    return node.name if isinstance(node, Account) else node.key
