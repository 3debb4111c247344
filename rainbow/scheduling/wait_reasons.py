"""Why jobs wait after a load-based round: what each of them lacks, told once for all that ask for the same.

passed over   its turn came and it could not start; jobs of one class that ask for the same share the reason
not reached   its class has what it is granted; what the job itself lacks is looked up by what it asks for
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.scheduling import away
from rainbow.scheduling.census import Census
from rainbow.scheduling.english import rfc3339, some
from rainbow.scheduling.policy import GangView, JobView, Rest, Wait
from rainbow.scheduling.reserved import Amounts, Reserved, next_end

if TYPE_CHECKING:
    from rainbow.scheduling.load_based import Round

SHARE, LOANED = "share-used", "on-loan"
OWN = ("no-ready-host", "consumables", "share-too-small", "reserving")


def unhosted(round_: Round, job: JobView) -> Wait:
    """Say that no ready worker could ever host what a job waits to start."""
    ready, others = round_.placing.ready, away.told(round_.census)
    text = f"0 of {some(ready, 'ready worker')} can run this job{others and f'; {others}'}"
    return Wait(job.id, "no-ready-host", text, {"ready": ready, **away.facts(round_.census)})


def passed_over(round_: Round, name: str, held: Reserved, lacking: Amounts) -> Wait:
    """Say why the job whose turn it was could not start."""
    placing, target = round_.placing, round_.target[name]
    wanted = placing.cost(held.gang)
    if lacking:
        return _lacks_outside(round_, held.job, lacking)
    if wanted > target and round_.counting.repeats:
        return _beyond(round_, name, held.job, wanted)
    if held.gang.question in placing.hopeless:
        return _busy(round_, name, held.job, held.gang, held.units)
    using = f"class {name} is using {round_.held[name]} of {some(target, placing.unit)}"
    text = f"{using}; needs {wanted} more at the same time, {held.units} reserved"
    facts = {"class": name, "held": round_.held[name], "target": target, "wanted": wanted, "kept": held.units}
    return Wait(held.job.id, SHARE, text, facts)


def first_in_line(round_: Round, held: Reserved, lacking: Amounts) -> Wait:
    """Say what is reserved for the gang that is first in line, and until when at the latest."""
    placing, name = round_.placing, round_.classes.of(held.job.requestor)
    wanted, target, at = placing.cost(held.gang), round_.target[name], rfc3339(held.at)
    loan = max(0, round_.held[name] + held.units - target)
    by = f"starts by {at}" if at else "the tasks on the others have no time limit"
    beside = "".join(f", {some(held.outside.get(kind, 0), kind, kind)}" for kind in lacking)
    text = f"{held.units} of {some(wanted, placing.unit)}{beside} reserved, first in line; {by}"
    facts = {"class": name, "wanted": wanted, "kept": held.units, "target": target, "loan": loan, "at": at}
    return Wait(held.job.id, "reserving", text, {**facts, "cluster_wide": dict(lacking)} if lacking else facts)


def _lacks_outside(round_: Round, job: JobView, lacking: Amounts) -> Wait:
    free = {kind: max(0, round_.placing.consumables.get(kind, 0)) for kind in lacking}
    parts = [f"{free[kind]} of {amount} {kind} free" for kind, amount in sorted(lacking.items())]
    return Wait(job.id, "consumables", f"cluster-wide: {', '.join(parts)}", {"wanted": dict(lacking), "free": free})


def _beyond(round_: Round, name: str, job: JobView, wanted: int) -> Wait:
    """Say that a gang is larger than its class's target, and when it may go beyond it."""
    patience, target, unit = round_.patience, round_.target[name], round_.placing.unit
    due = rfc3339(patience.due(job, name))
    begin = (
        f"more from {due}" if patience.due(job, name) > patience.now else f"{len(patience.line)} in line before it"
    )
    text = f"needs {some(wanted, unit)} at the same time, class {name} may use {target}; {begin}"
    return Wait(job.id, "share-too-small", text, {"class": name, "wanted": wanted, "target": target, "from": due})


def _busy(round_: Round, name: str, job: JobView, gang: GangView, kept: int) -> Wait:
    """Say that too little is idle of what a gang could run on."""
    placing = round_.placing
    wanted, idle, ready = placing.cost(gang), placing.idle_for(gang), placing.ready_for(gang)
    if placing.unit == "worker":
        text = (
            f"{idle} of {some(ready, 'worker')} that can run it {'is' if idle == 1 else 'are'} idle, {wanted} needed"
        )
    else:
        text = f"{some(idle, placing.unit)} free on {some(ready, 'worker')} that can run it, {wanted} needed together"
    text += f"; {kept} reserved" if kept else ""
    facts = {"class": name, "wanted": wanted, "idle": idle, "hosts": ready, "kept": kept}
    return Wait(job.id, f"{placing.unit}s-busy", text, facts)


def rest_of(round_: Round) -> Rest:
    """Say why all the others wait."""
    return NotReached(round_) if round_.placing.ready else NoWorker(round_.census)


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


class NotReached:
    """Why all other jobs wait: what they ask for is taken, their class has its share, or their turn has not come.

    Asked while the round lasts; what is the same for all that ask for the same is looked up once.
    """

    reason = SHARE

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.reasons = frozenset({SHARE, LOANED, f"{round_.placing.unit}s-busy", *OWN})
        self._short: dict[tuple[str, int | str], Wait | None] = {}
        self._loans: tuple[dict[str, int], float] | None = None

    def reason_of(self, job: str) -> str:
        """Name the reason of one job."""
        short = self._lacks(self._round.census.jobs[job])
        return short.reason if short else SHARE

    def of(self, job: str) -> Wait:
        """Say it of one job."""
        round_, view = self._round, self._round.census.jobs[job]
        name = round_.classes.of(view.requestor)
        ahead = round_.queues[name].ahead(view)
        if (short := self._lacks(view)) is not None:
            return replace(short, job=job, facts={**short.facts, "ahead": ahead})
        held, target, unit = round_.held[name], round_.target[name], round_.placing.unit
        idle = round_.placing.idle_for(_next(round_, name, view))
        facts = {"class": name, "held": held, "target": target, "idle": idle, "ahead": ahead}
        using = f"class {name} is using {held} of {some(target, unit)}"
        return Wait(job, SHARE, f"{using}; {idle} idle, {some(ahead, 'job')} ahead in the queue", facts)

    def _lacks(self, job: JobView) -> Wait | None:
        """Say what a job itself lacks; None if it waits for its class's share or its turn alone."""
        round_ = self._round
        name = round_.classes.of(job.requestor)
        gang = _next(round_, name, job)
        key = name, gang.question
        if key in round_.passed:
            return round_.passed[key]
        if key not in self._short:
            self._short[key] = self._found(name, job, gang)
        return self._short[key]

    def _found(self, name: str, job: JobView, gang: GangView) -> Wait | None:
        round_ = self._round
        if not round_.placing.cost(gang):
            return unhosted(round_, job)
        if round_.placing.idle_for(gang):
            return None
        loans, end = self._lent()
        if round_.held[name] < round_.target[name] and loans:
            return self._on_loan(name, job, loans, end)
        if round_.placing.left and gang.question:
            return _busy(round_, name, job, gang, 0)
        return None

    def _on_loan(self, name: str, job: JobView, loans: Mapping[str, int], end: float) -> Wait:
        """Say who holds what a class is entitled to, and how it comes back."""
        round_ = self._round
        held, target, unit = round_.held[name], round_.target[name], round_.placing.unit
        until, rebalance = rfc3339(end), self._rebalance()
        lent = ", ".join(f"{count} on loan to class {other}" for other, count in loans.items())
        back = (
            f"the first ends by {until}"
            if until
            else f"no known end, rebalance {'off' if rebalance == 'off' else 'on'}"
        )
        facts = {"class": name, "held": held, "target": target, "loans": dict(loans), "first_end": until}
        text = f"class {name} is using {held} of {some(target, unit)}; {lent}; {back}"
        return Wait(job.id, LOANED, text, {**facts, "rebalance": rebalance})

    def _rebalance(self) -> Any:
        """Say "off", "on", or when loans are stopped if nothing changes."""
        rebalance, since = self._round.classes.rebalance, self._round.excess
        if not rebalance.on:
            return "off"
        return "on" if since is None else rfc3339(since + 60.0 * rebalance.minimum)

    def _lent(self) -> tuple[dict[str, int], float]:
        """Return the loans by class, and when the first task of a borrower must have ended."""
        if self._loans is None:
            round_ = self._round
            beyond = {name: round_.held[name] - round_.target[name] for name in round_.held}
            loans = {name: units for name, units in sorted(beyond.items()) if units > 0}
            runs = (run for run in round_.census.runs.values() if round_.classes.of(run.requestor) in loans)
            self._loans = loans, next_end(runs, round_.view.now) if loans else inf
        return self._loans


def _next(round_: Round, name: str, job: JobView) -> GangView:
    return round_.queues[name].next_of(job)
