"""Weighted fair shares of things that have sizes (DUCC's apportionQShares).

    entity    a class, a user or a job: a weight, and how many nshares of every order it wants
    deserved  qshares its weight stands for in a pass, of all that is left
    ideal     qshares its weight stands for among the nshares of one order

Passes over decreasing order: large shares are given while large machines are whole, what they leave is cut into
small ones. An entity too light for a single share is rounded up to one; the rest goes round one at a time (bonus).

`classic` repeats DUCC to the last share, its faults included: its bonus forgets what an entity still wants,
it gives up while something fits, and the odd share of every pass goes to the same entity.
See docs/design/fair-share-corrects-the-resource-manager.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from rainbow.scheduling.fair_share.share_tables import Table, remove, share_counts, total_quanta


@dataclass(slots=True)
class Entity:
    """One claimant: `wanted` and `given` count nshares by order; it gets no more than `most` of them in all."""

    name: str
    weight: float
    wanted: Table
    given: Table
    most: int | None = None

    @property
    def room(self) -> int:
        """How many nshares it may still be given."""
        return sum(self.wanted) if self.most is None else max(0, self.most - sum(self.given))


def apportion(entities: Sequence[Entity], table: Table, classic: bool = False) -> None:
    """Give the machines of `table` to entities, in place: they get, want less, and the table shrinks.

    >>> jobs = [Entity(name, 1, wanted, [0, 0, 0]) for name, wanted in (("a", [0, 9, 0]), ("b", [0, 0, 9]))]
    >>> apportion(jobs, [0, 0, 4]); [job.given for job in jobs]
    [[0, 4, 0], [0, 0, 2]]
    """
    if classic:
        _serve(entities, table, classic=True)
        return
    machines, requirements = list(table), [list(e.wanted) for e in entities]
    able = _servable(entities, table)
    first: list[Entity] = []
    while True:
        _first_share(first, table)
        _serve(entities, table, classic=False)
        short = _left_out(able, first)
        if not short:
            return
        first = able if first else short  # who lost by the first round is served in the second, beside everybody
        table[:] = machines
        for e, before in zip(entities, requirements, strict=True):
            e.wanted[:], e.given[:] = before, [0] * len(before)


def _serve(entities: Sequence[Entity], table: Table, classic: bool) -> None:
    working = list(entities) if classic else _servable(entities, table)
    while working and _pass(working, table, classic):
        working = _servable(working, table)
    _bonus(entities, table, classic)
    if not classic:
        _remnants(entities, table)


def _left_out(able: Sequence[Entity], served: Sequence[Entity]) -> list[Entity]:
    """Return those with nothing while another holds, for its weight, more than one largest share beyond."""
    largest = max((o for e in able for o, count in enumerate(e.given) if count), default=0)
    most = max((total_quanta(e.given) / e.weight for e in able), default=0.0)
    known = {e.name for e in served}
    return [e for e in able if not any(e.given) and e.name not in known and most * e.weight > largest]


def _first_share(entities: Sequence[Entity], table: Table) -> None:
    """Give each its smallest share before all else, the largest of these first as they fit on the fewest machines."""

    def size(e: Entity) -> int:
        return next(o for o, requirement in enumerate(e.wanted) if requirement)

    for e in sorted(entities, key=lambda e: -size(e)):
        o = size(e)
        if remove(table, 1, o):
            e.given[o] += 1
            e.wanted[o] -= 1


def _servable(entities: Sequence[Entity], table: Table) -> list[Entity]:
    counts = share_counts(table)
    return [e for e in entities if _served_by(e, counts)]


def _served_by(e: Entity, counts: Table) -> bool:
    return e.room > 0 and any(requirement and counts[o] for o, requirement in enumerate(e.wanted))


def _pass(working: Sequence[Entity], table: Table, classic: bool) -> bool:
    """Give once, by decreasing order; return whether anything was given."""
    counts = share_counts(table)
    deserved = _deserved(working, counts[1] if len(counts) > 1 else 0, classic)
    weight = sum(e.weight for e in working)
    got = [0] * len(working)
    for o in range(len(table) - 1, 0, -1):
        if not counts[o]:
            continue
        taken = 0
        for k, e in enumerate(working):
            if e.wanted[o]:
                ideal = counts[o] * (e.weight / weight) * o
                grants = _whole(min(max(0, deserved[k] - got[k]), ceil(ideal)), o)
                grants = min(grants, e.wanted[o], counts[o] - taken, e.room)
                e.given[o] += grants
                e.wanted[o] -= grants
                got[k] += grants * o
                taken += grants
        if taken:
            remove(table, taken, o)
            counts = share_counts(table)
        weight = _unsatisfied(working, deserved, got, weight, classic)
        if weight <= 0:
            break
    return any(got)


def _unsatisfied(
    working: Sequence[Entity], deserved: Sequence[int], got: Sequence[int], weight: float, classic: bool
) -> float:
    """Return the weight of those that lack some of their part: classic, what has it is taken off at every order."""
    if classic:
        return weight - sum(e.weight for k, e in enumerate(working) if deserved[k] <= got[k])
    return sum(e.weight for k, e in enumerate(working) if deserved[k] > got[k])


def _whole(quanta: int, order: int) -> int:
    """Round down to whole nshares, but a small claim up to one."""
    return quanta // order or min(1, quanta)


def _deserved(working: Sequence[Entity], quanta: int, classic: bool) -> list[int]:
    """Divide by weight; the odd ones go to the claimant with least for its weight, classic: to the first."""
    weight = sum(e.weight for e in working)
    deserved = [floor(quanta * (e.weight / weight)) for e in working] if classic else _owed(working, quanta)
    turn = list(range(len(working)))
    if not classic:
        turn.sort(key=lambda k: (total_quanta(working[k].given) + deserved[k] + 1) / working[k].weight)
    for seat in range(quanta - sum(deserved)):
        deserved[turn[seat % len(turn)]] += 1
    return deserved


def _owed(working: Sequence[Entity], quanta: int) -> list[int]:
    """Divide the quanta left so that all have the same for their weight, with what they were given before."""
    held = [total_quanta(e.given) for e in working]
    among = list(range(len(working)))
    while True:
        level = (quanta + sum(held[k] for k in among)) / sum(working[k].weight for k in among)
        below = [k for k in among if held[k] < level * working[k].weight]
        if len(below) == len(among):
            break
        among = below
    owed = [0] * len(working)
    for k in among:
        owed[k] = floor(level * working[k].weight) - held[k]
    return owed


def _bonus(entities: Sequence[Entity], table: Table, classic: bool) -> None:
    """Hand round what is left, one share at a time, to claimants that a free size fits exactly."""
    more = True
    while more:
        more = False
        for e in entities:
            for o in range(len(table) - 1, 0, -1):
                if e.wanted[o] and table[o] and e.room:
                    e.given[o] += 1
                    e.wanted[o] -= 0 if classic else 1
                    table[o] -= 1
                    more = True


def _remnants(entities: Sequence[Entity], table: Table) -> None:
    """Hand round what fits only by splitting, to the claimant that would still have least for its weight."""
    while claims := _servable(entities, table):
        e = min(claims, key=lambda claim: (total_quanta(claim.given) + 1) / claim.weight)
        counts = share_counts(table)
        o = max(o for o, requirement in enumerate(e.wanted) if requirement and counts[o])
        e.given[o] += 1
        e.wanted[o] -= 1
        remove(table, 1, o)
