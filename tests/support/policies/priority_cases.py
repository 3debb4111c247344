"""One situation of the priority policy: a small cluster, what asks and runs there, and what the plan says."""

from dataclasses import replace

from rainbow.scheduling import Priority, Resume, Start, Suspend, check_plan
from tests.support.policies.dispatching import Job, job_view, make_view, run_view

NOW = 1_000.0
FOUR = {f"n{k}": {"core": 2} for k in range(4)}
PES = {
    "fill": {},
    "round": {"rule": "round_robin"},
    "one": {"rule": "pe_slots"},
    "pairs": {"rule": 2},
    "small": {"slots": 3},
}


def view(jobs, workers=FOUR, runs=(), memory=None, load=None, **more):
    """A cluster on which these jobs wait; `more` are settings."""
    reservations = more.pop("reservations", ())
    made = make_view(NOW, workers, [job_view(job) for job in jobs], list(runs), more, reservations=reservations)
    seen = [replace(worker, load=(load or {}).get(worker.id, {})) for worker in made.workers]
    return replace(made, workers=seen, memory={"priority": memory or {}})


def plan(of):
    """Plan once; the plan is one that may be carried out, its memory the policy's own."""
    made = Priority().plan(of)
    check_plan(of, made)
    return replace(made, memory=made.memory.get("priority", {}))


def placed(made):
    """The cores each started task has, by worker."""
    return {o.task: {w: held["core"] for w, held in o.placement.items()} for o in made.orders if isinstance(o, Start)}


def waits(made):
    """What each job that waits is told."""
    return {wait.job: wait for wait in made.waits}


def job(name, least=1, walltime=100.0, **more):
    return Job(name, more.pop("submit", 0.0), least, 5, walltime, **more)


def asking(name, least=1, walltime=100.0, most=0, requestor="user", priority=0, **attributes):
    return Job(name, 0.0, least, 5, walltime, priority, most, requestor, attributes)


def running(name, worker, cores=1, started=NOW - 10, walltime=100.0, **more):
    return run_view(job(name, walltime=walltime, **more), {worker: {"core": cores}}, started)


def held(made):
    """What is suspended and resumed."""
    return [(type(o).__name__, o.task) for o in made.orders if isinstance(o, (Suspend, Resume))]


def where(**spots):
    """Memory of where tasks run: one spot (worker, queue, slots) each."""
    return {"running": {task: {"pe": "", "spots": [spot]} for task, spot in spots.items()}}
