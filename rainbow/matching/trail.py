"""What a search has taken of a cluster so far, with undo.

    promise   an amount of a pool owed to a subtree, not yet tied to leaves
    less      (position, pool) → amount taken or promised at or below the position
    touched   position → how many things are taken or held at or below it
    held      vertices that a request with children stands on
    whole     vertices taken with everything in them

The one idea: subtrees nest, so promises can be kept exactly when no subtree owes more than it holds (Hall's
condition on a laminar family). Divisible amounts therefore never need a choice while searching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rainbow.matching.model.layout import Layout, Pool


class Trail:
    """The taken part of a layout. `barred` workers offer nothing; `busy` ones are taken already."""

    def __init__(self, layout: Layout, barred: Collection[int] = (), busy: Collection[int] = ()) -> None:
        self.layout = layout
        self.barred = frozenset(barred) | frozenset(busy)
        self.less: dict[tuple[int, Pool], int] = {}
        self.touched: dict[int, int] = {}
        self.held: dict[int, bool] = {}
        self.whole: dict[int, bool] = {}
        self.owed: dict[tuple[int, Pool], int] = {}  # by workers as a whole to others, of no leaves in particular
        self.marked: set[int] = set()  # unlike the equal subtrees elsewhere: contains a barred worker
        self._log: list[tuple[dict[Any, Any], Any, Any]] = []
        end = 0
        for i in sorted(self.barred):
            self.marked.update(layout.up(i))
            if i >= end:  # what is in a barred worker went with it
                self._remove(i, layout.content[i])
                end = layout.last[i]
        for i in busy:
            self.touch(i)
        self.keep()

    # ── undo ──

    def mark(self) -> int:
        """Return a point to come back to."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Go back to a point."""
        while len(self._log) > mark:
            table, key, old = self._log.pop()
            if old is None:
                del table[key]
            else:
                table[key] = old

    def keep(self) -> None:
        """Forget how to go back."""
        self._log.clear()

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._log.append((table, key, table.get(key)))
        table[key] = value

    # ── questions ──

    def room(self, i: int, pool: Pool) -> int:
        """How much of a pool is left below one vertex, counting only what happens there."""
        return self.layout.content[i].get(pool, 0) - self.less.get((i, pool), 0)

    def headroom(self, i: int, pool: Pool) -> int:
        """How much of a pool may still be promised at a vertex without breaking a promise above it."""
        least = self.room(i, pool)
        while i not in self.whole and self.layout.parents[i] >= 0:
            i = self.layout.parents[i]
            least = min(least, self.room(i, pool))
        return max(least, 0)

    def open(self, i: int, scope: int) -> bool:
        """Return whether a vertex may be entered from `scope` (a position above it, or itself)."""
        if i in self.barred or self.layout.worker[i] in self.barred:
            return False
        while i != scope and i >= 0:
            if i in self.whole or i in self.barred:  # a worker may lie in another one
                return False
            i = self.layout.parents[i]
        return not self.lost(scope)

    def shut(self, i: int) -> bool:
        """Return whether a vertex lies in a worker that offers nothing, or is one."""
        return not self.barred.isdisjoint(self.layout.up(i))

    def lost(self, scope: int) -> bool:
        """Return whether a place was taken whole by others; a vertex stood on was taken for what is below it."""
        return scope in self.whole and scope not in self.held

    def untouched(self, i: int) -> bool:
        """Return whether nothing at or below a vertex is taken or held."""
        return not self.touched.get(i)

    def like_its_kind(self, i: int) -> bool:
        """Return whether a vertex offers what each vertex of its kind does: nothing taken, nothing in it barred."""
        return not self.touched and i not in self.marked

    # ── moves: each returns False (and must be undone) if it breaks a promise ──

    def promise(self, i: int, pool: Pool, amount: int) -> bool:
        """Owe an amount to the subtree of a vertex."""
        self.touch(i)
        return self._debit(i, pool, amount)

    def owe(self, i: int, pool: Pool, amount: int) -> None:
        """Owe an amount to others for good, of no leaves in particular of a worker."""
        self.owed[i, pool] = self.owed.get((i, pool), 0) + amount
        self.promise(i, pool, amount)

    def hold_amount(self, i: int, amount: int) -> None:
        """Note what others hold of a leaf; one that is used up is closed to requests that stand on it."""
        self.promise(i, self.layout.pool(i), amount)
        if amount >= self.layout.amount(i):
            self._set(self.whole, i, True)

    def hold(self, i: int) -> bool:
        """Stand on a vertex, against other requests with children."""
        self.touch(i)
        self._set(self.held, i, True)
        return True

    def take_whole(self, i: int) -> bool:
        """Take a vertex and everything in it; what is inside is left to the taker."""
        above = self.layout.parents[i]
        inside = {pool: self.room(i, pool) for pool in self.layout.content[i]}
        self.touch(i)
        self._set(self.whole, i, True)
        stored = [self._debit(above, pool, amount) for pool, amount in inside.items() if amount]
        return all(stored)

    def touch(self, i: int) -> None:
        """Note that something is taken or held at a vertex."""
        for at in self.layout.up(i):
            self._set(self.touched, at, self.touched.get(at, 0) + 1)

    def _remove(self, i: int, amounts: Mapping[Pool, int]) -> None:
        for pool, amount in amounts.items():
            self._debit(i, pool, amount - self.less.get((i, pool), 0))

    def _debit(self, i: int, pool: Pool, amount: int) -> bool:
        stored = True
        while i >= 0:
            self._set(self.less, (i, pool), self.less.get((i, pool), 0) + amount)
            stored = stored and self.room(i, pool) >= 0
            if i in self.whole:  # above it, everything inside is debited already
                break
            i = self.layout.parents[i]
        return stored
