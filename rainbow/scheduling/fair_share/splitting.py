"""Taking nshares out of a table of machines while splitting as few machines as possible."""

from __future__ import annotations

from rainbow.scheduling.fair_share.quanta import Table


def remove(table: Table, count: int, order: int) -> int:
    """Take up to `count` nshares of `order` out of the table, in place; return how many it gave.

    First the machines that a whole number of nshares fills, smallest first; then whatever is large enough,
    smallest first, the rest of which becomes a smaller machine.

    >>> table = [0, 1, 1, 0, 0, 1]
    >>> remove(table, 1, 3), table
    (1, [0, 1, 2, 0, 0, 0])
    """
    left = count - _from_multiples(table, count, order)
    for size in range(order, len(table)):
        while left > 0 and table[size] > 0:
            given = min(left, size // order)
            _use(table, size, given * order)
            left -= given
    return count - left


def _from_multiples(table: Table, count: int, order: int) -> int:
    left = count
    for size in range(order, len(table), order):
        if left == 0:
            break
        each = size // order
        whole = min(left // each, table[size])
        table[size] -= whole
        left -= whole * each
        if table[size] and 0 < left < each:
            _use(table, size, left * order)
            left = 0
    return count - left


def _use(table: Table, size: int, quanta: int) -> None:
    """Take so many quanta of one machine with `size` free."""
    table[size] -= 1
    if size > quanta:
        table[size - quanta] += 1
