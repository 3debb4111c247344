"""Tables of shares by size, in the terms of the DUCC Resource Manager.

    quantum   the smallest amount that is given away, by default of memory
    qshare    one quantum
    nshare    n qshares on one machine: what one process, service instance or reservation holds
    order     how many qshares something has, holds or asks for
    table     t[o] for o = 1, 2, …: how many machines have o qshares free; t[0] is not used

Jobs round up, machines round down: a job never gets less than it asked for, a machine never gives more than it has.

The tables of one nodepool, kept while shares are booked on its machines (DUCC's rearrangeVirtual):

n   machines that nothing is booked on, by order         nMachinesByOrder
v   machines that are partly booked, by what is free     vMachinesByOrder
s   nshares that could be made, by order                 nSharesByOrder
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Table = list[int]


def job_order(amount: int, quantum: int) -> int:
    """How many quanta a request of `amount` takes, at least one.

    >>> job_order(16, 15), job_order(15, 15)
    (2, 1)
    """
    return max(1, -(-amount // quantum))


def machine_order(amount: int, quantum: int) -> int:
    """How many quanta a machine with `amount` can give.

    >>> machine_order(44, 15)
    2
    """
    return amount // quantum


def share_counts(table: Sequence[int]) -> Table:
    """Count the nshares of every order that could be made: the alternatives, not a sum (nSharesByOrder).

    >>> share_counts([0, 3, 2, 1, 4])
    [0, 26, 11, 5, 4]
    """
    counts = list(table)
    filled = [p for p in range(1, len(table)) if table[p]]
    for o in range(1, len(table)):
        counts[o] += sum(p // o * table[p] for p in filled if p > o)
    return counts


def total_quanta(table: Sequence[int]) -> int:
    """Sum the qshares of a table."""
    return sum(o * count for o, count in enumerate(table))


def added(one: Sequence[int], other: Sequence[int]) -> Table:
    """Add two tables."""
    if len(one) < len(other):
        one, other = other, one
    return [count + (other[o] if o < len(other) else 0) for o, count in enumerate(one)]


def remove(table: Table, count: int, order: int) -> int:
    """Take up to `count` nshares of `order` out of the table, in place; return how many it gave.

    First the machines that a whole number of nshares fills, smallest first; then whatever is large enough,
    smallest first, the rest of which becomes a smaller machine.

    >>> table = [0, 1, 1, 0, 0, 1]
    >>> remove(table, 1, 3), table
    (1, [0, 1, 2, 0, 0, 0])
    """
    remaining = count - _from_multiples(table, count, order)
    for size in range(order, len(table)):
        while remaining > 0 and table[size] > 0:
            grants = min(remaining, size // order)
            _use(table, size, grants * order)
            remaining -= grants
    return count - remaining


def _from_multiples(table: Table, count: int, order: int) -> int:
    remaining = count
    for size in range(order, len(table), order):
        if remaining == 0:
            break
        each = size // order
        whole = min(remaining // each, table[size])
        table[size] -= whole
        remaining -= whole * each
        if table[size] and 0 < remaining < each:
            _use(table, size, remaining * order)
            remaining = 0
    return count - remaining


def _use(table: Table, size: int, quanta: int) -> None:
    """Take so many quanta of one machine with `size` free."""
    table[size] -= 1
    if size > quanta:
        table[size - quanta] += 1


@dataclass(slots=True)
class Tables:
    """How many machines are whole and how many are split, by what they have free."""

    n: Table
    v: Table

    @classmethod
    def of(cls, machines: Iterable[tuple[int, int]], longest: int) -> Tables:
        """Build them from (order, free) of every machine; `longest` is the largest order there is."""
        tables = cls([0] * (longest + 1), [0] * (longest + 1))
        for order, free in machines:
            if free > 0:
                (tables.n if free == order else tables.v)[free] += 1
        return tables

    def copy(self) -> Tables:
        """Return tables of their own with the same counts."""
        return Tables(list(self.n), list(self.v))

    @property
    def free(self) -> Table:
        """Machines by what they have free, whole or split."""
        return added(self.n, self.v)

    def fitting(self, order: int) -> int:
        """How many nshares of one order could be made."""
        whole, split = self.n, self.v
        return sum(size // order * (whole[size] + split[size]) for size in range(order, len(whole)))

    def book(self, order: int, machine: int, free: int) -> int:
        """Book one nshare on a machine of order `machine` that has `free` left; return what is left then.

        >>> tables = Tables([0, 2, 0, 1, 4], [0, 1, 2, 0, 0])
        >>> share_counts(tables.free), tables.book(3, 4, 4), tables.v
        ([0, 26, 11, 5, 4], 1, [0, 2, 2, 0, 0])
        """
        (self.n if free == machine else self.v)[free] -= 1
        remaining = free - min(order, free)
        if remaining > 0:
            self.v[remaining] += 1
        return remaining

    def count_out(self, order: int, demand: int) -> int:
        """Take up to `demand` nshares of `order` away, from the smallest that fit; return how many it took."""
        grants, size = 0, order
        while grants < demand and size < len(self.n):
            source = self.v if self.v[size] else self.n
            if not source[size]:
                size += 1
                continue
            source[size] -= 1
            grants += 1
            remaining = size - order
            if remaining > 0:
                self.v[remaining] += 1
            size = max(remaining, order)
        return grants
