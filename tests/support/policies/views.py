"""Small views for tests of policies: equal workers, a gang's demand is the number of workers it takes."""

from rainbow.matching import Take
from rainbow.scheduling import GangView, JobView, LoadBased, RunView, Start, Stop, View, WorkerView, check_plan
from rainbow.scheduling.invariants import every_wait
from rainbow.state_machine import WorkerState

FREE, READY = {"core": 4}, WorkerState.READY


def divide(demand, take):
    """The one task of a gang holds all of its take."""
    return [{worker: amounts for _, placed in take.placed for worker, amounts in placed.items()}]


def view(jobs, workers=4, runs=(), settings=None, state=READY, now=0.0, memory=None, kinds=None):
    """A view of equal workers; a demand is the number of workers it takes, as text."""
    held = {worker for run in runs for worker in run.placement}
    names = [f"node{k}" for k in range(workers)]

    def hosts(demand):
        """A demand may name the kind it needs: `big/job/0:1`."""
        named = demand.partition("/")[0]
        return frozenset({named} if named in kind.values() else kind.values())

    def place(demand, free):
        required = int(demand.rpartition(":")[2])
        free = [name for name in free if kind[name] in hosts(demand)]
        return (
            Take(tuple(("s", {name: {"core": 1}}) for name in free[:required]), {}) if len(free) >= required else None
        )

    kind = {name: (kinds or {}).get(name, "k") for name in names}
    seen = [WorkerView(name, kind[name], FREE, FREE, state, 0.0, int(name in held)) for name in names]
    return View(now, settings or {}, seen, jobs, list(runs), place, hosts, divide, memory or {})


def job(name, *sizes, requestor="user", running=0, submitted=0.0, kind="any", priority=0):
    gangs = tuple(GangView(name, k, (f"{name}-{k}",), f"{kind}/{name}/{k}:{size}") for k, size in enumerate(sizes))
    return JobView(name, requestor, submitted, gangs, running, priority)


def running(name, worker, requestor="user", started=0.0, stopping=False):
    """A task that holds one worker; tasks are called job-number."""
    of, _, number = name.rpartition("-")
    return RunView(name, of, requestor, int(number), {f"node{worker}": {"core": 1}}, started, stopping)


def plan(of):
    made = LoadBased().plan(of)
    check_plan(of, made)
    return made


def started(made):
    return [order.task for order in made.orders if isinstance(order, Start)]


def stopped(made):
    return [order.task for order in made.orders if isinstance(order, Stop)]


def reasons(of, made):
    """Why each job that is left waiting waits."""
    return {wait.job: wait.reason for wait in every_wait(of, made)}
