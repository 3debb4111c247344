"""The tables of one nodepool, kept while shares are booked on its machines (the original's rearrangeVirtual).

n   machines that nothing is booked on, by order         nMachinesByOrder
v   machines that are partly booked, by what is free     vMachinesByOrder
s   nshares that could be made, by order                 nSharesByOrder
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rainbow.scheduling.fair_share.quanta import Table, added, share_counts


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

    @property
    def s(self) -> Table:
        """Nshares by order that could be made."""
        return share_counts(self.free)

    def fitting(self, order: int) -> int:
        """How many nshares of one order could be made."""
        whole, split = self.n, self.v
        return sum(size // order * (whole[size] + split[size]) for size in range(order, len(whole)))

    def book(self, order: int, machine: int, free: int) -> int:
        """Book one nshare on a machine of order `machine` that has `free` left; return what is left then.

        >>> tables = Tables([0, 2, 0, 1, 4], [0, 1, 2, 0, 0])
        >>> tables.s, tables.book(3, 4, 4), tables.v
        ([0, 26, 11, 5, 4], 1, [0, 2, 2, 0, 0])
        """
        (self.n if free == machine else self.v)[free] -= 1
        left = free - min(order, free)
        if left > 0:
            self.v[left] += 1
        return left

    def count_out(self, order: int, wanted: int) -> int:
        """Take up to `wanted` nshares of `order` away, from the smallest that fit; return how many it took."""
        given, size = 0, order
        while given < wanted and size < len(self.n):
            source = self.v if self.v[size] else self.n
            if not source[size]:
                size += 1
                continue
            source[size] -= 1
            given += 1
            left = size - order
            if left > 0:
                self.v[left] += 1
            size = max(left, order)
        return given
