"""The resource diagram: what is in use, over time, of every worker and of the cluster as a whole.

    line      one Profile for every (worker, type); what belongs to no worker stands under the worker ""
    amounts   {type: amount}
    placement {worker: amounts}

Running tasks, reservations, advance reservations and closed hours are all entered the same way, so that one
question answers for all of them: is this much free here for the whole of that time?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite

from rainbow.scheduling.profile import Profile

Amounts = Mapping[str, int]
Line = tuple[str, str]


class Timeline:
    """Use over time against capacities."""

    def __init__(self, capacity: Mapping[str, Amounts]) -> None:
        self.capacity = {worker: dict(amounts) for worker, amounts in capacity.items()}
        self.lines: dict[str, dict[str, Profile]] = {worker: {} for worker in capacity}
        self._sums: dict[tuple[str, frozenset[str]], tuple[Profile, int]] = {}

    # ── changes ──

    def add(self, placement: Mapping[str, Amounts], start: float, end: float) -> None:
        """Enter a booking over [start, end)."""
        for worker, amounts in placement.items():
            lines = self.lines.setdefault(worker, {})
            for kind, amount in amounts.items():
                if not amount:
                    continue
                if kind not in lines:
                    lines[kind] = Profile()
                lines[kind].add(start, end, amount)
                for (summed, workers), (use, _) in self._sums.items():
                    if summed == kind and worker in workers:
                        use.add(start, end, amount)

    def fill(self, bookings: Iterable[tuple[Mapping[str, Amounts], float, float]]) -> None:
        """Enter many bookings at once, (placement, start, end) each; cheaper than one by one."""
        changes: dict[Line, dict[float, int]] = {}
        for placement, start, end in bookings:
            if not start < end:
                continue
            for worker, amounts in placement.items():
                for kind, amount in amounts.items():
                    if amount:
                        line = changes.setdefault((worker, kind), {})
                        line[start] = line.get(start, 0) + amount
                        line[end] = line.get(end, 0) - amount
        for (worker, kind), line in changes.items():
            lines = self.lines.setdefault(worker, {})
            before = [lines[kind]] if kind in lines else []
            lines[kind] = Profile.total([*before, Profile.of(line)]) if before else Profile.of(line)
        self._sums.clear()

    def remove(self, placement: Mapping[str, Amounts], start: float, end: float) -> None:
        """Take a booking out again."""
        self.add({w: {kind: -amount for kind, amount in a.items()} for w, a in placement.items()}, start, end)

    # ── questions ──

    def used(self, worker: str, kind: str, start: float, end: float) -> int:
        """The largest use at any time in [start, end)."""
        line = self.lines.get(worker, {}).get(kind)
        return line.most(start, end) if line else 0

    def free(self, worker: str, kind: str, start: float, end: float) -> int:
        """How much is free for the whole of [start, end)."""
        capacity, lines = self.capacity.get(worker), self.lines.get(worker)
        line = lines.get(kind) if lines else None
        return (capacity.get(kind, 0) if capacity else 0) - (line.most(start, end) if line is not None else 0)

    def free_at(self, worker: str, kind: str, time: float) -> int:
        """How much is free at one moment."""
        line = self.lines.get(worker, {}).get(kind)
        return self.capacity.get(worker, {}).get(kind, 0) - (line.level(time) if line else 0)

    def copies(self, worker: str, amounts: Amounts, start: float, end: float) -> float:
        """How many times these amounts are free for the whole of [start, end); inf if they are nothing."""
        most = inf
        for kind, amount in amounts.items():
            if amount:
                most = min(most, max(0, self.free(worker, kind, start, end)) // amount)
                if most == 0:
                    break
        return most

    def fits(self, placement: Mapping[str, Amounts], start: float, end: float) -> bool:
        """Tell whether all of a placement is free for the whole of [start, end)."""
        return all(self.copies(worker, amounts, start, end) >= 1 for worker, amounts in placement.items())

    def earliest(self, placement: Mapping[str, Amounts], after: float, duration: float) -> float:
        """The first time from `after` on when a placement fits for the whole duration; inf: never."""
        start, settled = after, False
        while not settled and start < inf:
            settled = True
            for worker, amounts in placement.items():
                for kind, amount in amounts.items():
                    fits = self._first_fit(worker, kind, amount, start, duration)
                    settled = settled and fits == start
                    start = fits
        return start

    def _first_fit(self, worker: str, kind: str, amount: int, after: float, duration: float) -> float:
        limit = self.capacity.get(worker, {}).get(kind, 0) - amount
        if limit < 0:
            return inf if amount else after
        line = self.lines.get(worker, {}).get(kind)
        return line.first_fit(after, duration, limit) if line else after

    def sum_over(self, workers: frozenset[str], kind: str) -> tuple[Profile, int]:
        """Return the use of a type summed over workers, and their capacity; kept up to date once it was asked for."""
        if (kind, workers) not in self._sums:
            lines = (self.lines.get(worker, {}).get(kind) for worker in workers)
            capacity = sum(self.capacity.get(worker, {}).get(kind, 0) for worker in workers)
            self._sums[kind, workers] = Profile.total(line for line in lines if line), capacity
        return self._sums[kind, workers]

    def ends(self, workers: Mapping[str, Amounts] | None = None, after: float = -inf) -> list[float]:
        """Times after `after` at which something becomes free, ascending; only on some workers if named."""
        lines = self.lines if workers is None else {w: self.lines.get(w, {}) for w in workers}
        found = {t for by_kind in lines.values() for line in by_kind.values() for t in line.ends_after(after)}
        return sorted(found - {inf})

    def entries(self) -> Iterator[tuple[Line, Profile]]:
        """Yield the lines that hold anything, by worker, then type."""
        for worker in sorted(self.lines):
            for kind in sorted(self.lines[worker]):
                if self.lines[worker][kind]:
                    yield (worker, kind), self.lines[worker][kind]

    # ── for people ──

    def text(self, now: float = 0.0) -> str:
        """Print one line for every worker and type: use from each time on (seconds from `now`), of the capacity."""
        rows = []
        for (worker, kind), line in self.entries():
            levels = {_whole(time - now): level for time, level in line}  # of several in one second, the last holds
            steps = "  ".join(f"{seconds}:{level}" for seconds, level in levels.items())
            rows.append(f"{worker or '(cluster)'} {kind} of {self.capacity.get(worker, {}).get(kind, 0)}  {steps}")
        return "\n".join(rows)


def _whole(seconds: float) -> str:
    return str(round(seconds)) if isfinite(seconds) else str(seconds)
