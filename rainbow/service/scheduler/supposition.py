"""A cluster as it would be with other jobs, settings and workers: what its next step would do then.

Nothing is stored, and nothing of the cluster in memory is left changed. Hypothetical jobs come last by submission;
their dependencies are taken as met. Amounts alone say what is free where workers are supposed to be in other states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import PolicyError, RainbowError, ValueRefused
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.request import OF_ITS_OWN
from rainbow.scheduling import Elastic, GangView, JobProgress, JobView, View, gangs, policies
from rainbow.state_machine import WorkerState, task_id

if TYPE_CHECKING:
    from rainbow.scheduling import Gang
    from rainbow.service.live_state.matcher_cache import MatcherCache
    from rainbow.service.scheduler.view import Frozen

MOST_JOBS = 1_000  # hypothetical jobs


@contextmanager
def supposed(frozen: Frozen, given: Mapping[str, Any]) -> Iterator[View]:
    """Give the view as it would be; `given` has the form `Supposition`."""
    if not given:
        yield frozen.view
        return
    view, demands = frozen.view, set(frozen.placing.gangs)
    try:
        jobs = list(_jobs(frozen.placing, given.get("jobs", ()), view.now))
        changed = replace(
            view,
            jobs=[*view.jobs, *jobs],
            settings=_settings(frozen.record.policy, view.settings, given.get("settings", {})),
            census=None,
        )
        yield _in_states(changed, given["workers"]) if given.get("workers") else changed
    finally:
        for demand in frozen.placing.gangs.keys() - demands:
            frozen.placing.forget(demand)


def _settings(policy: str, now: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings merged key by key; null returns a key to its default."""
    merged = {key: value for key, value in {**now, **given}.items() if value is not None}
    try:
        return policies.get(policy).check(merged) if given else now
    except PolicyError as fault:
        raise PolicyError(fault.message, pointer=f"/settings{fault.pointer or ''}") from None


def _in_states(view: View, states: Mapping[str, str]) -> View:
    workers = {worker.id: worker for worker in view.workers}
    for name, state in states.items():
        if name not in workers:
            raise ValueRefused(f"there is no worker {name[:100]}", pointer=f"/workers/{name[:100]}")
        workers[name] = replace(workers[name], state=WorkerState(state))
    return replace(view, workers=list(workers.values()), free=None)


def _jobs(placing: MatcherCache, given: list[Mapping[str, Any]], now: float) -> Iterator[JobView]:
    number = 0
    for k, one in enumerate(given):
        try:
            request = parse_jobspec(one["jobspec"])
        except RainbowError as fault:
            inside = getattr(fault, "pointer", None) or ""
            raise ValueRefused(fault.message, pointer=f"/jobs/{k}/jobspec{inside}") from None
        for _ in range(one.get("count", 1)):
            number += 1
            if number > MOST_JOBS:
                raise ValueRefused(f"at most {MOST_JOBS:,} hypothetical jobs are planned", pointer="/jobs")
            yield _job(placing, f"supposed-{number}", one, request, now)


def _job(placing: MatcherCache, name: str, given: Mapping[str, Any], request: Request, now: float) -> JobView:
    """Return a hypothetical job as a policy sees it."""
    system, elastic = request.attributes.get("system"), request.elastic
    views = tuple(_gang(placing, name, gang) for gang in gangs(request))
    tasks = sum(len(gang.tasks) for gang in views)
    return JobView(
        name,
        given.get("requestor") or "supposed",
        now,
        views,
        priority=given.get("priority", 0),
        attributes=system if isinstance(system, Mapping) else {},
        waiting=tasks,
        job_class=request.job_class,
        elastic=Elastic(elastic.min, elastic.max, elastic.threads) if elastic else None,
        progress=JobProgress(tasks * (elastic.threads if elastic else 1)),
        service=name if request.service == OF_ITS_OWN else request.service,
    )


def _gang(placing: MatcherCache, job: str, gang: Gang) -> GangView:
    ids = [task_id(job, task.index) for task in gang.tasks]
    slots, request = placing.slots(gang.request), gang.request
    demand = placing.demand(job, gang, ids)
    return GangView(job, gang.number, tuple(ids), demand, request.duration, slots, request.number)
