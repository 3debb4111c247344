"""How often the vertices of one type can each be stood on, counted over kinds in the order of vertices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rainbow.matching.copies import Standing
    from rainbow.matching.kinds import Kind
    from rainbow.matching.tally import State, Tally

Runs = list[tuple[int, int]]  # (capacity, how many neighbours have it)


def capacities(standing: Standing, tally: Tally) -> Runs | None:
    """Return how many copies each vertex that `standing.host` can stand on gives to, None if one is in no worker."""
    top = tally.columns.part_of[standing.number].top
    found: dict[State, Runs] = {}
    for state, kind in sorted(tally.kinds.items(), key=lambda item: item[0].number):
        if not tally.found[state][top]:
            found[state] = []
        elif kind.type != standing.host.type:
            found[state] = _below(kind, state, tally, found)
        elif not tally.here(kind, state).within:
            return None
        else:
            found[state] = [(_capacity(standing, kind), 1)]
    return found[tally.start]


def _capacity(standing: Standing, kind: Kind) -> int:
    room = min(kind.content[pool] // n for pool, n in standing.amounts.items())
    return min(room, 1) if standing.host.exclusive else room  # children were met one by one, not together


def _below(kind: Kind, state: State, tally: Tally, found: dict[State, Runs]) -> Runs:
    runs: Runs = []
    for child, many in kind.runs:
        inside = found.get(tally.child(kind, state, child))
        for capacity, times in _repeated(inside or [], many):
            if runs and runs[-1][0] == capacity:
                runs[-1] = (capacity, runs[-1][1] + times)
            else:
                runs.append((capacity, times))
    return runs


def _repeated(runs: Runs, many: int) -> Runs:
    return [(runs[0][0], runs[0][1] * many)] if len(runs) == 1 else runs * many
