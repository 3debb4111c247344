"""Quanta: the sizes of the DUCC Resource Manager.

    quantum   the smallest amount that is given away, by default of memory
    qshare    one quantum
    nshare    n qshares on one machine: what one process, service instance or reservation holds
    order     how many qshares something has, holds or asks for
    table     t[o] for o = 1, 2, …: how many machines have o qshares free; t[0] is not used

Jobs round up, machines round down: a job never gets less than it asked for, a machine never gives more than it has.
"""

from __future__ import annotations

from collections.abc import Sequence

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
