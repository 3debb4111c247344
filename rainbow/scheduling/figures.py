"""What people are told of a load-based round: the table of the founding text, and why jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rainbow.scheduling import away
from rainbow.scheduling.census import Census
from rainbow.scheduling.english import some
from rainbow.scheduling.policy import Rest, Wait

if TYPE_CHECKING:
    from rainbow.scheduling.load_based import Round


def figures(round_: Round) -> dict[str, Any]:
    """Return workers in all, the spread, since when it is too large, and by class the table's columns."""
    target = round_.counting.targets(round_.counts(1))
    return {
        "workers": round_.placing.ready,
        "unit": round_.placing.unit,
        "units": round_.placing.total,
        "idle": round_.placing.left,
        "spread": round(round_.spread, 3) if round_.placing.ready else 0.0,
        "over_since": round_.excess,
        "classes": {name: _row(round_, name, target[name]) for name in round_.classes.percents},
    }


def _row(round_: Round, name: str, target: int) -> dict[str, Any]:
    held = round_.held[name]
    return {
        "percent": round(round_.classes.percents[name], 3),
        "target": target,
        "running": round_.running[name],
        "held": held,
        "loaned": max(0, held - target),
        "unused": max(0, target - held),
        "waiting": round_.queues[name].tasks,
    }


def waits(round_: Round) -> Iterator[Wait]:
    """Say of the jobs that came to their turn and could not start why that is."""
    for queue in round_.queues.values():
        yield from queue.stuck.values()


def rest_of(round_: Round) -> Rest:
    """Say why all the others wait."""
    return ShareUsed(round_) if round_.placing.ready else NoWorker(round_.census)


class NoWorker:
    """Why all jobs wait of a cluster without workers that take tasks."""

    reason = "no-worker-ready"

    def __init__(self, census: Census) -> None:
        self._census = census

    @property
    def common(self) -> str:
        """What all of them are told."""
        return f"no worker is ready: {away.told(self._census)}"

    def of(self, job: str) -> Wait:
        """Say it of one job."""
        return Wait(job, self.reason, self.common, away.facts(self._census))


class ShareUsed:
    """Why all other jobs wait: their class has its share, or its turn has not come. Asked while the round lasts."""

    reason = "share-used"

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._target = round_.counting.targets(round_.counts(1))

    def of(self, job: str) -> Wait:
        """Say it of one job."""
        round_, view = self._round, self._round.census.jobs[job]
        name = round_.classes.of(view.requestor)
        held, idle, target = round_.held[name], round_.placing.left, self._target[name]
        ahead = round_.queues[name].ahead(view)
        facts = {"class": name, "held": held, "target": target, "idle": idle, "ahead": ahead}
        own = some(target, round_.placing.unit)
        text = f"class {name} holds {held} of its {own}, {idle} idle; {some(ahead, 'job')} ahead"
        return Wait(job, self.reason, text, facts)
