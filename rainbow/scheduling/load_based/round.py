"""One round of the load-based policy, and why jobs wait after it.

Jobs that ask for the same share one reason:

passed over   its turn came and it could not start; jobs of one class that ask for the same share the reason
not reached   its class has what it is granted; what the job itself lacks is looked up by what it asks for
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Any

from rainbow.scheduling import cluster_index
from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.interface import Order, Rest, View, Wait
from rainbow.scheduling.load_based.class_queues import Queue
from rainbow.scheduling.load_based.entitlements import ClassCount
from rainbow.scheduling.load_based.gang_reservation import Amounts, Patience, Reserved, next_end
from rainbow.scheduling.load_based.rebalance import Exchange, given_back, units
from rainbow.scheduling.load_based.settings import CLASSIC, WORKER, Classes
from rainbow.scheduling.load_based.shared_workers import SharedWorkers
from rainbow.scheduling.load_based.task_counts import Classic, Counting, Exact
from rainbow.scheduling.load_based.whole_workers import Unit, WholeWorkers
from rainbow.scheduling.patience import Overdue, overdue
from rainbow.scheduling.snapshot import GangView, JobView
from rainbow.text import rfc3339, some

UNTOLD = Wait("", "", "")  # in a quiet view nobody reads why
LOOKED_AT = 1_000  # jobs of a requestor that are looked at for what is reserved, the shortest
TINY = 1e-9  # in place of a percent of nothing


class LoadBasedStep:
    """One planning round: what is held, who waits, what was decided."""

    def __init__(self, view: View, census: ClusterIndex, classes: Classes) -> None:
        self.view = view
        self.census = census
        self.classes = classes
        census.let_ask(classes.most_asked)
        whole = classes.unit == WORKER
        self.placing = WholeWorkers(view, census) if whole else SharedWorkers(view, census, classes.unit)
        factor = view.factor if view.standings else None
        classic = classes.rounding == CLASSIC
        queues = self._by_class(census.queues)
        self.queues = {name: Queue(census, own, factor, classic=classic) for name, own in queues.items()}
        holders = self._by_class(census.held)
        self.held = {name: self.placing.held_by(own) for name, own in holders.items()}
        self.running = {name: sum(census.held[one].tasks for one in own) for name, own in holders.items()}
        self.reserved: list[Reserved] = []
        self.passed: dict[tuple[str, int | str], Wait] = {}  # what cannot start in this round, by class
        self.promised = dict.fromkeys(self.held, 0)  # what is granted to gangs that cannot start yet
        self.patience = Patience.of(classes.gang_patience, view.now, view.memory, census)
        earned = view.memory.get("credit", {})
        units_ = self.placing.total
        self.counting: Counting = Classic(units_) if classic else Exact(units_, earned)
        self.before = self.counts(self.placing.left + 1)
        self.target = self.counting.targets(self.before)
        self.spread = self.counting.spread(self.before)
        self.rebalancing, self.excess = self._timer()
        if self.rebalancing:
            self.before = self.counts(self.placing.total)

    # ── 1 count ──

    def _by_class(self, requestors: Iterable[str]) -> dict[str, list[str]]:
        result: dict[str, list[str]] = {name: [] for name in self.classes.weights}
        for requestor in requestors:
            result[self.classes.of(requestor)].append(requestor)
        return result

    def counts(self, most: int) -> list[ClassCount]:
        """Count by class what is held and waited for, the latter no further than `most`."""
        return [
            ClassCount(name, weight, self.held[name] + self.promised[name], self._waiting(name, most))
            for name, weight in self.classes.weights.items()
        ]

    def _waiting(self, name: str, most: int) -> int:
        if not self.placing.ready:
            return 0
        return self.queues[name].waiting(self.placing.cost, most)

    def _timer(self) -> tuple[bool, float | None]:
        """Return whether to rebalance; not before the victims of the last time have ended."""
        excess = self.view.memory.get("over_since")
        due, since = self.classes.rebalance.due(self.spread, excess, self.view.now, clears=self.counting.clears)
        if due and self.census.stopping:
            return False, excess
        return due, since

    # ── 2 reserve ──

    def reserve_for_the_first(self) -> None:
        """Start the gang that has waited longest in vain, or reserve what it can have of what is idle."""
        if self.counting.repeats:
            self.patience.join(self._overdue(), self.classes.every)
        for job in self.patience.first(self.census) if self.counting.repeats else ():
            gang, name = job.gangs[0], self.classes.of(job.requestor)
            cost = self.placing.cost(gang)
            if took := self.placing.start(gang, max(cost, self.placing.left)) if cost else 0:
                self.held[name] += took
                self.queues[name].begin(job)
                target = self.target[name]
                self.patience.begins(job, gang, name, min(took, self.held[name] - target), target)
            elif cost:
                self._reserve_first(job, gang, name)
                return

    def _overdue(self) -> Iterable[Overdue]:
        """Return the job of each class that has waited in vain longer than the patience and can be hosted."""

        def class_of(job: JobView) -> str | None:
            return self.classes.of(job.requestor) if self.placing.cost(job.gangs[0]) else None

        return overdue(self.view, self.classes.patience, self.patience.served, class_of)

    def _reserve_first(self, job: JobView, gang: GangView, name: str) -> None:
        lacking = self.placing.lacks_outside(gang)
        held = self.placing.reserve(job, gang, self.placing.cost(gang))
        if lacking:
            self.placing.reserve_outside(held)
        self._note(held, name, held.units)
        wait = UNTOLD if self.view.quiet else first_in_line(self, held, lacking)
        self.queues[name].leave_out(job, wait)

    def _note(self, held: Reserved, name: str, promised: int) -> None:
        held.owner = name
        self.reserved.append(held)
        self.promised[name] += promised

    # ── 3 grant, 4 pick, 5 place, 6 again ──

    def grant_and_place(self) -> bool:
        """Grant idle workers to classes and start what fits; return whether that leaves anything else to grant."""
        before = self._progress()
        counts = self.counts(self.placing.total if self.rebalancing else self.placing.left + 1)
        granted = self.counting.starts(self.placing.left, counts, rebalancing=self.rebalancing)
        for name in sorted(granted, key=lambda n: (-self.classes.weights[n], n)):
            self._start_class(name, min(granted[name], self.placing.left))
        return self._progress() > before

    def _progress(self) -> int:
        return len(self.placing.orders) + sum(queue.left_out for queue in self.queues.values())

    def _start_class(self, name: str, granted: int) -> None:
        queue = self.queues[name]
        while self.placing.ready and (head := queue.head()) is not None:
            job, gang = head
            cost = self.placing.cost(gang)
            if granted <= 0 and cost:
                return
            if (name, gang.question) in self.passed:
                queue.give_up(None)
            elif not cost:
                self._give_up(name, gang, UNTOLD if self.view.quiet else unhosted(self, job, gang))
            elif took := self.placing.start(gang, granted):
                granted -= took
                self.held[name] += took
                self.patience.serves(job)
                queue.advance()
            else:
                granted -= self._pass_over(name, job, gang, granted)

    def _pass_over(self, name: str, job: JobView, gang: GangView, granted: int) -> int:
        """Leave the head of a class out of the round; return how much of what is granted is reserved for it.

        A gang beyond its class's target waits for its place in the line: what the class is granted would never do.
        """
        cost = self.placing.cost(gang)
        most = min(granted, cost)
        lacking = self.placing.lacks_outside(gang) if most == cost else {}
        held = Reserved(job, gang)
        if not lacking and (cost <= self.target[name] or not self.counting.repeats):
            held = self.placing.reserve(job, gang, most)
        wait = UNTOLD if self.view.quiet else passed_over(self, name, held, lacking)
        if self.counting.repeats:
            self.patience.wait_in_vain(job, name)
        if not held.units:
            self._give_up(name, gang, wait)
            return 0
        self.queues[name].give_up(wait)
        self._note(held, name, most)
        return most

    def _give_up(self, name: str, gang: GangView, wait: Wait) -> None:
        """Leave the head of a class out of the round, and with it all of its class that ask for the same."""
        self.queues[name].give_up(wait)
        self.passed[name, gang.question] = wait

    # ── 7 lend ──

    def lend(self) -> None:
        """Start what certainly ends before what is reserved can be used, the classes that hold least first."""
        lenders = [held for held in self.reserved if held.units and self.view.now < held.at < inf]
        if not lenders:
            return
        latest = max(held.at for held in lenders) - self.view.now
        short = {name: self._short(queue, latest) for name, queue in self.queues.items()}
        while short:
            name = min(short, key=lambda n: (self.held[n] / max(self.classes.weights[n], TINY), n))
            job = next(short[name], None)
            if job is None:
                del short[name]
            else:
                self._start_short(name, job, lenders)
        self.placing.end_lending()

    def _short(self, queue: Queue, latest: float) -> Iterator[JobView]:
        """Yield the jobs in turn whose next gang has a limit that may do, however many come first."""
        for job in queue.in_turn_within(latest, LOOKED_AT):
            if 0 < queue.next_of(job).expected <= latest:
                yield job

    def _start_short(self, name: str, job: JobView, lenders: list[Reserved]) -> None:
        queue = self.queues[name]
        while queue.has_left(job):
            gang = queue.next_of(job)
            end = self.view.now + gang.expected
            usable = [held for held in lenders if held.units and held.job is not job and end <= held.at]
            if not (usable and self.placing.cost(gang) and (took := self.placing.lend(usable, gang))):
                return
            self.held[name] += took
            self.patience.serves(job)
            queue.begin(job)

    # ── 8 rebalance ──

    def stops(self) -> Iterator[Order]:
        """Yield what must end so that classes below their targets come to their own."""
        if not self.rebalancing:
            return
        stops, needs = self.counting.stops(self.before, self.counts(self.placing.total))
        results = [unit for name in stops for unit in given_back(self._units(name), stops[name])]
        results.sort(key=lambda unit: (-unit.started, unit.tasks))
        yield from Exchange(self.placing, results).stops(self.queues, needs)

    def _units(self, name: str) -> list[Unit]:
        spared = self.patience.spared
        own = (r for r in self.view.runs if self.classes.of(r.requestor) == name and (r.job, r.gang) not in spared)
        return units([run for run in own if not run.stopping], self.placing.held)

    # ── what is remembered ──

    def _granted(self) -> dict[str, int]:
        return {c.name: self.held[c.name] + self.promised[c.name] - c.running for c in self.before}

    def memory(self) -> dict[str, Any]:
        """Return the next memory: credit by class, and since when the spread is over the threshold."""
        credit = dict(self.counting.credit(self.before, self._granted()))
        reserved: dict[str, Any] = {"credit": credit} if credit else {}
        reserved |= self.patience.memory(self.census)
        return reserved if self.excess is None else {**reserved, "over_since": self.excess}


SHARE, LOANED, KEPT = "share-used", "on-loan", "kept"
MOST_NAMED = 10  # jobs that facts name for which space is kept


def unhosted(round_: LoadBasedStep, job: JobView, gang: GangView) -> Wait:
    """Say that the ready workers could never host what a job waits to start: none of them a part, or too few."""
    ready, others = round_.placing.ready, cluster_index.away_in_words(round_.census)
    parts = round_.placing.ready_for(gang)
    able = f"{parts} of {some(ready, 'ready worker')} can run"
    text = f"{able} a part of this job, too few for all of it" if parts else f"{able} this job"
    facts = {"ready": ready, "hosts": parts, **cluster_index.facts(round_.census)}
    return Wait(job.id, "no-ready-host", text + (others and f"; {others}"), facts)


def passed_over(round_: LoadBasedStep, name: str, held: Reserved, lacking: Amounts) -> Wait:
    """Say why the job whose turn it was could not start, what of its place is kept, and whom it would delay."""
    wait = _passed_over(round_, name, held, lacking)
    facts = {**wait.facts, "place": {worker: list(paths) for worker, paths in held.vertices.items()}}
    if held.located and (until := _until(held, round_.placing.unit)):
        wait = replace(wait, text=f"{wait.text}; {until}", facts=facts)
    if (first := round_.placing.delayed_by(held, round_.reserved)) is not None:
        text = f"would delay job {first.job.id}, first in line; {wait.text}"
        wait = replace(wait, text=text, facts={**wait.facts, "delays": first.job.id})
    return wait


def _until(held: Reserved, unit: str) -> str:
    """Say when a gang fits, and what of its place is free and kept: "2 cores are kept on n0 (socket0/core[4-5])"."""
    by = f" (by {rfc3339(held.at)})" if rfc3339(held.at) else ""
    answers = [f"fits when job {held.after} ends{by}"] if held.after else []
    for worker, paths in islice(held.vertices.items(), 1):
        more = f" and {some(len(held.vertices) - 1, 'other worker')}" if len(held.vertices) > 1 else ""
        reserved = some(held.units, unit) if held.units else "what is free"
        answers.append(
            f"{reserved} {'is' if held.units < 2 else 'are'} kept on {worker} ({', '.join(paths[:3])}){more}"
        )
    return "; ".join(answers)


def _passed_over(round_: LoadBasedStep, name: str, held: Reserved, lacking: Amounts) -> Wait:
    placing, target = round_.placing, round_.target[name]
    requirement = placing.cost(held.gang)
    if lacking:
        return _lacks_outside(round_, held.job, lacking)
    if requirement > target and round_.counting.repeats:
        return _beyond(round_, name, held.job, requirement)
    if held.gang.question in placing.hopeless:
        return _busy(round_, name, held.job, held.gang, held.units)
    using = f"class {name} is using {round_.held[name]} of {some(target, placing.unit)}"
    text = f"{using}; needs {requirement} more at the same time, {held.units} reserved"
    facts = {"class": name, "held": round_.held[name], "target": target, "wanted": requirement, "kept": held.units}
    return Wait(held.job.id, SHARE, text, facts)


def first_in_line(round_: LoadBasedStep, held: Reserved, lacking: Amounts) -> Wait:
    """Say what is reserved for the gang that is first in line, and until when at the latest."""
    placing, name = round_.placing, round_.classes.of(held.job.requestor)
    requirement, target, at = placing.cost(held.gang), round_.target[name], rfc3339(held.at)
    loan = max(0, round_.held[name] + held.units - target)
    by = f"starts by {at}" if at else "the tasks on the others have no time limit"
    beside = "".join(f", {some(held.outside.get(kind, 0), kind, kind)}" for kind in lacking)
    text = f"{held.units} of {some(requirement, placing.unit)}{beside} reserved, first in line; {by}"
    facts = {"class": name, "wanted": requirement, "kept": held.units, "target": target, "loan": loan, "at": at}
    return Wait(held.job.id, "reserving", text, {**facts, "cluster_wide": dict(lacking)} if lacking else facts)


def _lacks_outside(round_: LoadBasedStep, job: JobView, lacking: Amounts) -> Wait:
    free = {kind: max(0, round_.placing.consumables.get(kind, 0)) for kind in lacking}
    parts = [f"{free[kind]} of {amount} {kind} free" for kind, amount in sorted(lacking.items())]
    return Wait(job.id, "consumables", f"cluster-wide: {', '.join(parts)}", {"wanted": dict(lacking), "free": free})


def _beyond(round_: LoadBasedStep, name: str, job: JobView, demand: int) -> Wait:
    """Say that a gang is larger than its class's target, and when it may go beyond it."""
    patience, target, unit = round_.patience, round_.target[name], round_.placing.unit
    due = rfc3339(patience.due(job, name))
    begin = (
        f"more from {due}" if patience.due(job, name) > patience.now else f"{len(patience.line)} in line before it"
    )
    text = f"needs {some(demand, unit)} at the same time, class {name} may use {target}; {begin}"
    return Wait(job.id, "share-too-small", text, {"class": name, "wanted": demand, "target": target, "from": due})


def _busy(round_: LoadBasedStep, name: str, job: JobView, gang: GangView, reserved: int) -> Wait:
    """Say that too little is idle of what a gang could run on."""
    placing = round_.placing
    if (answer := placing.why.get(gang.question)) is not None:
        return replace(
            answer, job=job.id, facts={"class": name, "wanted": placing.cost(gang), "kept": reserved, **answer.facts}
        )
    requirement, idle, ready = placing.cost(gang), placing.idle_for(gang), placing.ready_for(gang)
    if placing.unit == "worker":
        are = "is" if idle == 1 else "are"
        text = f"{idle} of {some(ready, 'worker')} that can run it {are} idle, {requirement} needed"
    else:
        free = some(idle + reserved, placing.unit)
        text = f"{free} free on {some(ready, 'worker')} that can run it, {requirement} needed together"
    text += f"; {reserved} reserved" if reserved else ""
    facts = {"class": name, "wanted": requirement, "idle": idle, "hosts": ready, "kept": reserved}
    return Wait(job.id, f"{placing.unit}s-busy", text, facts)


def rest_of(round_: LoadBasedStep) -> Rest:
    """Say why all the others wait."""
    return NotReached(round_) if round_.placing.ready else NoWorker(round_.census)


class NoWorker:
    """Why all jobs wait of a cluster without workers that take tasks."""

    reason = "no-worker-ready"

    def __init__(self, census: ClusterIndex) -> None:
        self._census = census

    def code(self, _job: str) -> str:
        """Return the code of all of them."""
        return self.reason

    def of(self, job: str) -> Wait:
        """Return why one job waits."""
        text = f"no worker is available: {cluster_index.away_in_words(self._census)}"
        return Wait(job, self.reason, text, cluster_index.facts(self._census))


class NotReached:
    """Why all other jobs wait: what they ask for is taken, their class has its share, or their turn has not come.

    Asked while the round lasts; what is the same for all that ask for the same is looked up once.
    """

    reason = SHARE

    def __init__(self, round_: LoadBasedStep) -> None:
        self._round = round_
        self._short: dict[tuple[str, int | str], Wait | None] = {}
        self._loans: tuple[dict[str, int], float] | None = None

    def code(self, job: str) -> str:
        """Return the code of one job's wait."""
        short = self._lacks(self._round.census.jobs[job])
        return short.reason if short else SHARE

    def of(self, job: str) -> Wait:
        """Return why one job waits."""
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
            return unhosted(round_, job, gang)
        if round_.placing.idle_for(gang):
            return None
        if (reserved := self._kept_from(name, job, gang)) is not None:
            return reserved
        loans, end = self._lent()
        if round_.held[name] < round_.target[name] and loans:
            return self._on_loan(name, job, loans, end)
        if round_.placing.left and gang.question:
            return _busy(round_, name, job, gang, 0)
        return None

    def _kept_from(self, name: str, job: JobView, gang: GangView) -> Wait | None:
        """Say what is free and kept for gangs that come first; None if nothing is that the gang could run on."""
        round_, hosts, unit = self._round, self._round.view.hosts(gang.demand), self._round.placing.unit
        reserved = [one for one in round_.reserved if one.units and _kinds(round_, one) & hosts]
        if not reserved:
            return None
        free, first = (
            sum(one.units for one in reserved),
            min(reserved, key=lambda one: (one.at, one.job.submitted, one.job.id)),
        )
        others = f" and {some(len(reserved) - 1, 'other job')}" if len(reserved) > 1 else ""
        until = f" until {rfc3339(first.at)}" if rfc3339(first.at) else ""
        verb = "is" if free == 1 else "are"
        rows = [{"job": one.job.id, "amount": one.units, "until": rfc3339(one.at)} for one in reserved[:MOST_NAMED]]
        facts = {"class": name, "free": free, "held": round_.held[name], "target": round_.target[name], "kept": rows}
        text = f"{some(free, unit)} {verb} free but kept for job {first.job.id}{others}{until}"
        return Wait(job.id, KEPT, text, facts)

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


def _kinds(round_: LoadBasedStep, reserved: Reserved) -> set[str]:
    """Return the kinds of workers of which something is kept."""
    return {round_.census.workers[name].kind for name in reserved.parts if name in round_.census.workers}


def _next(round_: LoadBasedStep, name: str, job: JobView) -> GangView:
    return round_.queues[name].next_of(job)
