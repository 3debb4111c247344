"""Jobs taken back from a site that has not begun them: they are stuck there, or would start sooner elsewhere.

stuck    by the site's own reason the job can never start as it is, for `stuck_after` seconds
sooner   by the rules of `limits.replace`: what sites report of waiting, what forecasts say of other clusters
asked    the job's wait says why; its agent is asked to give back what has not begun, and what has begun runs on
back     all of its tasks wait again: it moves as after a loss, or is handed over again where none takes it now
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.matching import Verdict
from rainbow.scheduling import policies
from rainbow.service.core.memory import ByCluster, place
from rainbow.service.jobs.lifecycle import end
from rainbow.service.placement.facts import Around, facts_for
from rainbow.service.placement.failover import DepartedMirror, Destinations, Relocation
from rainbow.service.placement.replacement import LONGEST, WHY, Rules
from rainbow.state_machine import Hold, Task, TaskState
from rainbow.store import clusters, events, jobs, tasks
from rainbow.store.jobs import LIVE, WITHDRAWING, code_of
from rainbow.transitions import WithdrawalOrdered, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord

LOOK_INTERVAL = 5.0  # seconds between two looks at what a site has not begun
LOOKED_AT = 50  # jobs of it, for an earlier start
SITE_TIMEOUT = 120.0  # seconds that a site has to give a job back
RECALL_PAUSE = 600.0  # seconds before the same job is asked for again
STUCK = "stuck"  # the class of a site's reason that does not pass
UNBEGUN = {TaskState.WAITING, TaskState.ACCEPTED, TaskState.CANCELED}


class Handing(DepartedMirror, Protocol):
    """The mirror of a cluster that hands jobs over."""

    @property
    def booked(self) -> Mapping[str, Task]:
        """The tasks that it has, by id."""

    @property
    def withdrawn(self) -> Collection[str]:
        """The jobs that it was asked to give back."""


@dataclass(slots=True)
class RecallTimes:
    """When a site's jobs were looked at last, all and those that may start sooner elsewhere; which were asked for."""

    at: float = -inf
    sooner: float = -inf
    jobs: dict[str, float] = field(default_factory=dict)


@place("recall", most="one for a site", of="when a site's jobs were looked at, and which were asked for")
class RecallState(ByCluster[RecallTimes]):
    """What was asked of each site."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A job that should leave its site: why, what is done, and where to, "": wherever its own selection says."""

    job: str
    why: str
    then: str = "withdraw"
    to: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def recall(service: Service, mirror: Handing, record: ClusterRecord) -> bool:
    """Ask for what should leave a site, and move what it has given back; return whether anything was written."""
    wrote = bool(mirror.withdrawn) and _move(service, mirror)
    request, now = service.state(RecallState).setdefault(record.id, RecallTimes()), service.clock()
    if not mirror.booked or 0 <= now - request.at < LOOK_INTERVAL:
        return wrote
    request.at = now
    request.jobs = {
        job: at for job, at in request.jobs.items() if job in mirror.jobs and 0 <= now - at < RECALL_PAUSE
    }
    pending = {job: task for job, task in _pending(mirror).items() if job not in request.jobs}
    with service.store.read() as connection:
        elsewhere = Relocation(service, connection, {}, back_after=[WHY])
        wishes = [
            *_stuck(service, elsewhere, record, pending),
            *_sooner(service, elsewhere, mirror, pending, request),
        ]
    if wishes:
        with service.store.write() as connection:
            for wish in wishes:
                _ask(connection, wish, now)
        request.jobs |= {wish.job: now for wish in wishes}
        service.tell(record.id)
    return wrote or bool(wishes)


def _pending(mirror: Handing) -> dict[str, Task]:
    """Return of each job that a site has not begun the task it says most of; the first ones handed over first."""
    waits = [
        task
        for task in mirror.booked.values()
        if task.state is TaskState.ACCEPTED and task.pending and task.hold != Hold.WITHDRAW
    ]
    results = {task.job: task for task in sorted(waits, key=_is_stuck)}
    return dict(sorted(results.items(), key=lambda item: (item[1].assigned_at or 0.0, item[0])))


def _is_stuck(task: Task) -> bool:
    facts = (task.pending or {}).get("facts") or {}
    return bool(facts.get("class") == STUCK)


def _stuck(
    service: Service, elsewhere: Relocation, record: ClusterRecord, pending: Mapping[str, Task]
) -> Iterator[RecallRequest]:
    """Yield the jobs that have waited long enough for what never comes; one that can go nowhere else stays."""
    settings = policies.get(record.policy).check(record.settings)
    after, then = settings.get("stuck_after", inf), str(settings.get("on_stuck", "hold"))
    for job, task in pending.items():
        answer = task.pending or {}
        result = jobs.get(elsewhere.connection, job)
        if result and _is_stuck(task) and service.clock() - answer["since"] >= after:
            why = f"stuck at {record.name} for {after:g} s: {answer['facts'].get('reason') or answer['text']}"
            stays = then == "withdraw" and elsewhere.look(result) is None
            yield RecallRequest(job, why, "hold" if stays else then)


def _ask(connection: sa.Connection, wish: RecallRequest, now: float) -> None:
    """Say what is to become of a job, and do it."""
    record = jobs.get(connection, wish.job)
    if record is None or record.state not in LIVE or record.canceled_at is not None:
        return
    if not set(tasks.states_of(connection, record.id)) <= UNBEGUN:
        return
    answer = {
        "job": record.id,
        "state": WITHDRAWING if wish.to else STUCK,
        "cluster": record.cluster,
        "why": wish.why,
    }
    events.add(connection, now, record.cluster_id, "job", **answer)
    if wish.then == "cancel":
        end(connection, record.id, now, wish.why)
    elif wish.then == "withdraw":
        facts = {"why": wish.why, "to": wish.to, **wish.facts}
        text = f"{record.cluster} is asked to give it back: {wish.why}"[:300]
        wait = {"reason": WITHDRAWING, "text": text, "facts": facts, "since": now}
        jobs.change(connection, record.id, wait=wait)
        result = tasks.of_job(connection, record.id)
        tasks.save_all(connection, [transition(task, WithdrawalOrdered(), now) for task in result], now)


# ── where it would start sooner ──


def _sooner(
    service: Service, elsewhere: Relocation, mirror: Handing, pending: Mapping[str, Task], request: RecallTimes
) -> Iterator[RecallRequest]:
    """Yield the jobs that gain by the rules of `limits.replace`, as far as the time for a look reaches."""
    limits, now, began = mirror.limits.get("replace"), service.clock(), service.monotonic()
    if limits is None or 0 <= now - request.sooner < limits["every"]:
        return
    request.sooner, rules = now, Rules(**limits)
    may = [(job, task) for job, task in pending.items() if not _is_stuck(task)]
    for job, task in may[:LOOKED_AT]:
        if service.monotonic() - began > LONGEST:
            return
        record = jobs.get(elsewhere.connection, job)
        if record and (wish := _gain(service, elsewhere, record, (task.pending or {}).get("facts") or {}, rules)):
            yield wish


def _gain(
    service: Service, elsewhere: Relocation, record: JobRecord, facts: Mapping[str, Any], rules: Rules
) -> RecallRequest | None:
    """Return the wish to be where a job would start first, if that is worth a move."""
    now, going = service.clock(), elsewhere.going(record)
    if not going.ids or not rules.allows(going.decision.get("moves", []), now):
        return None
    here, there = _waits(service, elsewhere.connection, record, going)
    planned = _planned(facts, now)
    here = min(here, planned) if planned is not None else here
    name = min(there, key=lambda one: (there[one], one), default="")
    if here == inf or not name or not rules.pays(now + here, now + there[name], now):
        return None
    answer = {"expected_wait": {"here": round(here, 1), "there": round(there[name], 1)}}
    return RecallRequest(record.id, WHY, to=name, facts=answer)


def _planned(facts: Mapping[str, Any], now: float) -> float | None:
    """Return in how many seconds the site itself plans to start it; None: it does not say, or without a zone."""
    try:
        at = datetime.fromisoformat(str(facts.get("expected_start")))
    except ValueError:
        return None
    return max(0.0, at.timestamp() - now) if at.tzinfo else None


def _waits(
    service: Service, connection: sa.Connection, record: JobRecord, going: Destinations
) -> tuple[float, dict[str, float]]:
    """Return for how long such a job waits at least here, and at most elsewhere where that is known."""
    here = Verdict(record.cluster, True, totals=going.candidates[0].totals)
    all_ = Around([*going.candidates, here], {**going.ids, record.cluster_id: record.cluster})
    facts = facts_for(service, connection, going.arrival(record), all_, forecast=True)
    states, made = facts.values, facts.forecast
    if made is None:
        return inf, {}
    starts = {name: start - made.now for name, start in made.starts.items()}
    there = {}
    for name in going.ids.values():
        known = states[name].get("expected_wait_high", starts[name] if made.ask.whole else inf)
        if known < inf:
            there[name] = float(known)
    return float(states[record.cluster].get("expected_wait_low", inf)), there


# ── what was given back ──


def _move(service: Service, mirror: Handing) -> bool:
    """Move what its site has given back; of what has begun, or is not given back in time, nothing more is asked."""
    verdicts: dict[Any, Any] = {}
    with service.store.read() as connection:
        elsewhere = Relocation(service, connection, verdicts, back_after=[WHY])
        results = [job for job in sorted(mirror.withdrawn) if _settled(service, elsewhere, job)]
    if not results:
        return False
    moved: dict[str, str] = {}
    with service.store.write() as connection:
        elsewhere = Relocation(service, connection, verdicts, back_after=[WHY])
        for job in results:
            if (to := _go(elsewhere, job)) is not None:
                moved[job] = to
    for job in moved:
        mirror.forget_moved(job)
    service.tell(mirror.entry.id, *set(moved.values()))
    return True


def _settled(service: Service, elsewhere: Relocation, job: str) -> bool:
    """Return whether a job that was asked for is back, has begun, or is not given back; match it if it is back."""
    record = jobs.get(elsewhere.connection, job)
    if record is None or not record.wait or code_of(record) != WITHDRAWING:
        return False
    states = set(tasks.states_of(elsewhere.connection, job))
    if TaskState.ACCEPTED not in states and states <= UNBEGUN:
        elsewhere.look(record)
        return True
    return not states <= UNBEGUN or not 0 <= service.clock() - record.wait["since"] < SITE_TIMEOUT


def _go(elsewhere: Relocation, job: str) -> str | None:
    """Move a job that is back; return the id of the cluster that has it now, None: it stays."""
    connection, record = elsewhere.connection, jobs.get(elsewhere.connection, job)
    if record is None or not record.wait or code_of(record) != WITHDRAWING:
        return None
    facts = record.wait["facts"]
    jobs.change(connection, job, wait=None)
    states = set(tasks.states_of(connection, job))
    if TaskState.ACCEPTED in states or not states <= UNBEGUN:
        tasks.ask_again(connection, job, Hold.WITHDRAW)
        return None
    jobs.change(connection, job, accepted_clock=None)
    clusters.note(connection, record.cluster_id)
    stored = {key: value for key, value in facts.items() if key not in ("why", "to")}
    among = {facts["to"]} if facts["to"] else None
    move = elsewhere.place(replace(record, accepted_clock=None, wait=None), facts["why"], among, **stored)
    return move.record.cluster_id if move else None
